"""The exponential moving average of a network's weights: less noise than the last step leaves in them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

_WARMUP = 10  # steps after which the decay is one half of its way to 1


class Average:
    """Of all parameters and running statistics; it starts anew when the network is rebuilt with other shapes."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.values: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        """Behind a step of the optimiser."""
        weights = _averaged(net)
        if {name: value.shape for name, value in self.values.items()} != {k: v.shape for k, v in weights.items()}:
            self.steps, self.values = 0, {name: value.detach().clone() for name, value in weights.items()}
        self.steps += 1
        share = 1 - min(self.decay, self.steps / (self.steps + _WARMUP))
        for name, value in weights.items():
            self.values[name].lerp_(value, share)

    @torch.no_grad()
    def put_into(self, net: nn.Module) -> None:
        """The average takes the place of the weights."""
        for name, value in _averaged(net).items():
            value.copy_(self.values[name])

    def state(self) -> dict[str, object]:
        return {"steps": self.steps, "values": self.values}

    def load(self, stored: Mapping[str, object], net: nn.Module) -> None:
        self.steps = int(stored["steps"])  # type: ignore[call-overload]
        places = {name: value.device for name, value in _averaged(net).items()}
        self.values = {name: value.to(places[name]) for name, value in stored["values"].items()}  # type: ignore[attr-defined]


def _averaged(net: nn.Module) -> dict[str, Tensor]:
    statistics = {name: value for name, value in net.named_buffers() if name.endswith(("running_mean", "running_var"))}
    return {**dict(net.named_parameters()), **statistics}
