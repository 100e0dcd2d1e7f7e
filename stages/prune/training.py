"""Training with pruning in between: the network starts wide, loses channels until it meets the budgets, is rebuilt
small, and trains on at the lower cost (paper, 'Early termination').

Refused: a budget that no width can meet (ConfigError, before training), a loss that is not finite, budgets not met by
the last epoch (StageError; a study that was told not to look at them goes on).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import nn

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Checkpoint, Progress
from stages.nets.channels import Channels, find_channels
from stages.nets.registry import Architecture, architecture_of
from stages.prune.objectives import Objectives, exceeded
from stages.prune.run import PruningRun, started
from stages.prune.task import Task
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthUpdate
from stages.prune.widths import WidthRule
from stages.training import loop
from stages.training.determinism import reproducible

# What lets layers become narrower, the smallest change first.
_LOOSENED = {
    "prune.min_channels": {"min_channels": 1},
    "prune.channel_multiple": {"channel_multiple": 1},
    "prune.channel_multiple and prune.min_channels": {"channel_multiple": 1, "min_channels": 1},
}


@dataclass(frozen=True, eq=False)
class Trained:
    """The pruned network and how it came about."""

    net: nn.Module
    architecture: Architecture
    unpruned: Channels
    pruned: Channels
    trajectory: tuple[TrajectoryRow, ...]
    losses: tuple[float, ...]  # of each epoch
    accuracies: tuple[float, ...]  # on the validation examples, behind each epoch
    macs_trained_relative: float  # computation spent, P_TSK included, over training the unpruned network for as long
    validation_accuracy: float
    test_accuracy: float


def train(task: Task, progress: Progress, checkpoint: Checkpoint) -> Trained:
    """Train, prune, shrink, train on."""
    with reproducible(task.config.threads, task.device.type):
        unpruned = find_channels(task.build(), task.network.input_shape)
        refuse_unreachable(task, unpruned)
        run = loop.train(task.recipe, partial(started, task), task.batches, progress, checkpoint)
        if run.pruning is not None:
            _refuse_missed_budgets(task, run.pruning)
            run.shrink(run.pruning)
        return _result(task, run, unpruned)


def refuse_unreachable(task: Task, channels: Channels) -> None:
    """ConfigError for a budget below what the narrowest network needs."""
    objectives = Objectives(channels, task.config, task.budget)
    smallest = WidthRule(channels, task.config).smallest
    for name in objectives.exceeded(smallest):
        unit = "" if name == "macs" else " B"
        wanted, reachable = task.budget.limits[name], f"{objectives.used(name, smallest)}{unit}"
        way_out = f"raise the budget to at least {reachable}"
        for keys, loosened in _LOOSENED.items():
            least = objectives.used(name, WidthRule(channels, task.config.model_copy(update=loosened)).smallest)
            if wanted >= least:
                way_out += f" or lower {keys} (1 needs {least}{unit})"
                break
        raise ConfigError(
            f"budget.{name}: {wanted}{unit} cannot be met, {task.network.title} with {_narrowest(smallest)} "
            f"needs {reachable}; {way_out}"
        )


def _narrowest(smallest: tuple[int, ...]) -> str:
    if not smallest:
        return "no layer that can be pruned (their channels are the classes, or are tied to the network's input)"
    width = max(smallest)
    return f"{width} channel{'s' if width > 1 else ''} in every layer"


def _refuse_missed_budgets(task: Task, pruning: WidthUpdate) -> None:
    left = pruning.objectives.resources(pruning.widths())
    missed = [
        f"{name} is {getattr(left, name)}, needed {getattr(task.budget, name)}" for name in exceeded(left, task.budget)
    ]
    if missed and not task.config.may_miss(task.budget.limits):
        way_out = f"raise prune.epochs (now {task.config.epochs}) or prune.rate (now {task.config.rate:g})"
        if not pruning.state.updates:
            way_out = f"lower prune.start_step (now {task.config.start_step}) or prune.update_every"
        raise StageError(
            f"prune: budgets not met after {task.config.epochs} epochs and {pruning.state.updates} updates: "
            f"{', '.join(missed)}; {way_out}"
        )


def _result(task: Task, run: PruningRun, unpruned: Channels) -> Trained:
    trained_unpruned = unpruned.resources.macs * task.config.epochs * task.recipe.steps_per_epoch * task.batch
    return Trained(
        net=run.net.eval(),
        architecture=architecture_of(task.network, run.widths),
        unpruned=unpruned,
        pruned=run.channels,
        trajectory=tuple(run.rows),
        losses=tuple(run.losses),
        accuracies=tuple(run.accuracies),
        macs_trained_relative=run.macs_trained / trained_unpruned,
        validation_accuracy=task.accuracy(run.net, run.forward, task.examples.validation),
        test_accuracy=task.accuracy(run.net, run.forward, task.examples.test),
    )
