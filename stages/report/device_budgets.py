"""Budgets of the firmware on its boards: what was allowed, what pruning predicted, and what was found, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.report.figures import BoardFigures, NetworkFigures

_TITLES = {"latency_ms": ("latency", "ms"), "energy_mj": ("energy", "mJ"), "flash_bytes": ("flash", "B")}
_TITLES["ram_bytes"] = ("RAM", "B")


@dataclass(frozen=True)
class DeviceBound:
    """One budget on one board."""

    board: str
    title: str
    unit: str
    allowed: float
    predicted: float | None
    found: float | None  # None: the board was not part of the run
    how: str  # measured, modelled, counted

    @property
    def holds(self) -> bool:
        return self.found is None or self.found <= self.allowed

    @property
    def cells(self) -> list[str]:
        found = "-" if self.found is None else f"{self._number(self.found)} {self.unit}, {self.how}"
        predicted = "-" if self.predicted is None else f"{self._number(self.predicted)} {self.unit}"
        verdict = "" if self.found is None else "holds" if self.holds else "exceeded"
        return [f"{self.title} on {self.board}", f"{self._number(self.allowed)} {self.unit}", predicted, found, verdict]

    def _number(self, value: float) -> str:
        return f"{value:,.0f}" if self.unit == "B" else f"{value:,.3f}"


def device_bounds(network: NetworkFigures, boards: Sequence[BoardFigures]) -> list[DeviceBound]:
    """In the order of the budgets; none where there are none."""
    return list(_bounds(network, {figures.board: figures for figures in boards}))


def _bounds(network: NetworkFigures, boards: dict[str, BoardFigures]) -> Iterator[DeviceBound]:
    for board, limits in network.device.get("budget", {}).items():
        predicted = network.device["predicted"].get(board, {})
        for objective, allowed in limits.items():
            title, unit = _TITLES[objective]
            found, how = _found(objective, boards.get(board))
            yield DeviceBound(board, title, unit, allowed, predicted.get(objective), found, how)


def _found(objective: str, figures: BoardFigures | None) -> tuple[float | None, str]:
    if figures is None:
        return None, ""
    if objective in ("flash_bytes", "ram_bytes"):
        return getattr(figures, objective), "linked"
    measured = getattr(figures, objective)
    if measured is not None:
        return measured.mean, "measured"
    return getattr(figures, f"{objective}_modelled"), "modelled"
