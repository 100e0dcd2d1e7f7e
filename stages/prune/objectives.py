"""The budgets that pruning looks at, as functions of the widths (paper, section 'Pruning objectives').

Whole widths are tested against the budgets; gradients are taken at continuous ones. With `peak: imprecise` the peak is
the bound of earlier work throughout, so a network that holds its budget here may break it on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import ConfigError
from stages.graph.memory.resources import ResourceModel, Resources
from stages.nets.channels import Channels
from stages.nets.config import BudgetConfig
from stages.prune.config import OBJECTIVES, PruneConfig

MOST_REMEMBERED = 10_000  # widths; a bisection asks for the same few again and again


@dataclass(frozen=True, eq=False)
class ResourceLoss:
    """P_RES, the objectives in it, and its gradient by every width multiplier."""

    loss: float
    gradient: np.ndarray
    objectives: tuple[str, ...]


class Objectives:
    """Usage / budget - 1 of size, peak and MACs for one network."""

    def __init__(self, channels: Channels, config: PruneConfig, budget: BudgetConfig) -> None:
        self.limits = {name: budget.limits[name] for name in config.objectives if name in budget.limits}
        if not self.limits:
            raise ConfigError(
                f"prune.objectives: found {', '.join(config.objectives)}, none of which has a budget; "
                f"there is one for {', '.join(budget.limits)}"
            )
        self._figures = {name: name for name in self.limits}
        if config.peak == "imprecise" and "peak_bytes" in self.limits:
            self._figures["peak_bytes"] = "peak_bytes_imprecise"
        self._model = ResourceModel(channels.graph, budget.runtime)
        self._full = np.array(channels.widths, dtype=float)
        self._known: dict[tuple[int, ...], Resources] = {}

    def resources(self, widths: Sequence[int]) -> Resources:
        """What the network needs with these widths."""
        key = tuple(widths)
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[key] = self._model.resources(key)
        return self._known[key]

    def used(self, name: str, widths: Sequence[int]) -> int:
        """Usage of one resource, as this run sees it."""
        value = getattr(self.resources(widths), self._figures[name])
        assert isinstance(value, int)
        return value

    def exceeded(self, widths: Sequence[int]) -> tuple[str, ...]:
        """The objectives over their budgets."""
        return tuple(name for name, limit in self.limits.items() if self.used(name, widths) > limit)

    def loss(self, names: Sequence[str], multipliers: np.ndarray) -> ResourceLoss:
        """The sum of usage / budget - 1 over the named objectives, at continuous widths."""
        widths = (multipliers * self._full).tolist()
        usage, gradients = self._model.usage(widths), self._model.gradients(widths)
        loss, gradient = 0.0, np.zeros(len(self._full))
        for name in names:
            figure, limit = self._figures[name], self.limits[name]
            loss += getattr(usage, figure) / limit - 1
            gradient += getattr(gradients, figure) * self._full / limit
        return ResourceLoss(loss, gradient, tuple(names))


def exceeded(used: Resources, budget: BudgetConfig) -> list[str]:
    """The budgets that a network truly breaks, whatever the run looked at; one that is not given is never broken."""
    return [name for name in OBJECTIVES if name in budget.limits and getattr(used, name) > budget.limits[name]]
