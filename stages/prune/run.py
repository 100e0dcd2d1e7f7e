"""A network that is trained and pruned: what the prune step plugs into the training loop around a `Pruner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from stages.graph.memory.resources import resources
from stages.nets.channels import Channels, find_channels
from stages.prune.objectives import Objectives
from stages.prune.pruner import Pruner, started_pruner
from stages.prune.signal.masks import first_broken_layer
from stages.prune.task import Task
from stages.prune.trajectory import TrajectoryRow
from stages.prune.width_update import WidthStep, WidthUpdate
from stages.prune.widths import WidthRule, uniform_widths
from stages.training.determinism import derived_seed
from stages.training.loop import Run, diverged
from stages.training.parallel import agreed
from stages.training.stochastic_depth import with_stochastic_depth


@dataclass(eq=False, kw_only=True)
class PruningRun(Run):
    """Masked while it is pruned, then small."""

    optimiser: torch.optim.SGD
    task: Task
    pruner: Pruner
    macs_trained: int = 0
    given_back: int = 0  # channels, when the budgets were met
    rows: list[TrajectoryRow] = field(default_factory=list)

    @property
    def channels(self) -> Channels:
        return self.pruner.channels

    @property
    def pruning(self) -> WidthUpdate | None:
        """None once the network is small."""
        return self.pruner.pruning

    def forward(self, x: Tensor) -> Tensor:
        return self.pruner(x)

    def news(self) -> str:
        """That the training is too short for the usual pace."""
        if self.pruning is None:
            return ""
        usual, chosen = self.task.config.with_usual_pace(), self.pruning.config
        told = [
            f"{words} {getattr(chosen, key):g} (usually {getattr(usual, key):g})"
            for key, words in (("rate", "rate"), ("update_every", "widths updated every"), ("start_step", "from step"))
            if getattr(chosen, key) != getattr(usual, key)
        ]
        return f"short training, faster pruning: {', '.join(told)}" if told else ""

    def after_step(self, examples: int, loss: float) -> None:
        """Count the work, and update the widths when it is time."""
        self.macs_trained += examples * self.channels.resources.macs  # masked channels too, until the shrink
        self._updated(self.pruner.step, loss)

    def update_widths(self, loss: float) -> None:
        """One update of widths and masks, now."""
        self._updated(self.pruner.update, loss)

    def after_epoch(self) -> None:
        if self.pruning is None:
            self.add_row(self.losses[-1])

    def validation_accuracy(self) -> float:
        return self.task.accuracy(self.net, self.forward, self.task.examples.validation)

    def first_broken_layer(self, x: Tensor) -> str | None:
        return first_broken_layer(self.channels, x) or "the loss itself"

    def own_state(self) -> dict[str, Any]:
        return {
            "pruner": self.pruner.state_dict(),
            "macs_trained": self.macs_trained,
            "given_back": self.given_back,
            "rows": [asdict(row) for row in self.rows],
        }

    def _updated(self, move: Callable[[], WidthStep | None], loss: float) -> None:
        """Let the pruner move; shrink the network once its masks have settled."""
        pruning = self.pruning
        try:
            moved = move()
        except FloatingPointError as error:
            assert pruning is not None
            self.net.eval()  # as P_TSK was computed; batch statistics could hide what is broken
            x, _ = self.task.validation_batch(pruning.state.updates - 1)
            raise diverged(self.task.recipe, self, str(error), x) from error
        if moved is None:
            return
        assert pruning is not None
        self.given_back = pruning.state.given_back
        pruning.state.theta = agreed(torch.from_numpy(pruning.state.theta)).numpy()
        pruning.state.masks = [agreed(mask) for mask in pruning.state.masks]
        self.rows.append(TrajectoryRow.of(self.step, pruning.state.updates, loss, moved))
        if moved.move is not None and moved.move.task_loss is not None:
            examples = min(self.task.config.validation_batch, len(self.task.examples.validation))
            self.macs_trained += examples * self.channels.resources.macs  # forward and backward, like a step
        if self.pruner.is_settled:
            self.shrink()

    def shrink(self) -> None:
        """Go on with only the channels that the masks keep."""
        self.net = self.pruner.shrink(self.optimiser)
        with_stochastic_depth(self.net, self.channels.module, self.task.training.stochastic_depth)

    def add_row(self, loss: float | None) -> None:
        """A row of the trajectory for a moment without an update."""
        update = self.rows[-1].update if self.rows else 0
        used = resources(self.channels.graph, self.task.budget.runtime)
        self.rows.append(TrajectoryRow.between_updates(self.step, update, loss, self.pruner.net_widths, used))


def started(task: Task, stored: Mapping[str, Any] | None = None) -> PruningRun:
    """A new run; or one as it was stored, for the weights to be loaded into."""
    torch.manual_seed(derived_seed(task.config.seed, "weights", 0))
    net = task.build()
    channels = find_channels(net, task.network.input_shape)
    pruner = _uniform(task, channels) if task.config.method == "uniform" else _pruner(task, net, channels)
    if stored is not None:
        pruner.load_state_dict(stored["pruner"])
    net = with_stochastic_depth(pruner.net, pruner.channels.module, task.training.stochastic_depth)
    run = PruningRun(
        net=net,
        optimiser=task.optimiser(net),
        task=task,
        pruner=pruner,
        device=task.device,
        teacher=task.teacher,
        prior=task.examples.prior,
    )
    if stored is None:
        run.add_row(None)
    else:
        run.macs_trained, run.given_back = stored["macs_trained"], stored["given_back"]
        run.rows = [TrajectoryRow(**row) for row in stored["rows"]]
    return run


def _pruner(task: Task, net: nn.Module, channels: Channels) -> Pruner:
    return started_pruner(
        net,
        channels,
        task.config,
        task.budget,
        task.validation_batch,
        steps=task.config.epochs * task.recipe.steps_per_epoch,
        steps_per_epoch=task.recipe.steps_per_epoch,
        memory_format=task.memory_format,
    )


def _uniform(task: Task, channels: Channels) -> Pruner:
    """As narrow as it will stay."""
    widths = channels.widths
    if widths:
        rule, objectives = WidthRule(channels, task.config), Objectives(channels, task.config, task.budget)
        widths = uniform_widths(rule, objectives)
    net = task.build(widths)
    _draw_weights(net)
    pruner = Pruner(net, find_channels(net, task.network.input_shape), None, task.validation_batch, task.budget.runtime)
    pruner.net_widths = widths
    return pruner


def _draw_weights(net: nn.Module) -> None:
    """Anew: a network cut from a wide one has weights drawn for the wide one's fan-in."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.reset_parameters()
