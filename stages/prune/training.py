"""Training with pruning in between: the network starts wide, loses channels until it meets the budgets, is rebuilt
small, and trains on at the lower cost (paper, 'Early termination').

After every epoch the whole state is checkpointed; a run that continues from there ends with the same bytes as one that
was never interrupted. Refused: a budget that no width can meet (ConfigError, before training), a loss that is not
finite, budgets not met by the last epoch (StageError).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Checkpoint, Progress
from stages.graph.resources import Resources
from stages.nets.channels import Channels, find_channels
from stages.nets.registry import Architecture, architecture_of
from stages.prune.examples import augmented
from stages.prune.masks import first_broken_layer
from stages.prune.recipe import Task, accuracy, channels_last, reproducible
from stages.prune.run_state import Run, fresh_run, resumed_run, save_run
from stages.prune.seeds import derived_seed, seeded
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthUpdate, exceeded, smallest_reachable


@dataclass(frozen=True, eq=False)
class Trained:
    """The pruned network and how it came about."""

    net: nn.Module
    architecture: Architecture
    unpruned: Channels
    trajectory: tuple[TrajectoryRow, ...]
    resources: Resources
    macs_trained_relative: float  # computation spent, relative to training the unpruned network for as long
    validation_accuracy: float
    test_accuracy: float


def train(task: Task, progress: Progress, checkpoint: Checkpoint) -> Trained:
    """Train, prune, shrink, train on."""
    with reproducible(task.config.threads):
        unpruned = find_channels(task.build(), task.network.input_shape)
        refuse_unreachable(task, unpruned)
        run = resumed_run(task, checkpoint) or fresh_run(task)
        progress.start(task.config.epochs, "epoch")
        if run.epoch:
            progress.advance(run.epoch, note="resumed")
        while run.epoch < task.config.epochs:
            loss = _train_epoch(task, run)
            run.epoch += 1
            checkpoint.save(lambda path: save_run(run, path))
            share = accuracy(run.net, run.forward, task.examples.validation)
            progress.advance(1, note=f"loss {loss:.2f} val {100 * share:.1f} %")
        if run.pruning is not None:
            _refuse_missed_budgets(task, run.pruning)
            run.shrink(task)
        return _result(task, run, unpruned)


def refuse_unreachable(task: Task, channels: Channels) -> None:
    """ConfigError for a budget below what the narrowest network needs."""
    smallest = smallest_reachable(channels, task.config, task.budget)
    for name in exceeded(smallest, task.budget):
        unit = "" if name == "macs" else " B"
        wanted, reachable = f"{getattr(task.budget, name)}{unit}", f"{getattr(smallest, name)}{unit}"
        raise ConfigError(
            f"budget.{name}: {wanted} cannot be met, {task.network.title} with {task.config.min_channels} channels in "
            f"every layer needs {reachable}; raise the budget to at least {reachable} or lower prune.min_channels"
        )


def _refuse_missed_budgets(task: Task, pruning: WidthUpdate) -> None:
    left = pruning.model.resources(pruning.widths())
    missed = [
        f"{name} is {getattr(left, name)}, needed {getattr(task.budget, name)}" for name in exceeded(left, task.budget)
    ]
    if missed:
        raise StageError(
            f"prune: budgets not met after {task.config.epochs} epochs and {pruning.state.updates} updates: "
            f"{', '.join(missed)}; raise prune.epochs (now {task.config.epochs}) or "
            f"prune.rate (now {task.config.rate:g})"
        )


def _train_epoch(task: Task, run: Run) -> float:
    """One pass over the training examples; their mean loss."""
    config, examples = task.config, task.examples.train
    torch.manual_seed(derived_seed(config.seed, "layers", run.epoch))
    order = torch.randperm(len(examples), generator=seeded(config.seed, "order", run.epoch))
    noise = seeded(config.seed, "augmentation", run.epoch)
    run.net.train()
    total = 0.0
    chosen = order[: task.steps_per_epoch * task.batch].split(task.batch)
    for x, y in task.examples.train_batches(chosen, derived_seed(config.seed, "waveforms", run.epoch)):
        loss = _train_step(task, run, channels_last(augmented(x, config, noise)), y)
        total += loss
        if run.pruning is not None and run.step >= config.start_step and run.step % config.update_every == 0:
            _update_widths(task, run, run.pruning, loss)
    return total / task.steps_per_epoch


def _train_step(task: Task, run: Run, x: Tensor, y: Tensor) -> float:
    for group in run.optimiser.param_groups:
        group["lr"] = task.learning_rate(run.step)
    run.optimiser.zero_grad()
    loss = F.cross_entropy(run.forward(x), y, label_smoothing=task.config.label_smoothing)
    value = float(loss.detach())
    if not math.isfinite(value):
        layer = first_broken_layer(run.channels, x) or "the loss itself"
        raise StageError(
            f"prune: training loss is {value} at step {run.step}, first not finite in {layer}; "
            f"lower prune.learning_rate (now {task.config.learning_rate:g})"
        )
    loss.backward()
    run.optimiser.step()
    run.step += 1
    run.macs_trained += len(y) * run.channels.resources.macs  # masked channels are computed too, until the shrink
    return value


def _update_widths(task: Task, run: Run, pruning: WidthUpdate, loss: float) -> None:
    """One update of widths and masks; shrinks the network once they have settled."""
    validation = task.examples.validation
    generator = seeded(task.config.seed, "validation", pruning.state.updates)
    chosen = torch.randperm(len(validation), generator=generator)[: task.config.validation_batch]
    moved = pruning.update(run.net, channels_last(validation.x[chosen]), validation.y[chosen])
    run.rows.append(TrajectoryRow.of(run.step, pruning.state.updates, loss, moved))
    if pruning.is_settled:
        run.shrink(task)


def _result(task: Task, run: Run, unpruned: Channels) -> Trained:
    trained_unpruned = unpruned.resources.macs * task.config.epochs * task.steps_per_epoch * task.batch
    return Trained(
        net=run.net.eval(),
        architecture=architecture_of(task.network, run.widths),
        unpruned=unpruned,
        trajectory=tuple(run.rows),
        resources=run.channels.resources,
        macs_trained_relative=run.macs_trained / trained_unpruned,
        validation_accuracy=accuracy(run.net, run.forward, task.examples.validation),
        test_accuracy=accuracy(run.net, run.forward, task.examples.test),
    )
