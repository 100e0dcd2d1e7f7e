"""`--fail-on "latency_ms > 2%"`: an expression over the changes of a comparison -> those that break it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.errors import ConfigError
from stages.tools.comparison.findings import Finding

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SHAPE = re.compile(r"\s*(layers\.)?([a-z_0-9]+)\s*(>=|<=|>|<)\s*([-+]?[0-9.]+(?:e-?\d+)?)\s*(%?)\s*")
_MODELLED = "_modelled"


@dataclass(frozen=True)
class Limit:
    """A column and how far it may move: by a share of the base (%), or by an amount."""

    text: str
    column: str
    of_layers: bool
    compare: Callable[[float, float], bool]
    amount: float
    is_share: bool

    def broken_by(self, found: Sequence[Finding]) -> list[Finding]:
        """Changes beyond the limit that are more than noise; raises if nothing was compared that it speaks of.

        On a twin a time is modelled only: `latency_ms` then means the modelled one.
        """
        for column in (self.column, f"{self.column}{_MODELLED}"):
            meant = [one for one in found if one.column == column and one.is_layer == self.of_layers]
            if any(one.base is not None and one.other is not None for one in meant):
                return [one for one in meant if one.verdict == "missing" or (one.is_certain and self._is_beyond(one))]
        known = ", ".join(dict.fromkeys(f"{'layers.' * one.is_layer}{one.column}" for one in found))
        raise ConfigError(f"--fail-on {self.text!r}: both sides have no {self.column}; they have {known}")

    def _is_beyond(self, one: Finding) -> bool:
        assert one.base is not None and one.other is not None
        moved = one.change if self.is_share else one.other - one.base
        return moved is None or self.compare(moved, self.amount)


def parse_limit(text: str) -> Limit:
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ConfigError(f"--fail-on {text!r}: needed such as 'latency_ms > 2%' or 'accuracy_int8 < -0.01'")
    layers, column, sign, amount, percent = match.groups()
    try:
        value = float(amount) / (100 if percent else 1)
    except ValueError as error:
        raise ConfigError(f"--fail-on {text!r}: found {amount!r}, needed a number") from error
    return Limit(text.strip(), column, layers is not None, _OPERATORS[sign], value, bool(percent))
