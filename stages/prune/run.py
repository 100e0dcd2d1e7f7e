"""A network that is trained and pruned: what moves beside its weights, and how it becomes small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stages.graph.memory.resources import resources
from stages.nets.channels import Channels, find_channels
from stages.nets.narrowing import narrowed
from stages.prune.masks import first_broken_layer, folded_forward
from stages.prune.objectives import Objectives
from stages.prune.shrink import carry_over_optimiser, kept_channels
from stages.prune.task import Task
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthState, WidthUpdate
from stages.prune.widths import WidthRule, uniform_widths
from stages.training.determinism import derived_seed, seeded
from stages.training.loop import Run, diverged
from stages.training.stochastic_depth import with_stochastic_depth


@dataclass(eq=False, kw_only=True)
class PruningRun(Run):
    """Masked while `pruning`, then small."""

    optimiser: torch.optim.SGD
    task: Task
    channels: Channels
    widths: tuple[int, ...]
    pruning: WidthUpdate | None = None  # None once the network is small
    macs_trained: int = 0
    rows: list[TrajectoryRow] = field(default_factory=list)

    def forward(self, x: Tensor) -> Tensor:
        if self.pruning is None:
            return self.net(x)
        return folded_forward(self.net, self.channels, self.pruning.state.masks, x)

    def after_step(self, examples: int, loss: float) -> None:
        """Count the work, and update the widths when it is time."""
        config = self.task.config
        self.macs_trained += examples * self.channels.resources.macs  # masked channels too, until the shrink
        if self.pruning is not None and self.step >= config.start_step and self.step % config.update_every == 0:
            self.update_widths(self.pruning, loss)

    def after_epoch(self) -> None:
        if self.pruning is None:
            self.add_row(self.losses[-1])

    def validation_accuracy(self) -> float:
        return self.task.accuracy(self.net, self.forward, self.task.examples.validation)

    def first_broken_layer(self, x: Tensor) -> str | None:
        return first_broken_layer(self.channels, x) or "the loss itself"

    def own_state(self) -> dict[str, Any]:
        state = None if self.pruning is None else self.pruning.state
        return {
            "pruning": state and asdict(state) | {"theta": state.theta.tolist()},
            "widths": self.widths,
            "macs_trained": self.macs_trained,
            "rows": [asdict(row) for row in self.rows],
        }

    def update_widths(self, pruning: WidthUpdate, loss: float) -> None:
        """One update of widths and masks; shrinks the network once they have settled."""
        config, validation = self.task.config, self.task.examples.validation
        generator = seeded(config.seed, "validation", pruning.state.updates)
        chosen = torch.randperm(len(validation), generator=generator)[: config.validation_batch]
        x = self.task.laid_out(validation.x[chosen])
        try:
            moved = pruning.update(self.net, x, validation.y[chosen].to(self.device))
        except FloatingPointError as error:
            self.net.eval()  # as P_TSK was computed; batch statistics could hide what is broken
            raise diverged(self.task.recipe, self, str(error), x) from error
        self.rows.append(TrajectoryRow.of(self.step, pruning.state.updates, loss, moved))
        if moved.move is not None and moved.move.task_loss is not None:
            self.macs_trained += len(chosen) * self.channels.resources.macs  # forward and backward, like a step
        if pruning.is_settled:
            self.shrink(pruning)

    def shrink(self, pruning: WidthUpdate) -> None:
        """Go on with only the channels that the masks keep."""
        kept = kept_channels(pruning.state.masks)
        small = narrowed(self.net, self.channels, kept).to(memory_format=self.task.memory_format)
        carry_over_optimiser(self.channels, kept, self.net, small, self.optimiser)
        self.net, self.pruning = small, None
        self.widths = tuple(len(indices) for indices in kept)
        self.channels = find_channels(small, self.task.network.input_shape)
        with_stochastic_depth(small, self.channels.module, self.task.training.stochastic_depth)

    def add_row(self, loss: float | None) -> None:
        """A row of the trajectory for a moment without an update."""
        update = self.rows[-1].update if self.rows else 0
        used = resources(self.channels.graph, self.task.budget.runtime)
        self.rows.append(TrajectoryRow.between_updates(self.step, update, loss, self.widths, used))


def started(task: Task, stored: Mapping[str, Any] | None = None) -> PruningRun:
    """A new run; or one as it was stored, for the weights to be loaded into."""
    if stored is None:
        return _new(task)
    run = _run_of(task, tuple(stored["widths"]))
    if stored["pruning"] is not None:
        run.pruning = WidthUpdate(run.channels, task.config, task.budget)
        state = stored["pruning"]
        masks = [mask.to(task.device) for mask in state["masks"]]
        run.pruning.state = WidthState(**{**state, "theta": np.array(state["theta"]), "masks": masks})
    run.macs_trained = stored["macs_trained"]
    run.rows = [TrajectoryRow(**row) for row in stored["rows"]]
    return run


def _new(task: Task) -> PruningRun:
    """Wide, or as narrow as it will stay with `method: uniform` or if nothing can be pruned."""
    torch.manual_seed(derived_seed(task.config.seed, "weights", 0))
    run = _run_of(task, None)
    can_be_pruned = bool(run.channels.widths)
    if can_be_pruned and task.config.method == "uniform":
        rule, objectives = WidthRule(run.channels, task.config), Objectives(run.channels, task.config, task.budget)
        run = _run_of(task, uniform_widths(rule, objectives))
        _draw_weights(run.net)
    elif can_be_pruned:
        run.pruning = WidthUpdate(run.channels, task.config, task.budget)
    run.add_row(None)
    return run


def _draw_weights(net: nn.Module) -> None:
    """Anew: a network cut from a wide one has weights drawn for the wide one's fan-in."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.reset_parameters()


def _run_of(task: Task, widths: tuple[int, ...] | None) -> PruningRun:
    net = task.build(widths)
    channels = find_channels(net, task.network.input_shape)
    with_stochastic_depth(net, channels.module, task.training.stochastic_depth)
    return PruningRun(
        net=net,
        optimiser=task.optimiser(net),
        task=task,
        channels=channels,
        widths=widths or channels.widths,
        device=task.device,
        teacher=task.teacher,
    )
