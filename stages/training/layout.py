"""How a network and its inputs lie in memory while it trains."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_NO_PADDING = ((0, 0), "valid")


def memory_format_of(make: Callable[[], nn.Module], input_shape: tuple[int, int, int]) -> torch.memory_format:
    """channels_last, a quarter to two thirds faster on the CPU, unless the network takes a view of a map."""
    with torch.random.fork_rng(devices=[]):
        net = make().eval().to(memory_format=torch.channels_last)
    height, width, channels = input_shape
    x = torch.zeros(2, channels, height, width).contiguous(memory_format=torch.channels_last)
    try:
        with torch.no_grad():
            net(x)
    except RuntimeError:
        return torch.contiguous_format
    return torch.channels_last


def laid_out(x: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Inputs as the network wants them."""
    if memory_format is torch.contiguous_format:
        return x.clone(memory_format=memory_format)  # of one channel, contiguous() takes either for the other
    return x.contiguous(memory_format=memory_format)


class UnitStrideConv2d(nn.Conv2d):
    """A 1x1 convolution that skips positions before it multiplies, not while it does.

    The same sums. oneDNN's own strided 1x1 kernel ends the process on some odd batches in channels_last with two
    threads (torch 2.13 with AVX-512: 8 -> 18 channels, 32 px, batches 63, 75, 77).
    """

    computes_like_its_base = True

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        vertical, horizontal = self.stride
        return F.conv2d(input[:, :, ::vertical, ::horizontal], weight, bias, groups=self.groups)


def with_unit_strides(net: nn.Module) -> nn.Module:
    """The network with its strided 1x1 convolutions made safe, in place; parameters and their names stay."""
    for module in net.modules():
        is_pointwise = type(module) is nn.Conv2d and module.kernel_size == (1, 1) and module.padding in _NO_PADDING
        if is_pointwise and module.stride != (1, 1):
            module.__class__ = UnitStrideConv2d
    return net
