"""Text or a list -> the values of a setting in a sweep.

    1,2,3   a,[b, c]            these; commas part them unless brackets or quotes hold them together
    0..4   0.1..0.5..0.1        numbers in ones, or at the pace of the third one; both ends belong to them
    uniform(0..1)   log(1e-4..1e-1)   whole(8..64)      drawn from: for a sample or a search

Values stay the text that `--set` takes, so that a point is exactly the run that its overrides name.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from pipeline.errors import ConfigError

MOST_POINTS = 100_000  # in a grid: more is a slip of the keyboard, or wants a sample
_DRAWN = re.compile(r"(?P<kind>\w+)\((?P<low>[^()]+?)\.\.(?P<high>[^()]+)\)")
_CLOSING = {"[": "]", "{": "}", "(": ")", '"': '"', "'": "'"}
Kind = Literal["uniform", "log", "whole"]


@dataclass(frozen=True)
class Choices:
    """One of these, each as text."""

    values: tuple[str, ...]

    def drawn(self, rng: random.Random) -> str:
        return rng.choice(self.values)


@dataclass(frozen=True)
class Span:
    """Any number between two, both included."""

    low: float
    high: float
    kind: Kind

    def drawn(self, rng: random.Random) -> str:
        if self.kind == "whole":
            return str(rng.randint(int(self.low), int(self.high)))
        if self.kind == "log":
            return number_text(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return number_text(rng.uniform(self.low, self.high))


Axis = Choices | Span


def number_text(value: float) -> str:
    """Six digits: a draw needs no more, and its name in tables stays short."""
    return f"{value:.6g}"


def axis_of(where: str, given: Any) -> Axis:
    """From the command line a text, from YAML also a list or a single value."""
    if isinstance(given, list):
        texts = [_as_setting(value) for value in given]
    elif isinstance(given, str):
        drawn = _DRAWN.fullmatch(given.strip())
        if drawn is not None:
            return _span(where, given, drawn)
        texts = [text for part in _parted(given) for text in _counted(where, part)]
    else:
        texts = [_as_setting(given)]
    values = tuple(dict.fromkeys(texts))
    if not values or "" in values:
        raise ConfigError(f"{where}: found {given!r}, needed values such as 1,2,3 or 0..4 or [a, b]")
    return Choices(values)


def whole_numbers(where: str, given: Any) -> tuple[int, ...]:
    """Seeds: `3`, `0..4`, `0,2,7`, or a list."""
    axis = axis_of(where, given)
    try:
        assert isinstance(axis, Choices)
        return tuple(int(value) for value in axis.values)
    except (AssertionError, ValueError):
        raise ConfigError(f"{where}: found {given!r}, needed whole numbers such as 0..4 or 1,2,3") from None


def grid(where: str, axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Every combination, the last axis fastest."""
    choices = [axis for axis in axes if isinstance(axis, Choices)]
    if len(choices) < len(axes):
        raise ConfigError(f"{where}: a span of numbers has no grid, needed a list; or draw from it with --sample N")
    total = math.prod(len(axis.values) for axis in choices)
    if total > MOST_POINTS:
        raise ConfigError(f"{where}: {total:,} combinations, needed at most {MOST_POINTS:,}; draw some with --sample N")
    return (_numbered(choices, number) for number in range(total))


def sample(where: str, axes: Sequence[Axis], count: int, seed: int) -> list[tuple[str, ...]]:
    """`count` different combinations, the same ones for the same seed."""
    rng = random.Random(seed)
    choices = [axis for axis in axes if isinstance(axis, Choices)]
    if len(choices) == len(axes):
        total = math.prod(len(axis.values) for axis in choices)
        if count >= total:
            return list(grid(where, axes))
        return [_numbered(choices, number) for number in rng.sample(range(total), count)]
    found: dict[tuple[str, ...], None] = {}
    for _ in range(100 * count):
        found[tuple(axis.drawn(rng) for axis in axes)] = None
        if len(found) == count:
            return list(found)
    raise ConfigError(f"{where}: only {len(found)} different combinations were drawn, needed {count}; ask for fewer")


def _numbered(axes: Sequence[Choices], number: int) -> tuple[str, ...]:
    chosen = []
    for axis in reversed(axes):
        number, place = divmod(number, len(axis.values))
        chosen.append(axis.values[place])
    return tuple(reversed(chosen))


def _as_setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _parted(text: str) -> list[str]:
    """At the commas that no bracket or quote encloses."""
    parts, open_until = [""], ""
    for character in text:
        if character == "," and not open_until:
            parts.append("")
            continue
        if open_until.endswith(character):
            open_until = open_until[:-1]
        elif open_until[-1:] not in ('"', "'") and character in _CLOSING:
            open_until += _CLOSING[character]
        parts[-1] += character
    return [part.strip() for part in parts]


def _counted(where: str, part: str) -> list[str]:
    """`0..4` as its numbers; anything else as it is."""
    pieces = part.split("..")
    try:
        numbers = [Decimal(piece) for piece in pieces] if len(pieces) in (2, 3) else []
    except InvalidOperation:
        numbers = []
    if not numbers or not all(number.is_finite() for number in numbers):
        return [part]
    low, high, pace = numbers if len(numbers) == 3 else (*numbers, Decimal(1))
    if pace <= 0 or high < low:
        raise ConfigError(f"{where}: found {part!r}, needed low..high with low first, or low..high..pace above zero")
    count = int((high - low) / pace) + 1
    if count > MOST_POINTS:
        raise ConfigError(f"{where}: {part!r} has {count:,} values, needed at most {MOST_POINTS:,}")
    return [f"{low + number * pace:f}" for number in range(count)]


def _span(where: str, given: str, drawn: re.Match[str]) -> Span:
    kind = drawn["kind"]
    try:
        low, high = float(drawn["low"]), float(drawn["high"])
    except ValueError:
        low, high = math.nan, math.nan
    fits = {
        "uniform": low < high,
        "log": 0 < low < high,
        "whole": low < high and low.is_integer() and high.is_integer(),
    }
    if not fits.get(kind) or not math.isfinite(high - low):
        raise ConfigError(
            f"{where}: found {given!r}, needed uniform(low..high), log(low..high) above zero, or whole(low..high)"
        )
    return Span(low, high, kind)  # type: ignore[arg-type] # a key of `fits`
