"""Budgets of the firmware on its boards as objectives of pruning: latency, energy, flash and RAM.

The compiler's cost room is known by name only (`stages.nets.config.COST_MODULE`): a run without such a budget does not
depend on the compiler. Directions and steps follow the quick cost; whether budgets hold is decided by the exact one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import StageError
from stages.nets.channels import Channels
from stages.nets.config import COST_MODULE, BudgetConfig

RESERVE = 1e-3  # of latency and energy: trained weights lie and clip a little otherwise than those that were priced
SHARES = np.linspace(1.0, 0.05, 39)  # of all channels, at which an anchor is looked for


@dataclass(frozen=True)
class DeviceLimit:
    """One budget."""

    board: str
    objective: str  # latency_ms, energy_mj, flash_bytes, ram_bytes
    limit: float


class DeviceCosts:
    """The firmware's budgets for one network, by the name of the objective."""

    def __init__(self, channels: Channels, budget: BudgetConfig) -> None:
        several = len(budget.device_limits) > 1
        self.limits = {
            f"{board}.{objective}" if several else objective: DeviceLimit(board, objective, limit)
            for board, limits in budget.device_limits.items()
            for objective, limit in limits.items()
        }
        module = importlib.import_module(COST_MODULE)
        self._full = np.array(channels.widths)
        self._cost: Any = module.network_cost(
            channels.graph, channels.widths, list(budget.device_limits), budget.firmware
        )
        self._wanted = tuple(dict.fromkeys(each.objective for each in self.limits.values()))
        self._is_anchored = False

    def quick(self, widths: Sequence[int]) -> dict[str, float]:
        """By name of the objective."""
        self._set_anchor()
        found = self._cost.quick(widths, self._wanted)
        return {name: float(found[each.board][each.objective]) for name, each in self.limits.items()}

    def gradients(self, widths: Sequence[int]) -> dict[str, np.ndarray]:
        """By the width of every group, per channel."""
        self._set_anchor()
        found = self._cost.gradients(widths, self._wanted)
        return {name: found[each.board][each.objective] for name, each in self.limits.items()}

    def exact(self, widths: Sequence[int]) -> dict[str, float] | None:
        """What budgets are held against; None where the firmware does not fit a board at all."""
        try:
            found = self._cost.exact(widths)
        except StageError:
            return None
        used = {name: getattr(found[each.board], each.objective) for name, each in self.limits.items()}
        return {
            name: value * (1 + RESERVE) if self.limits[name].objective in ("latency_ms", "energy_mj") else value
            for name, value in used.items()
        }

    def latency_ms(self, widths: Sequence[int]) -> dict[str, float]:
        """By board, exactly; also of firmware that outgrows the board's flash."""
        found: dict[str, float] = self._cost.latency_ms(widths)
        return found

    def figures(self, widths: Sequence[int]) -> dict[str, dict[str, float]]:
        """All that is known of each board, exactly: what a report sets beside what was measured."""
        return {
            board: {
                "latency_ms": round(cost.latency_ms, 4),
                "energy_mj": round(cost.energy_mj, 4),
                "flash_bytes": cost.flash_bytes,
                "ram_bytes": cost.ram_bytes,
                "cycles": round(cost.cycles),
            }
            for board, cost in self._cost.exact(widths).items()
        }

    def exceeded(self, widths: Sequence[int]) -> tuple[str, ...]:
        """By the exact cost."""
        found = self.exact(widths)
        return tuple(self.limits) if found is None else self.over(found)

    def over(self, used: dict[str, float]) -> tuple[str, ...]:
        return tuple(name for name, each in self.limits.items() if used[name] > each.limit)

    def prepare(self, many: Iterable[Sequence[int]]) -> None:
        """These widths will be asked for exactly."""
        self._cost.prepare(many)

    def _set_anchor(self) -> None:
        """Where all layers are scaled alike and the budgets just hold, as far as the tables alone can tell."""
        if self._is_anchored:
            return
        self._is_anchored = True
        places = [tuple(int(n) for n in np.maximum(1, self._full * share)) for share in SHARES]
        fitting = [place for place in places if not self.over(self.quick(place))] or places[-1:]
        for place in fitting:
            if self.exact(place) is not None:
                self._cost.anchor(place)
                return
