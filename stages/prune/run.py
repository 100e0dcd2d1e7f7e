"""Everything that moves during a training run, and its way into a checkpoint and back.

A checkpoint holds tensors, numbers and strings only, so it is read with weights_only: a file from elsewhere cannot run
code. There is no random state in it, because none is carried from epoch to epoch (see `seeds`).
"""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.errors import StageError
from pipeline.stage import Checkpoint
from stages.graph.memory.resources import resources
from stages.nets.channels import Channels, find_channels
from stages.nets.narrowing import narrowed
from stages.prune.masks import folded_forward
from stages.prune.objectives import Objectives
from stages.prune.shrink import carry_over_momentum, kept_channels
from stages.prune.task import Task
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthState, WidthUpdate
from stages.prune.widths import WidthRule, uniform_widths
from stages.training.determinism import derived_seed

CHECKPOINT_FORMAT = 3
# What reading a checkpoint raises when the file is torn, of another format or of another network.
UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    StageError,
)


@dataclass(eq=False)
class Run:
    """A network in training."""

    net: nn.Module
    optimiser: torch.optim.SGD
    channels: Channels
    pruning: WidthUpdate | None  # None once the network is small
    widths: tuple[int, ...]
    epoch: int = 0
    step: int = 0
    macs_trained: int = 0
    rows: list[TrajectoryRow] = field(default_factory=list)

    def forward(self, x: Tensor) -> Tensor:
        if self.pruning is None:
            return self.net(x)
        return folded_forward(self.net, self.channels, self.pruning.state.masks, x)

    def note(self, task: Task, loss: float | None) -> None:
        """A row of the trajectory for a moment without an update."""
        update = self.rows[-1].update if self.rows else 0
        used = resources(self.channels.graph, task.budget.runtime)
        self.rows.append(TrajectoryRow.between_updates(self.step, update, loss, self.widths, used))

    def shrink(self, task: Task) -> None:
        """Go on with only the channels that the masks keep."""
        assert self.pruning is not None
        kept = kept_channels(self.pruning.state.masks)
        small = narrowed(self.net, self.channels, kept).to(memory_format=task.memory_format)
        optimiser = task.optimiser(small)
        carry_over_momentum(self.channels, kept, (self.net, self.optimiser), (small, optimiser))
        self.net, self.optimiser, self.pruning = small, optimiser, None
        self.widths = tuple(len(indices) for indices in kept)
        self.channels = find_channels(small, task.network.input_shape)


def fresh_run(task: Task) -> Run:
    """The start of training: wide, or as narrow as it will stay with `method: uniform` or if nothing can be pruned."""
    torch.manual_seed(derived_seed(task.config.seed, "weights", 0))
    run = _run_of(task, None)
    can_be_pruned = bool(run.channels.widths)
    if can_be_pruned and task.config.method == "uniform":
        rule, objectives = WidthRule(run.channels, task.config), Objectives(run.channels, task.config, task.budget)
        run = _run_of(task, uniform_widths(rule, objectives))
        _draw_weights(run.net)
    elif can_be_pruned:
        run.pruning = WidthUpdate(run.channels, task.config, task.budget)
    run.note(task, None)
    return run


def _draw_weights(net: nn.Module) -> None:
    """Anew: a network cut from a wide one has weights drawn for the wide one's fan-in."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.reset_parameters()


def resumed_run(task: Task, checkpoint: Checkpoint) -> Run | None:
    """Where an earlier run stopped; a checkpoint that cannot be read is dropped."""
    path = checkpoint.saved()
    if path is None:
        return None
    try:
        return _restored(task, torch.load(path, weights_only=True))
    except UNREADABLE:
        checkpoint.drop()
        return None


def save_run(run: Run, path: Path) -> None:
    """Write a checkpoint."""
    pruning = None if run.pruning is None else asdict(run.pruning.state) | {"theta": run.pruning.state.theta.tolist()}
    stored: dict[str, Any] = {
        "format": CHECKPOINT_FORMAT,
        "net": run.net.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "pruning": pruning,
        "widths": run.widths,
        "epoch": run.epoch,
        "step": run.step,
        "macs_trained": run.macs_trained,
        "rows": [asdict(row) for row in run.rows],
    }
    torch.save(stored, path)


def _restored(task: Task, stored: dict[str, Any]) -> Run:
    if stored["format"] != CHECKPOINT_FORMAT:
        raise ValueError(f"format {stored['format']}")
    run = _run_of(task, tuple(stored["widths"]))
    run.net.load_state_dict(stored["net"])
    run.optimiser.load_state_dict(stored["optimiser"])
    if stored["pruning"] is not None:
        run.pruning = WidthUpdate(run.channels, task.config, task.budget)
        run.pruning.state = WidthState(**{**stored["pruning"], "theta": np.array(stored["pruning"]["theta"])})
    run.epoch, run.step, run.macs_trained = stored["epoch"], stored["step"], stored["macs_trained"]
    run.rows = [TrajectoryRow(**row) for row in stored["rows"]]
    return run


def _run_of(task: Task, widths: tuple[int, ...] | None) -> Run:
    net = task.build(widths)
    channels = find_channels(net, task.network.input_shape)
    return Run(net, task.optimiser(net), channels, None, widths or channels.widths)
