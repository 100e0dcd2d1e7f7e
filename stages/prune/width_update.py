"""Learning the widths between training steps: the paper's WidthUpdate (section 'Pruning algorithm', appendix A).

Every group g with C channels has a multiplier pi_g = exp(theta_g), theta_g <= 0, and keeps floor(pi_g * C) channels.
One update lowers theta by  rate * pi * clip(alpha_RES * dP_RES/dpi + alpha_TSK * dP_TSK/dpi, 0, cap)  (chain rule):

  P_TSK   cross-entropy of the masked network on validation clips. Its gradient by the hard masks is turned into one by
          pi with the log-domain sigmoid M(s, s0) = 1 / (1 + s0 / s):  C * sum_j dP/dM_j * d_j / sum_k d_k, where
          d = |dM/ds0| = s / (s + s0)^2. Only its resistance counts: a positive value is taken as 0.
  P_RES   usage / budget - 1 of one objective, chosen among the violated ones as the largest lambda * usage / budget
          with lambda = 1 / Uniform(0, 1); lambda chooses and does not scale.
  focus   when the peak was chosen, only the groups in the bottleneck move.

Gradients use continuous widths, the budgets are tested with whole ones. An update that would take its objective below
the budget is cut short so that it just meets it: P_RES is clipped at 0, and what was over-pruned never comes back. When
all budgets hold, the multipliers rest and only the masks follow the saliences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.graph.resources import ResourceModel, Resources, Usage
from stages.nets.channels import Channels
from stages.nets.config import BudgetConfig
from stages.prune.channels import saliences
from stages.prune.config import PruneConfig
from stages.prune.masks import explicit_forward, top_masks
from stages.prune.seeds import seeded

OBJECTIVES = ("peak_bytes", "size_bytes", "macs")
BISECTIONS = 30
SMALLEST_SALIENCE = 1e-8  # keeps the log-domain sigmoid finite for a gamma of 0


@dataclass
class WidthState:
    """What an update changes; all of it goes into a checkpoint."""

    theta: np.ndarray
    masks: list[Tensor]
    updates: int = 0
    settled: int = 0  # updates since the budgets were met
    reached: bool = False
    alpha_resource: float | None = None  # set by the first update
    alpha_task: float | None = None


@dataclass(frozen=True)
class WidthStep:
    """One update, for the trajectory."""

    widths: tuple[int, ...]
    resources: Resources
    objective: str  # chosen by the scalarisation; 'none' once the budgets hold
    task_loss: float | None  # not computed once the budgets hold
    resource_loss: float
    masks_changed: float  # share of channels whose mask flipped


def width_floor(channels: Channels, config: PruneConfig) -> list[int]:
    """Channels that every group keeps in any case."""
    return [min(config.min_channels, width) for width in channels.widths]


def exceeded(usage: Resources | Usage, budget: BudgetConfig) -> list[str]:
    """The objectives over their budget; one without a budget is never over it."""
    return [name for name in OBJECTIVES if name in budget.limits and getattr(usage, name) > budget.limits[name]]


class WidthUpdate:
    """The pruning algorithm for one network; `state` holds everything that moves."""

    def __init__(self, channels: Channels, config: PruneConfig, budget: BudgetConfig) -> None:
        self.channels, self.config, self.budget = channels, config, budget
        self.model = ResourceModel(channels.graph, budget.runtime)
        self.full = np.array(channels.widths, dtype=float)
        self.floor = np.array(width_floor(channels, config), dtype=float)
        self.state = WidthState(np.zeros(len(self.full)), [torch.ones(width) for width in channels.widths])

    @property
    def is_settled(self) -> bool:
        """Whether the network may be shrunk."""
        return self.state.reached and self.state.settled >= self.config.settle_updates

    def widths(self, theta: np.ndarray | None = None) -> tuple[int, ...]:
        """Whole channels per group."""
        multipliers = np.exp(self.state.theta if theta is None else theta)
        # The small addend keeps exp(log(k / C)) * C from falling to k - 1.
        return tuple(int(width) for width in np.maximum(np.floor(multipliers * self.full + 1e-6), self.floor))

    def update(self, net: nn.Module, x: Tensor, y: Tensor) -> WidthStep:
        """One update with the validation clips `x`, `y`."""
        self.state.updates += 1
        objective, resource_loss = "none", 0.0
        task_loss: float | None = None
        if self.state.reached:
            self.state.settled += 1
        elif not exceeded(self.model.resources(self.widths()), self.budget):
            self.state.reached = True
        else:
            objective, task_loss, resource_loss = self._move(net, x, y)
        changed = self._renew_masks(net)
        widths = self.widths()
        return WidthStep(widths, self.model.resources(widths), objective, task_loss, resource_loss, changed)

    def _move(self, net: nn.Module, x: Tensor, y: Tensor) -> tuple[str, float, float]:
        task_loss, task_gradient = self.task_gradient(net, x, y)
        if self.state.alpha_resource is None:
            self._set_alphas(task_loss, task_gradient)
        assert self.state.alpha_resource is not None and self.state.alpha_task is not None
        objective = self._choose_objective()
        resource_loss, resource_gradient = self.resource_gradient(objective)
        gradient = self.state.alpha_resource * resource_gradient + self.state.alpha_task * np.minimum(task_gradient, 0)
        if objective == "peak_bytes":
            gradient = gradient * (resource_gradient > 0)
        clipped = np.clip(gradient, 0, self.config.gradient_cap)
        self._step(objective, self.config.rate * clipped * np.exp(self.state.theta))
        return objective, task_loss, resource_loss

    def _step(self, objective: str, decrease: np.ndarray) -> None:
        """Lower theta by `decrease`, or by the part of it that just meets the objective's budget."""
        start, lowest = self.state.theta, np.log(self.floor / self.full)

        def after(share: float) -> np.ndarray:
            return np.maximum(start - share * decrease, lowest)

        def over_budget(share: float) -> list[str]:
            return exceeded(self.model.resources(self.widths(after(share))), self.budget)

        enough = 1.0
        if objective not in over_budget(enough):
            too_little = 0.0
            for _ in range(BISECTIONS):
                middle = (too_little + enough) / 2
                is_enough = objective not in over_budget(middle)
                too_little, enough = (too_little, middle) if is_enough else (middle, enough)
        self.state.theta = after(enough)
        self.state.reached = not over_budget(enough)

    def task_gradient(self, net: nn.Module, x: Tensor, y: Tensor) -> tuple[float, np.ndarray]:
        """P_TSK and its gradient by every multiplier, in eval mode: an update must not touch the running statistics."""
        masks = [mask.clone().requires_grad_() for mask in self.state.masks]
        was_training = net.training
        net.eval()
        loss = F.cross_entropy(explicit_forward(self.channels, masks, x), y)
        by_mask = torch.autograd.grad(loss, masks)
        net.train(was_training)
        gradient = [
            multiplier_gradient(slope, salience, width)
            for slope, salience, width in zip(by_mask, saliences(net, self.channels), self.widths(), strict=True)
        ]
        return float(loss.detach()), np.array(gradient)

    def resource_gradient(self, objective: str) -> tuple[float, np.ndarray]:
        """P_RES of one objective and its gradient by every multiplier, at continuous widths."""
        widths = (np.exp(self.state.theta) * self.full).tolist()
        limit = self.budget.limits[objective]
        loss = getattr(self.model.usage(widths), objective) / limit - 1
        return float(loss), getattr(self.model.gradients(widths), objective) * self.full / limit

    def _choose_objective(self) -> str:
        usage = self.model.resources(self.widths())
        generator = seeded(self.config.seed, "objective", self.state.updates)
        draws = 1 / torch.rand(len(OBJECTIVES), generator=generator, dtype=torch.float64).clamp_min(1e-9)
        weight = {
            name: float(draw) * getattr(usage, name) / self.budget.limits[name]
            for name, draw in zip(OBJECTIVES, draws, strict=True)
            if name in self.budget.limits
        }
        return max(exceeded(usage, self.budget), key=weight.__getitem__)

    def _set_alphas(self, task_loss: float, task_gradient: np.ndarray) -> None:
        """alpha_RES brings the worst objective's first gradients to the cap; alpha_TSK follows the configured rule."""
        losses = [self.resource_gradient(name) for name in OBJECTIVES if name in self.budget.limits]
        worst_loss, worst_gradient = max(losses, key=lambda found: found[0])
        self.state.alpha_resource = self.config.gradient_cap / float(worst_gradient[worst_gradient > 0].mean())
        if self.config.alpha_rule == "initial_losses":
            self.state.alpha_task = (
                self.state.alpha_resource * self.config.task_weight * worst_loss / max(task_loss, 1e-6)
            )
        else:
            slope = max(float(np.abs(task_gradient).mean()), 1e-9)
            self.state.alpha_task = self.config.task_weight * self.config.gradient_cap / slope

    def _renew_masks(self, net: nn.Module) -> float:
        before = self.state.masks
        self.state.masks = top_masks(saliences(net, self.channels), self.widths())
        flipped = sum(int((old != new).sum()) for old, new in zip(before, self.state.masks, strict=True))
        return flipped / int(self.full.sum())


def multiplier_gradient(by_mask: Tensor, salience: Tensor, width: int) -> float:
    """dP/dpi of a group from dP/dM of its channels: the log-domain sigmoid with its threshold at the last kept one."""
    values = salience.double().clamp_min(SMALLEST_SALIENCE)
    threshold = torch.sort(values, descending=True).values[width - 1]
    slope = values / (values + threshold) ** 2
    return len(values) * float((by_mask.double() * slope).sum() / slope.sum())


def smallest_reachable(channels: Channels, config: PruneConfig, budget: BudgetConfig) -> Resources:
    """What the network needs with every group at its floor: no pruning goes below."""
    floor: Sequence[int] = width_floor(channels, config)
    return ResourceModel(channels.graph, budget.runtime).resources(floor)
