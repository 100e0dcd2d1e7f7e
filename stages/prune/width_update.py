"""Learning the widths between training steps: the paper's WidthUpdate (section 'Pruning algorithm', appendix A).

Every group g with C channels has a multiplier pi_g = exp(theta_g), theta_g <= 0, and keeps floor(pi_g * C) channels.
One update lowers theta by  rate * pi * clip(alpha_RES * dP_RES/dpi + alpha_TSK * dP_TSK/dpi, 0, cap)  (chain rule):

  P_TSK   cross-entropy of the masked network on validation clips, see `task_loss`. Only its resistance counts: a
          positive gradient is taken as 0. Alone (`losses: task`) only the positive ones count, as in the paper's
          ablation: they are then all that can shrink a layer.
  P_RES   usage / budget - 1 of one objective, chosen among the violated ones as the largest lambda * usage / budget
          with lambda = 1 / Uniform(0, 1); lambda chooses and does not scale. Or the sum over the violated ones.
  focus   only groups with dP_RES/dpi > 0 move: when the peak was chosen, those in the bottleneck.

Gradients use continuous widths, the budgets are tested with whole ones. An update that would take its objective below
the budget is cut short so that it just meets it: P_RES is clipped at 0, and what was over-pruned never comes back. When
all budgets hold, the multipliers rest and only the masks follow the saliences.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.graph.memory.resources import Resources
from stages.nets.channels import Channels
from stages.nets.config import BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.give_back import given_back
from stages.prune.objectives import Objectives, ResourceLoss
from stages.prune.signal.masks import saliences, top_masks
from stages.prune.signal.task_loss import Loss, TaskLoss, task_loss
from stages.prune.widths import WidthRule
from stages.training.determinism import seeded

BISECTIONS = 30


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
    given_back: int = 0  # channels, when the budgets were met


@dataclass(frozen=True, eq=False)
class Move:
    """What one update followed: losses, and the mean pull of each on a width multiplier, alphas included."""

    objective: str  # chosen by the scalarisation, joined by '+' in a sum; 'task' without one
    task_loss: float | None
    resource_loss: float
    task_pull: float | None
    resource_pull: float


@dataclass(frozen=True)
class WidthStep:
    """One update, for the trajectory."""

    widths: tuple[int, ...]
    resources: Resources
    move: Move | None  # None once the budgets hold
    masks_changed: float  # share of channels whose mask flipped


class WidthUpdate:
    """The pruning algorithm for one network; `state` holds everything that moves."""

    def __init__(
        self, channels: Channels, config: PruneConfig, budget: BudgetConfig, loss: Loss = F.cross_entropy
    ) -> None:
        self.channels, self.config, self.loss = channels, config.with_usual_pace(), loss
        self.objectives = Objectives(channels, config, budget)
        self.rule = WidthRule(channels, config)
        self._most_moves: int | None = None
        device = next(channels.module.parameters()).device
        masks = [torch.ones(width, device=device) for width in channels.widths]
        self.state = WidthState(np.zeros(len(self.rule.full)), masks)

    @property
    def is_settled(self) -> bool:
        """Whether the network may be shrunk."""
        settled = self.state.reached and self.state.settled >= self.config.settle_updates
        return settled and self.config.early_termination

    def widths(self, theta: np.ndarray | None = None) -> tuple[int, ...]:
        """Whole channels per group."""
        return self.rule.whole(np.exp(self.state.theta if theta is None else theta))

    def update(self, net: nn.Module, x: Tensor, y: Tensor, left: int | None = None) -> WidthStep:
        """One update with the validation clips `x`, `y`; with this one, `left` are still to come.

        When there is just time enough for what the resources ask for, the task no longer resists: budgets are met.
        """
        self.state.updates += 1
        move: Move | None = None
        if self.state.reached:
            self.state.settled += 1
        elif not self.objectives.exceeded(self.widths()):
            self.state.reached = True
        else:
            uses_task = self.config.losses == "task" or (self.config.losses == "both" and not self._hurries(left))
            task = self.task_loss(net, x, y) if uses_task else None
            move = self._move(task)
            if self.state.reached and self.objectives.device is not None:
                self._give_back(task)
        changed = self._renew_masks(net)
        widths = self.widths()
        return WidthStep(widths, self.objectives.resources(widths), move, changed)

    def task_loss(self, net: nn.Module, x: Tensor, y: Tensor) -> TaskLoss:
        """P_TSK and its gradient by every multiplier; FloatingPointError unless all of it is finite."""
        found = task_loss(net, self.channels, self.state.masks, (x, y), self.config.task_slope, self.loss)
        if not np.isfinite([found.loss, *found.gradient]).all():
            raise FloatingPointError(f"P_TSK is {found.loss}, its largest gradient {np.abs(found.gradient).max()}")
        return found

    def resource_loss(self, *names: str) -> ResourceLoss:
        """P_RES of the named objectives and its gradient by every multiplier."""
        return self.objectives.loss(names, np.exp(self.state.theta))

    def _hurries(self, left: int | None) -> bool:
        """Whether the updates that are left just suffice without the task's resistance."""
        if left is None:
            return False
        if self._most_moves is None:
            self._most_moves = 2 * self.moves_needed(left) + 10  # from any later place it is nearer
        # A little earlier than at the last moment: other draws may choose another objective.
        return left <= self._most_moves and left <= 1.1 * self.moves_needed(left + 1) + 2

    def moves_needed(self, limit: int, rate: float | None = None) -> int:
        """How many updates from here take the widths to the budgets, by resources alone; `limit` if as many or more."""
        return self._walked(limit, rate)[0]

    def by_resources(self, limit: int) -> tuple[int, ...]:
        """The widths at which they arrive."""
        return self._walked(limit)[1]

    def _walked(self, limit: int, rate: float | None = None) -> tuple[int, tuple[int, ...]]:
        trial = copy.copy(self)
        trial.objectives = self.objectives.estimated()
        trial.config = self.config.model_copy(update={"losses": "resource"} | ({} if rate is None else {"rate": rate}))
        trial.state = replace(self.state, reached=not trial.objectives.exceeded(self.widths()))
        moves = 0
        while not trial.state.reached and moves < limit:
            trial.state.updates += 1
            trial._move(None)
            moves += 1
        return moves, trial.widths()

    def _give_back(self, task: TaskLoss | None) -> None:
        """What is left of the budgets, to the groups where the task wants it most."""
        before = self.widths()
        found = given_back(self.rule, self.objectives, before, None if task is None else task.gradient)
        self.state.theta = np.log(np.array(found) / self.rule.full)
        self.state.given_back = sum(found) - sum(before)
        assert self.widths() == found

    def _move(self, task: TaskLoss | None) -> Move:
        if self.config.losses == "task":
            assert task is not None
            return self._move_by_task(task)
        resource = self.resource_loss(*self._chosen())
        self._set_alphas(task, resource)
        assert self.state.alpha_resource is not None
        pull = self.state.alpha_resource * resource.gradient
        resistance = np.zeros(len(pull))
        if task is not None:
            assert self.state.alpha_task is not None
            resistance = self.state.alpha_task * np.minimum(task.gradient, 0)
        gradient = np.where(resource.gradient > 0, pull + resistance, 0.0)
        driving = set(resource.objectives)
        self._step(gradient, enough=lambda left: not driving <= set(left))
        return Move(
            objective="+".join(resource.objectives),
            task_loss=None if task is None else task.loss,
            resource_loss=resource.loss,
            task_pull=None if task is None else float(resistance.mean()),
            resource_pull=float(pull.mean()),
        )

    def _move_by_task(self, task: TaskLoss) -> Move:
        """The paper's ablation without P_RES; the budgets only say when to stop."""
        if self.state.alpha_task is None or self.config.alpha_rule == "every_gradient":
            self.state.alpha_task = _first(self.config.alpha_task, self._alpha_at_cap(task.gradient))
        pull = self.state.alpha_task * np.maximum(task.gradient, 0)
        self._step(pull, enough=lambda left: not left)
        return Move("task", task.loss, 0.0, float(pull.mean()), 0.0)

    def _step(self, gradient: np.ndarray, enough: Callable[[tuple[str, ...]], bool]) -> None:
        """Lower theta by the clipped gradient, or by the least part of it that is already `enough`."""
        start, lowest = self.state.theta, np.log(self.rule.floor / self.rule.full)
        assert self.config.rate is not None
        decrease = self.config.rate * np.clip(gradient, 0, self.config.gradient_cap) * np.exp(start)

        def after(share: float) -> np.ndarray:
            return np.maximum(start - share * decrease, lowest)

        judge = self.objectives if self.objectives.device is None else self.objectives.estimated()

        def is_enough(share: float) -> bool:
            return enough(judge.exceeded(self.widths(after(share))))

        share = 1.0
        # Where the quick costs already think that it is enough, and the exact ones do not, the whole step is taken.
        if is_enough(share) and (self.objectives.device is None or not is_enough(0.0)):
            too_little = 0.0
            for _ in range(BISECTIONS):
                middle = (too_little + share) / 2
                too_little, share = (too_little, middle) if is_enough(middle) else (middle, share)
        self.state.theta = after(share)
        self.state.reached = not self.objectives.exceeded(self.widths())

    def _chosen(self) -> tuple[str, ...]:
        """The objectives that this update follows, of those over their budgets."""
        widths = self.widths()
        violated = self.objectives.exceeded(widths)
        if self.config.scalarisation == "sum":
            return violated
        generator = seeded(self.config.seed, "objective", self.state.updates)
        limits = self.objectives.limits
        draws = 1 / torch.rand(len(limits), generator=generator, dtype=torch.float64).clamp_min(1e-9)
        weight = {
            name: float(draw) * self.objectives.used(name, widths) / limit
            for (name, limit), draw in zip(limits.items(), draws, strict=True)
        }
        return (max(violated, key=weight.__getitem__),)

    def _set_alphas(self, task: TaskLoss | None, resource: ResourceLoss) -> None:
        """alpha_RES brings the worst objective's first gradients to the cap; alpha_TSK follows the configured rule."""
        rule, state = self.config.alpha_rule, self.state
        if state.alpha_resource is not None and rule != "every_gradient":
            return
        if rule != "every_gradient":
            resource = self._initial_resource_loss()
        state.alpha_resource = _first(self.config.alpha_resource, self._alpha_at_cap(resource.gradient))
        if task is None:
            return
        if rule == "initial_losses":
            by_rule = state.alpha_resource * self.config.task_weight * resource.loss / max(task.loss, 1e-6)
        else:
            by_rule = self.config.task_weight * self._alpha_at_cap(task.gradient)
        state.alpha_task = _first(self.config.alpha_task, by_rule)

    def _initial_resource_loss(self) -> ResourceLoss:
        """P_RES before any draw: of the worst objective, or the sum."""
        if self.config.scalarisation == "sum":
            return self.resource_loss(*self.objectives.exceeded(self.widths()))
        return max((self.resource_loss(name) for name in self.objectives.limits), key=lambda found: found.loss)

    def _alpha_at_cap(self, gradient: np.ndarray) -> float:
        """What brings the mean of the gradients that are not 0 to the cap."""
        size = np.abs(gradient[gradient != 0])
        return self.config.gradient_cap / max(float(size.mean()) if len(size) else 0.0, 1e-9)

    def _renew_masks(self, net: nn.Module) -> float:
        before = self.state.masks
        self.state.masks = top_masks(saliences(net, self.channels), self.widths())
        flipped = sum(int((old != new).sum()) for old, new in zip(before, self.state.masks, strict=True))
        return flipped / int(self.rule.full.sum())


def _first(configured: float | None, by_rule: float) -> float:
    return by_rule if configured is None else configured
