"""Training with pruning in between: the network starts wide, loses channels until it meets the budgets, is rebuilt
small, and trains on at the lower cost (paper, 'Early termination').

Refused: a budget that no width can meet, or no pace in these epochs (ConfigError, before training), a loss that is not
finite, budgets not met by the last epoch (StageError; a study that was told not to look at them goes on).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Checkpoint, Config, Progress
from stages.graph.memory.resources import Resources, resources
from stages.nets.channels import Channels, find_channels
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import Architecture, architecture_of, build
from stages.nets.user_network import import_user_network
from stages.prune.config import PruneConfig
from stages.prune.device import DeviceCosts
from stages.prune.latency_share import with_absolute_latency
from stages.prune.objectives import exceeded
from stages.prune.run import PruningRun, started
from stages.prune.task import Task
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthUpdate
from stages.prune.widths import refuse_unreachable
from stages.training import loop
from stages.training.determinism import reproducible

USUAL_SHAPES = ((49, 10, 1), (64, 64, 3), (32, 32, 1))


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
    budget: BudgetConfig  # every figure in its unit
    given_back: int  # channels


def check(config: PruneConfig, network: NetworkConfig, budget: BudgetConfig, **_: Config) -> None:
    """Refuse what can be refused before there are data: layers that are not supported, budgets that cannot be met.

    Where the data will decide about the shape, usual ones are tried: layers hardly depend on it.
    """
    if network.module is not None:
        import_user_network(network)
    is_known = network.input_shape is not None and network.classes is not None
    for shape in (network.input_shape,) if network.input_shape is not None else USUAL_SHAPES:
        assumed = network.for_data(shape, network.classes or 2)
        try:
            net = build(assumed)
        except ConfigError:
            if is_known:
                raise
            continue
        channels = find_channels(net, shape)
        if is_known:
            absolute = with_absolute_latency(channels, config, budget)
            refuse_unreachable(channels, config, absolute, network.title)
        return


def train(task: Task, progress: Progress, checkpoint: Checkpoint) -> Trained:
    """Train, prune, shrink, train on."""
    with reproducible(task.config.threads, task.device.type):
        unpruned = find_channels(task.build(), task.network.input_shape)
        budget = with_absolute_latency(unpruned, task.config, task.budget)
        task = task if budget is task.budget else replace(task, budget=budget)
        refuse_unreachable(unpruned, task.config, task.budget, task.network.title)
        run = loop.train(task.recipe, partial(started, task), task.batches, progress, checkpoint)
        if run.pruning is not None:
            _refuse_missed_budgets(task, run.pruning)
            run.shrink()
        return _result(task, run, unpruned)


def _refuse_missed_budgets(task: Task, pruning: WidthUpdate) -> None:
    left, pace = pruning.objectives.resources(pruning.widths()), pruning.config
    missed = [
        f"{name} is {getattr(left, name)}, needed {getattr(task.budget, name)}" for name in exceeded(left, task.budget)
    ]
    if not missed and pruning.objectives.device is not None:
        widths, device = pruning.widths(), pruning.objectives.device
        used = device.exact(widths) or {}
        missed = [f"{n} is {used.get(n, 'unknown')}, needed {device.limits[n].limit}" for n in device.exceeded(widths)]
    if missed and not task.config.may_miss(task.budget.limits):
        raise StageError(
            f"prune: budgets not met after {task.config.epochs} epochs and {pruning.state.updates} updates: "
            f"{', '.join(missed)}; raise prune.epochs (now {task.config.epochs}) or prune.rate (now {pace.rate:g})"
        )


def _result(task: Task, run: PruningRun, unpruned: Channels) -> Trained:
    trained_unpruned = unpruned.resources.macs * task.config.epochs * task.recipe.steps_per_epoch * task.batch
    return Trained(
        net=run.net.eval(),
        architecture=architecture_of(task.network, run.pruner.net_widths),
        unpruned=unpruned,
        pruned=run.channels,
        trajectory=tuple(run.rows),
        losses=tuple(run.losses),
        accuracies=tuple(run.accuracies),
        macs_trained_relative=run.macs_trained / trained_unpruned,
        validation_accuracy=task.accuracy(run.net, run.forward, task.examples.validation),
        test_accuracy=task.accuracy(run.net, run.forward, task.examples.test),
        budget=task.budget,
        given_back=run.given_back,
    )


@dataclass(frozen=True)
class PruneMetrics:
    """What pruning kept and what it cost."""

    validation_accuracy: float
    test_accuracy: float
    before: Resources
    after: Resources
    budget: dict[str, int]
    fits: bool
    widths: tuple[int, ...]
    updates: int
    macs_trained_relative: float


@dataclass(frozen=True)
class DeviceMetrics:
    """What the firmware of the pruned network was predicted to take, and was allowed to."""

    budget: dict[str, dict[str, float]]  # by board
    predicted: dict[str, dict[str, float]]
    given_back: int  # channels that the budgets had left room for


def prune_metrics(trained: Trained, budget: BudgetConfig) -> dict[str, Any]:
    """metrics.json"""
    after = resources(trained.pruned.graph, budget.runtime)
    fits = not exceeded(after, budget)
    device: dict[str, Any] = {}
    if trained.budget.device_limits:
        costs = DeviceCosts(trained.unpruned, trained.budget)
        fits = fits and not costs.exceeded(trained.architecture.widths)
        predicted = costs.figures(trained.architecture.widths)
        device = {"device": asdict(DeviceMetrics(trained.budget.device_limits, predicted, trained.given_back))}
    return asdict(_metrics(trained, budget, after, fits)) | device


def _metrics(trained: Trained, budget: BudgetConfig, after: Resources, fits: bool) -> PruneMetrics:
    return PruneMetrics(
        validation_accuracy=trained.validation_accuracy,
        test_accuracy=trained.test_accuracy,
        before=resources(trained.unpruned.graph, budget.runtime),
        after=after,
        budget=budget.limits,
        fits=fits,
        widths=trained.architecture.widths,
        updates=max((row.update for row in trained.trajectory), default=0),
        macs_trained_relative=trained.macs_trained_relative,
    )


def write_network(path: Path, net: nn.Module) -> Path:
    """The state_dict, contiguous, readable with weights_only."""
    torch.save({name: tensor.cpu().contiguous() for name, tensor in net.state_dict().items()}, path)
    return path
