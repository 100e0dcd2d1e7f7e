"""Every figure of two subjects beside each other: how much it moved, and whether that is more than noise.

Counted and modelled figures are exact: any change is one. Measured ones have a spread: a change counts if chance alone
would give it in less than one of a thousand comparisons, all figures of a comparison taken together (Holm). A layer is
measured once; its noise is at most that of the whole inference, as the noises of layers add up to it. Accuracy is
tested by itself, at the usual 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stages.tools.comparison.subjects import Place, Subject, number
from stages.tools.comparison.tests_of_difference import Difference, holm, mcnemar, two_proportions, welch_p

ALPHA_ACCURACY = 0.05
ALPHA_MEASURED = 0.001
Verdict = Literal["same", "noise", "better", "worse", "changed", "missing"]

_OF_NETWORK = ("size_bytes", "peak_bytes", "macs")
_OF_BOARD = (
    *("arena_bytes", "flash_bytes", "ram_bytes", "stack_high_water_bytes", "instructions", "cycles_modelled"),
    *("latency_ms_modelled", "latency_ms", "energy_mj_modelled", "energy_mj"),
)
_MEASURED = ("latency_ms", "energy_mj")
_OF_LAYER = ("latency_ms", "latency_ms_modelled", "instructions")  # the first that both sides have


@dataclass(frozen=True)
class Finding:
    """One figure of the base and of the other side; `where` is a board, a layer of it, or nothing for the network."""

    where: str
    column: str
    base: float | None
    other: float | None
    verdict: Verdict
    p: float | None = None  # None: exact
    two_sigma: tuple[float | None, float | None] = (None, None)
    how: str = ""
    is_layer: bool = False

    @property
    def change(self) -> float | None:
        """Relative; None where there is none to tell."""
        if self.base is None or self.other is None or not self.base:
            return None
        return self.other / self.base - 1

    @property
    def is_certain(self) -> bool:
        return self.verdict in ("better", "worse", "changed")


def findings(base: Subject, other: Subject) -> list[Finding]:
    """All that can be compared, network first, then board by board."""
    found = [*_accuracy(base, other), *_network(base, other)]
    for place in _places(base, other):
        found += _board(base, other, place)
        found += _layers(base, other, place)
    return _corrected(found)


def config_changes(base: Subject, other: Subject) -> dict[str, tuple[object, object]]:
    """Key -> both values, where they differ; nothing if one side has no configuration to tell."""
    if not base.config or not other.config:
        return {}
    keys = [*base.config, *(key for key in other.config if key not in base.config)]
    return {key: pair for key in keys if (pair := (base.config.get(key), other.config.get(key)))[0] != pair[1]}


def accuracy_difference(base: Subject, other: Subject) -> Difference | None:
    """Paired where both told the same test examples."""
    if base.labels and list(base.labels) == list(other.labels) and base.test_inputs == other.test_inputs:
        right = [
            [chosen == label for chosen, label in zip(each.chosen, each.labels, strict=True)] for each in (base, other)
        ]
        return mcnemar(*right)
    (share_a, n_a), (share_b, n_b) = _share(base), _share(other)
    if share_a is None or share_b is None or not n_a or not n_b:
        return None
    return two_proportions(share_a, n_a, share_b, n_b)


def _share(subject: Subject) -> tuple[float | None, int]:
    for row in subject.rows.values():
        share, n = number(row.get("accuracy_int8")), number(row.get("accuracy_n"))
        if share is not None:
            return share, int(n or 0)
    return None, 0


def _accuracy(base: Subject, other: Subject) -> Iterator[Finding]:
    before, after = _share(base)[0], _share(other)[0]
    if before is None and after is None:
        return
    difference = accuracy_difference(base, other)
    if before is None or after is None:
        yield Finding("", "accuracy_int8", before, after, "missing")
    elif difference is None:
        how = "the number of test examples is not known"
        yield Finding("", "accuracy_int8", before, after, "same" if before == after else "noise", how=how)
    else:
        verdict = _verdict("accuracy_int8", before, after, difference.p < ALPHA_ACCURACY)
        interval = f"{100 * difference.value:+.2f} points [{100 * difference.low:+.2f}, {100 * difference.high:+.2f}]"
        how = f"{interval}; {difference.how}"
        yield Finding("", "accuracy_int8", before, after, verdict, difference.p, how=how)


def _network(base: Subject, other: Subject) -> Iterator[Finding]:
    """The same on every board: taken from the first that has it."""
    for column in _OF_NETWORK:
        values = [
            next((value for place in each.rows if (value := each.number(place, column)) is not None), None)
            for each in (base, other)
        ]
        yield from _exact("", column, values[0], values[1])


def _board(base: Subject, other: Subject, place: Place) -> Iterator[Finding]:
    for column in _OF_BOARD:
        before, after = base.number(place, column), other.number(place, column)
        if column not in _MEASURED or before is None or after is None:
            yield from _exact(_name(place), column, before, after)
            continue
        spreads = [each.number(place, f"{column}_2sigma") for each in (base, other)]
        counts = [int(each.number(place, "n") or 0) for each in (base, other)]
        if None in spreads or min(counts) < 2:
            how = "no spread is known: two measurements or more are needed"
            yield Finding(_name(place), column, before, after, "same" if before == after else "noise", how=how)
            continue
        sigmas = [(spread or 0.0) / 2 for spread in spreads]
        p = welch_p(before, sigmas[0], counts[0], after, sigmas[1], counts[1])
        how = f"Welch, n {counts[0]} and {counts[1]}"
        yield Finding(_name(place), column, before, after, "noise", p, (spreads[0], spreads[1]), how)


def _layers(base: Subject, other: Subject, place: Place) -> Iterator[Finding]:
    sides = [_named(each.layers.get(place, [])) for each in (base, other)]
    column = next((name for name in _OF_LAYER if all(side and _all_have(side, name) for side in sides)), None)
    if column is None:
        return
    sigma = _whole_sigma(base, other, place)
    for layer in dict.fromkeys([*sides[0], *sides[1]]):
        where = f"{_name(place)}: {layer}"
        before, after = (number(side.get(layer, {}).get(column)) for side in sides)
        if before is None or after is None or column != "latency_ms":
            yield from (replace(one, is_layer=True) for one in _exact(where, column, before, after))
        elif sigma is None:
            how = "no spread is known"
            yield Finding(where, column, before, after, "same" if before == after else "noise", how=how, is_layer=True)
        else:
            p = math.erfc(abs(after - before) / sigma / math.sqrt(2)) if sigma else float(before == after)
            how = "once each; noise at most that of the whole"
            yield Finding(where, column, before, after, "noise", p, how=how, is_layer=True)


def _whole_sigma(base: Subject, other: Subject, place: Place) -> float | None:
    """Standard deviation of the difference of two single measurements of the whole inference."""
    spreads = [each.number(place, "latency_ms_2sigma") for each in (base, other)]
    if spreads[0] is None or spreads[1] is None:
        return None
    return math.hypot(spreads[0], spreads[1]) / 2


def _corrected(found: Sequence[Finding]) -> list[Finding]:
    """Measured figures are judged together; a pair that is equal to the bit is `same` whatever its p."""
    tested = [index for index, one in enumerate(found) if one.p is not None and one.column != "accuracy_int8"]
    result = list(found)
    for index, p in zip(tested, holm([found[index].p or 0.0 for index in tested]), strict=True):
        one = found[index]
        assert one.base is not None and one.other is not None
        verdict = _verdict(one.column, one.base, one.other, p < ALPHA_MEASURED)
        result[index] = replace(one, p=p, verdict=verdict)
    return result


def _exact(where: str, column: str, before: float | None, after: float | None) -> Iterator[Finding]:
    if before is None and after is None:
        return
    verdict: Verdict = "missing"
    if before is not None and after is not None:
        verdict = _verdict(column, before, after, before != after)
    yield Finding(where, column, before, after, verdict)


def _verdict(column: str, before: float, after: float, is_certain: bool) -> Verdict:
    if before == after:
        return "same"
    if not is_certain:
        return "noise"
    is_more = after > before
    return "better" if is_more == (column == "accuracy_int8") else "worse"


def _places(base: Subject, other: Subject) -> list[Place]:
    return [place for place in base.rows if place in other.rows]


def _name(place: Place) -> str:
    return f"{place[0]} ({place[1]})"


def _named(rows: Sequence[dict[str, str]]) -> dict[str, dict[str, str]]:
    """By name, numbered where two share one."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row.get("name") or row.get("op") or row.get("index", "")
        found[name if name not in found else f"{name} #{row.get('index')}"] = row
    return found


def _all_have(side: dict[str, dict[str, str]], column: str) -> bool:
    return all(number(row.get(column)) is not None for row in side.values())
