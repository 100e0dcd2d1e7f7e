"""Where a training computes, and how precisely.

In less than float32 only the convolutions over several channels are computed, and only while the network trains: they
are most of the work. Depthwise ones gain nothing from it, and with the rest of the network in it accuracy was lost, too
(0.6 points on Speech Commands, see the README). Weights, statistics and the loss are float32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.errors import ConfigError

_PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_COLOURS = 3  # the channels of an input: the first layer stays float32, too


def chosen_device(name: str, rank: int = 0) -> torch.device:
    """The device of this name; 'auto' takes a GPU where there is one. `rank` is the process's number among several."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    is_there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(name, lambda: True)
    if not is_there():
        raise ConfigError(f"training.device: {name} is not there, or torch was built without it; set it to cpu or auto")
    return torch.device(name, rank % torch.cuda.device_count()) if name == "cuda" else torch.device(name)


def at_precision(net: nn.Module, name: str) -> nn.Module:
    """The network with its large convolutions in this precision while it trains, in place; parameters stay."""
    for module in net.modules() if name in _PRECISIONS else ():
        if isinstance(module, nn.Conv2d) and module.groups == 1 and module.in_channels > _COLOURS:
            base = type(module)
            module.__class__ = type(base.__name__, (_Coarse, base), {"precision": _PRECISIONS[name]})
    return net


class _Coarse(nn.Conv2d):
    """Before a kind of convolution: products of short numbers, a float32 result."""

    computes_like_its_base = True
    precision: torch.dtype

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not self.training:
            return super()._conv_forward(input, weight, bias)
        short = None if bias is None else bias.to(self.precision)
        return super()._conv_forward(input.to(self.precision), weight.to(self.precision), short).float()


def gradient_scaler(name: str, device: torch.device) -> torch.amp.GradScaler | None:
    """What keeps small gradients of float16 from becoming 0; the other precisions have the range of float32."""
    return torch.amp.GradScaler(device.type) if name == "float16" else None
