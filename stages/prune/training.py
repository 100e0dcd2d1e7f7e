"""Training with pruning in between: the network starts wide, loses channels until it meets the budgets, is rebuilt
small, and trains on at the lower cost (paper, 'Early termination').

After every epoch the whole state is checkpointed; a run that continues from there ends with the same bytes as one that
was never interrupted. Refused: a budget that no width can meet (ConfigError, before training), a loss that is not
finite, budgets not met by the last epoch (StageError; a study that was told not to look at them goes on).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Checkpoint, Progress
from stages.nets.channels import Channels, find_channels
from stages.nets.registry import Architecture, architecture_of
from stages.prune.masks import first_broken_layer
from stages.prune.objectives import Objectives, exceeded
from stages.prune.run import Run, fresh_run, resumed_run, save_run
from stages.prune.task import Task, reproducible
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthUpdate
from stages.prune.widths import WidthRule
from stages.training.determinism import derived_seed, seeded
from stages.training.examples import augmented

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
    macs_trained_relative: float  # computation spent, P_TSK included, over training the unpruned network for as long
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
            if run.pruning is None:
                run.note(task, loss)
            checkpoint.save(lambda path: save_run(run, path))
            share = task.accuracy(run.net, run.forward, task.examples.validation)
            progress.advance(1, note=f"loss {loss:.2f} val {100 * share:.1f} %")
        if run.pruning is not None:
            _refuse_missed_budgets(task, run.pruning)
            run.shrink(task)
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
            f"budget.{name}: {wanted}{unit} cannot be met, {task.network.title} with {_narrowest(channels, smallest)} "
            f"needs {reachable}; {way_out}"
        )


def _narrowest(channels: Channels, smallest: tuple[int, ...]) -> str:
    if not smallest:
        return "no layer that can be pruned (their channels are concatenated, or are the classes)"
    width = max(smallest)
    words = f"{width} channel{'s' if width > 1 else ''} in every layer"
    has_fixed = any(op.kind == "CONCATENATION" for op in channels.graph.ops)
    return f"{words} that is not concatenated (those keep all theirs)" if has_fixed else words


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
        loss = train_step(task, run, task.laid_out(augmented(x, config, noise)), y)
        total += loss
        if run.pruning is not None and run.step >= config.start_step and run.step % config.update_every == 0:
            update_widths(task, run, run.pruning, loss)
    return total / task.steps_per_epoch


def train_step(task: Task, run: Run, x: Tensor, y: Tensor) -> float:
    """One step of SGD; the loss before it."""
    for group in run.optimiser.param_groups:
        group["lr"] = task.learning_rate(run.step)
    run.optimiser.zero_grad()
    loss = F.cross_entropy(run.forward(x), y, label_smoothing=task.config.label_smoothing)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise _diverged(task, run, f"training loss is {value}", x)
    loss.backward()
    run.optimiser.step()
    run.step += 1
    run.macs_trained += len(y) * run.channels.resources.macs  # masked channels are computed too, until the shrink
    return value


def _diverged(task: Task, run: Run, found: str, x: Tensor) -> StageError:
    layer = first_broken_layer(run.channels, x) or "the loss itself"
    return StageError(
        f"prune: {found} at step {run.step}, first not finite in {layer}; "
        f"lower prune.learning_rate (now {task.config.learning_rate:g})"
    )


def update_widths(task: Task, run: Run, pruning: WidthUpdate, loss: float) -> None:
    """One update of widths and masks; shrinks the network once they have settled."""
    validation = task.examples.validation
    generator = seeded(task.config.seed, "validation", pruning.state.updates)
    chosen = torch.randperm(len(validation), generator=generator)[: task.config.validation_batch]
    x = task.laid_out(validation.x[chosen])
    try:
        moved = pruning.update(run.net, x, validation.y[chosen])
    except FloatingPointError as error:
        run.net.eval()  # as P_TSK was computed; batch statistics could hide what is broken
        raise _diverged(task, run, str(error), x) from error
    run.rows.append(TrajectoryRow.of(run.step, pruning.state.updates, loss, moved))
    if moved.move is not None and moved.move.task_loss is not None:
        run.macs_trained += len(chosen) * run.channels.resources.macs  # forward and backward, like a training step
    if pruning.is_settled:
        run.shrink(task)


def _result(task: Task, run: Run, unpruned: Channels) -> Trained:
    trained_unpruned = unpruned.resources.macs * task.config.epochs * task.steps_per_epoch * task.batch
    return Trained(
        net=run.net.eval(),
        architecture=architecture_of(task.network, run.widths),
        unpruned=unpruned,
        pruned=run.channels,
        trajectory=tuple(run.rows),
        macs_trained_relative=run.macs_trained / trained_unpruned,
        validation_accuracy=task.accuracy(run.net, run.forward, task.examples.validation),
        test_accuracy=task.accuracy(run.net, run.forward, task.examples.test),
    )
