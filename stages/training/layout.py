"""How a network and its inputs lie in memory while it trains."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
