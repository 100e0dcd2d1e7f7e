"""The budgets that pruning looks at, as functions of the widths (paper, section 'Pruning objectives').

Whole widths are tested against the budgets; gradients are taken at continuous ones. With `peak: imprecise` the peak is
the bound of earlier work throughout, so a network that holds its budget here may break it on the device. Budgets of the
firmware (latency, energy, flash, RAM) are stairs: their gradient is the slope over a step, the test exact (`device`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import ConfigError
from stages.graph.memory.resources import ResourceModel, Resources
from stages.nets.channels import Channels
from stages.nets.config import BudgetConfig
from stages.prune.config import OBJECTIVES, PruneConfig
from stages.prune.device import DeviceCosts

MOST_REMEMBERED = 10_000  # widths; a bisection asks for the same few again and again


@dataclass(frozen=True, eq=False)
class ResourceLoss:
    """P_RES, the objectives in it, and its gradient by every width multiplier."""

    loss: float
    gradient: np.ndarray
    objectives: tuple[str, ...]


class Objectives:
    """Usage / budget - 1 of size, peak, MACs and what the firmware takes on its boards, for one network."""

    def __init__(self, channels: Channels, config: PruneConfig, budget: BudgetConfig) -> None:
        known: dict[str, float] = {name: budget.limits[name] for name in config.objectives if name in budget.limits}
        self.device = DeviceCosts(channels, budget) if budget.device_limits else None
        self.limits = known | ({} if self.device is None else {n: e.limit for n, e in self.device.limits.items()})
        if not self.limits:
            raise ConfigError(
                f"prune.objectives: found {', '.join(config.objectives)}, none of which has a budget; "
                f"there is one for {', '.join(budget.limits)}"
            )
        self._figures = {name: name for name in known}
        if config.peak == "imprecise" and "peak_bytes" in known:
            self._figures["peak_bytes"] = "peak_bytes_imprecise"
        self._model = ResourceModel(channels.graph, budget.runtime)
        self._full = np.array(channels.widths, dtype=float)
        self._known: dict[tuple[int, ...], Resources] = {}
        self._quick: dict[tuple[int, ...], dict[str, float]] = {}
        self._is_exact = True

    def estimated(self) -> Objectives:
        """The same, but the firmware's budgets are tested by their quick costs: to look ahead."""
        other = copy.copy(self)
        other._is_exact = False
        return other

    def resources(self, widths: Sequence[int]) -> Resources:
        """What the network needs with these widths."""
        key = tuple(widths)
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._model.resources(key)
        return self._known[key]

    def used(self, name: str, widths: Sequence[int]) -> float:
        """Usage of one resource, as this run sees it."""
        if name not in self._figures:
            return self._device_quick(widths)[name]
        value = getattr(self.resources(widths), self._figures[name])
        assert isinstance(value, int)
        return value

    def used_exactly(self, name: str, widths: Sequence[int]) -> float | None:
        """The same from the compiled firmware; None where that does not fit its board."""
        if name in self._figures:
            return self.used(name, widths)
        assert self.device is not None
        found = self.device.exact(widths)
        return None if found is None else found[name]

    def exceeded(self, widths: Sequence[int], *, exactly: bool = False) -> tuple[str, ...]:
        """The objectives over their budgets; the exact cost is asked where nothing else speaks against the widths.

        `exactly`: it alone, without the quick cost and the tables that it needs.
        """
        names = self._figures if exactly else self.limits
        over = tuple(name for name in names if self.used(name, widths) > self.limits[name])
        if over or self.device is None or not self._is_exact:
            return over
        return self.device.exceeded(widths)

    def prepare(self, many: Iterable[Sequence[int]]) -> None:
        """These widths are to be tested."""
        if self.device is not None:
            self.device.prepare(many)

    def corrections(self, widths: Sequence[int]) -> Mapping[str, float]:
        """What is to be added to the quick costs so that they are exact here."""
        if self.device is None:
            return {}
        exact, quick = self.device.exact(widths), self._device_quick(widths)
        return {} if exact is None else {name: exact[name] - quick[name] for name in quick}

    def shares(self, widths: Sequence[int], corrections: Mapping[str, float]) -> dict[str, float]:
        """Usage over budget, by objective."""
        return {
            name: (self.used(name, widths) + corrections.get(name, 0.0)) / limit for name, limit in self.limits.items()
        }

    def loss(self, names: Sequence[str], multipliers: np.ndarray) -> ResourceLoss:
        """The sum of usage / budget - 1 over the named objectives, at continuous widths."""
        widths = (multipliers * self._full).tolist()
        usage, gradients = self._model.usage(widths), self._model.gradients(widths)
        whole = tuple(max(1, int(width + 1e-6)) for width in widths)
        slopes = {} if self.device is None or set(names) <= set(self._figures) else self.device.gradients(whole)
        loss, gradient = 0.0, np.zeros(len(self._full))
        for name in names:
            limit = self.limits[name]
            if name in self._figures:
                figure = self._figures[name]
                loss += getattr(usage, figure) / limit - 1
                gradient += getattr(gradients, figure) * self._full / limit
            else:
                loss += self._device_quick(whole)[name] / limit - 1
                gradient += slopes[name] * self._full / limit
        return ResourceLoss(loss, gradient, tuple(names))

    def _device_quick(self, widths: Sequence[int]) -> dict[str, float]:
        key = tuple(widths)
        if key not in self._quick:
            if len(self._quick) >= MOST_REMEMBERED:
                self._quick.clear()
            assert self.device is not None
            self._quick[key] = self.device.quick(key)
        return self._quick[key]


def exceeded(used: Resources, budget: BudgetConfig) -> list[str]:
    """The budgets that a network truly breaks, whatever the run looked at; one that is not given is never broken."""
    return [name for name in OBJECTIVES if name in budget.limits and getattr(used, name) > budget.limits[name]]
