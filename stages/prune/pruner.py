"""Pruning for a training loop of one's own: widths and masks that follow the budgets, then a small network.

    pruner = prune(net, validation_loader, {"size_bytes": "60KB", "macs": "2M"}, steps=epochs * len(train_loader))
    for x, y in batches:
        optimiser.zero_grad()
        F.cross_entropy(pruner(x), y).backward()  # the masked network
        optimiser.step()
        pruner.step()  # now and then an update of widths and masks
        if pruner.is_settled:
            pruner.shrink(optimiser)  # from here on pruner(x) is the small network, pruner.net

The prune step trains through the same class, so the same weights, batches and seed end at the same widths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from pipeline.errors import ConfigError
from stages.graph.memory.overlap import Runtime
from stages.graph.memory.resources import Resources, resources
from stages.nets.channels import Channels, find_channels
from stages.nets.config import BudgetConfig
from stages.nets.narrowing import carry_over_optimiser, first_channels, kept_channels, narrowed
from stages.prune.config import PruneConfig
from stages.prune.schedule import room, scheduled
from stages.prune.signal.masks import folded_forward
from stages.prune.signal.task_loss import Loss
from stages.prune.width_update import WidthState, WidthStep, WidthUpdate
from stages.prune.widths import refuse_unreachable

Batch = tuple[Tensor, Tensor]


class Pruner:
    """A network that loses channels while somebody trains it."""

    def __init__(
        self,
        net: nn.Module,
        channels: Channels,
        pruning: WidthUpdate | None,
        batches: Callable[[int], Batch],
        runtime: Runtime = "classic",
        steps: int | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        """`batches` gives the examples of an update by its number, `steps` is how long the training will be."""
        self.net = net  # wide and to be masked, or small
        self.channels = channels
        self.pruning = pruning  # None once the network is small, or where there is nothing to prune
        self.net_widths = channels.widths  # of `net` as it stands, by group
        self.steps = 0  # training steps so far
        self._batches, self._runtime, self._total, self._memory_format = batches, runtime, steps, memory_format

    def __call__(self, x: Tensor) -> Tensor:
        """What the network says with only the channels that it is to keep."""
        return self.net(x) if self.pruning is None else folded_forward(self.net, self.channels, self.masks, x)

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels that each group keeps."""
        return self.net_widths if self.pruning is None else self.pruning.widths()

    @property
    def masks(self) -> list[Tensor]:
        """1 for the channels that stay, 0 for the others, by group; none once the network is small."""
        return [] if self.pruning is None else self.pruning.state.masks

    @property
    def resources(self) -> Resources:
        """What the network needs with these widths: size and peak memory in bytes, multiply-accumulates."""
        if self.pruning is None:
            return resources(self.channels.graph, self._runtime)
        return self.pruning.objectives.resources(self.widths)

    @property
    def is_settled(self) -> bool:
        """Whether the budgets hold, the masks have come to rest, and `shrink` may be called."""
        return self.pruning is not None and self.pruning.is_settled

    @property
    def fits(self) -> bool:
        """Whether the budgets hold."""
        return self.pruning is None or not self.pruning.objectives.exceeded(self.widths)

    def step(self) -> WidthStep | None:
        """To be called behind every step of the optimiser; what an update did, where there was one."""
        self.steps += 1
        if self.pruning is None:
            return None
        config = self.pruning.config
        assert config.start_step is not None and config.update_every is not None
        is_due = self.steps >= config.start_step and self.steps % config.update_every == 0
        return self.update() if is_due else None

    def update(self) -> WidthStep:
        """One update of widths and masks, now."""
        assert self.pruning is not None
        x, y = self._batches(self.pruning.state.updates)
        left = None if self._total is None else room(self.pruning.config, self._total, self.steps - 1)
        return self.pruning.update(self.net, x, y, left)

    def shrink(self, optimiser: torch.optim.Optimizer | None = None) -> nn.Module:
        """The network with only the channels that the masks keep: the same outputs. `optimiser` goes on with it."""
        if self.pruning is not None:
            kept = kept_channels(self.masks)
            small = self._cut(kept)
            if optimiser is not None:
                carry_over_optimiser(self.channels, kept, self.net, small, optimiser)
            self._become(small, tuple(len(indices) for indices in kept))
        return self.net

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the network's own state: tensors, numbers, strings."""
        state = None if self.pruning is None else self.pruning.state
        return {
            "pruning": state and asdict(state) | {"theta": state.theta.tolist()},
            "net_widths": self.net_widths,
            "steps": self.steps,
        }

    def load_state_dict(self, stored: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called: of a small network the shape comes back here, its weights are yours."""
        widths = tuple(stored["net_widths"])
        if stored["pruning"] is None:
            if widths != self.net_widths:
                self._become(self._cut(first_channels(self.channels, widths, "the stored network")), widths)
            self.pruning = None
        elif self.pruning is None or widths != self.net_widths:
            raise ValueError(f"stored for widths {widths}, the network has {self.net_widths}")
        else:
            state, device = stored["pruning"], next(self.net.parameters()).device
            masks = [mask.to(device) for mask in state["masks"]]
            self.pruning.state = WidthState(**{**state, "theta": np.array(state["theta"]), "masks": masks})
        self.steps = stored["steps"]

    def _cut(self, kept: list[Tensor]) -> nn.Module:
        return narrowed(self.net, self.channels, kept).to(memory_format=self._memory_format)  # type: ignore[call-overload,no-any-return]

    def _become(self, small: nn.Module, widths: tuple[int, ...]) -> None:
        _, height, width, channels = self.channels.graph.tensors[self.channels.graph.inputs[0]].shape
        self.net, self.pruning, self.net_widths = small, None, widths
        self.channels = find_channels(small, (height, width, channels))


def prune(
    module: nn.Module,
    loader: Iterable[Batch],
    budget: BudgetConfig | Mapping[str, int | str],
    *,
    steps: int | None = None,
    rate: float | None = None,
    update_every: int | None = None,
    start_step: int | None = None,
    settle_updates: int = 3,
    min_channels: int = 4,
    channel_multiple: Literal[1, 2, 4, 8] = 1,
    seed: int = 0,
    loss: Loss = F.cross_entropy,
    **switches: Any,
) -> Pruner:
    """Prune `module` while you train it, until it is within `budget`; see the top of this file for the loop.

    loader   batches (x, y), gone through again and again, one for each update: examples that are not trained on
    budget   at least one of peak_bytes, size_bytes ("60KB", or bytes) and macs ("2M", or a number); runtime
    steps    how many steps the training will have: the pace is then chosen to fit, and the budgets are met in time
    loss     what is trained, as a mean over the examples
    The others, and `switches`, are keys of the section `prune` of pipeline.yaml (stages/prune/config.py).
    """
    pace = {"rate": rate, "update_every": update_every, "start_step": start_step, "settle_updates": settle_updates}
    limits = {"min_channels": min_channels, "channel_multiple": channel_multiple, "seed": seed}
    try:
        config = PruneConfig(**{**pace, **limits, **switches})
        wanted = budget if isinstance(budget, BudgetConfig) else BudgetConfig(**_with_units(budget))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "budget"
        raise ConfigError(f"prune: {where}: {first['msg'].removeprefix('Value error, ')}") from error
    batches = _Cycled(loader, next(module.parameters()).device)
    count, height, width = batches.first[0].shape[1:]
    channels = find_channels(module, (height, width, count))
    refuse_unreachable(channels, config, wanted, type(module).__name__)
    return started_pruner(module, channels, config, wanted, batches, steps=steps, loss=loss)


def started_pruner(
    net: nn.Module,
    channels: Channels,
    config: PruneConfig,
    budget: BudgetConfig,
    batches: Callable[[int], Batch],
    *,
    steps: int | None,
    steps_per_epoch: int | None = None,
    loss: Loss = F.cross_entropy,
    memory_format: torch.memory_format | None = None,
) -> Pruner:
    """A pruner at its start, with a pace for so many steps."""
    pruning = None
    if channels.widths:
        pruning = WidthUpdate(channels, config, budget, loss)
        if steps is not None:
            pruning.config = scheduled(pruning, config, config.may_miss(budget.limits), steps, steps_per_epoch)
    return Pruner(net, channels, pruning, batches, budget.runtime, steps, memory_format or _memory_format(net))


def _with_units(budget: Mapping[str, int | str]) -> dict[str, Any]:
    """A number of bytes needs no unit here."""
    return {
        key: f"{value}B" if isinstance(value, int) and key.endswith("_bytes") else value
        for key, value in budget.items()
    }


def _memory_format(net: nn.Module) -> torch.memory_format:
    """How the weights lie."""
    maps = [weight for weight in net.parameters() if weight.dim() == 4]
    is_last = bool(maps) and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in maps)
    moved = is_last and any(weight.stride() != torch.empty(weight.shape, device="meta").stride() for weight in maps)
    return torch.channels_last if moved else torch.contiguous_format


class _Cycled:
    """The batches of a loader in turn, from the first again behind the last."""

    def __init__(self, loader: Iterable[Batch], device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._running: Iterator[Batch] = iter(loader)
        try:
            self.first = next(self._running)
        except StopIteration:
            raise ConfigError("prune: the loader is empty, needed batches (x, y) of examples") from None
        self._running = iter(loader)

    def __call__(self, update: int) -> Batch:
        try:
            x, y = next(self._running)
        except StopIteration:
            self._running = iter(self._loader)
            x, y = next(self._running)
        return x.to(self._device), y.to(self._device)
