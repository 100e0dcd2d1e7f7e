"""A torch module and a budget -> a pruner for a training loop of one's own; typed here, made by the tool `prune`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from pipeline.api.project import AnyPath, open_project
from pipeline.config import PROJECT_FILE

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class NetworkResources(Protocol):
    """What a network needs as int8."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def peak_bytes_imprecise(self) -> int: ...
    @property
    def macs(self) -> int: ...


class Pruner(Protocol):
    """A network that loses channels while somebody trains it."""

    net: nn.Module  # wide and to be masked, or small
    steps: int  # training steps so far

    def __call__(self, x: Tensor) -> Tensor:
        """What the network says with only the channels that it is to keep."""

    @property
    def widths(self) -> Sequence[int]:
        """Channels that each group keeps."""

    @property
    def masks(self) -> Sequence[Tensor]:
        """1 for the channels that stay, 0 for the others, by group; none once the network is small."""

    @property
    def resources(self) -> NetworkResources:
        """What the network needs with these widths."""

    @property
    def is_settled(self) -> bool:
        """Whether the budgets hold, the masks have come to rest, and `shrink` may be called."""

    @property
    def fits(self) -> bool:
        """Whether the budgets hold."""

    def step(self) -> object | None:
        """To be called behind every step of the optimiser; what an update did, where there was one."""

    def update(self) -> object:
        """One update of widths and masks, now."""

    def shrink(self, optimiser: torch.optim.Optimizer | None = None) -> nn.Module:
        """The network with only the channels that the masks keep: the same outputs. `optimiser` goes on with it."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the network's own state."""

    def load_state_dict(self, stored: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called."""


def prune(
    module: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    budget: Mapping[str, int | str],
    *,
    steps: int | None = None,
    rate: float | None = None,
    update_every: int | None = None,
    start_step: int | None = None,
    settle_updates: int = 3,
    min_channels: int = 4,
    channel_multiple: Literal[1, 2, 4, 8] = 1,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    project: AnyPath = PROJECT_FILE,
    **switches: Any,
) -> Pruner:
    """Prune a module while you train it, until it is within its budget.

        pruner = prune(net, validation_loader, {"size_bytes": "60KB", "macs": "2M"}, steps=epochs * len(train_loader))
        for x, y in batches:
            optimiser.zero_grad()
            F.cross_entropy(pruner(x), y).backward()
            optimiser.step()
            pruner.step()
            if pruner.is_settled:
                pruner.shrink(optimiser)  # from here on pruner(x) is the small network, pruner.net

    `loader` gives examples that are not trained on, one batch an update. `budget` holds at least one of peak_bytes,
    size_bytes and macs. With `steps`, the length of the training, the pace is chosen to fit. `loss` is what is trained,
    cross entropy without it. The others, and `switches`, are keys of the section `prune` of pipeline.yaml.
    """
    more = switches if loss is None else {**switches, "loss": loss}
    answer = open_project(project).tool("prune")(
        module,
        loader,
        budget,
        steps=steps,
        rate=rate,
        update_every=update_every,
        start_step=start_step,
        settle_updates=settle_updates,
        min_channels=min_channels,
        channel_multiple=channel_multiple,
        seed=seed,
        **more,
    )
    return cast(Pruner, answer)
