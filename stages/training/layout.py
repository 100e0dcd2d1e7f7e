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


class FoldedConv2d(nn.Conv2d):
    """A depthwise convolution along dilated rows: what is `d` rows apart is brought together, then nothing is dilated.

    The same sums. In channels_last the fold is a view, and oneDNN has no quick way back through dilated depthwise
    layers: 60 channels, 25 rows, batch 100 take 3.1 ms so, 0.4 ms folded.
    """

    computes_like_its_base = True

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        count, channels, height, width = input.shape
        apart, (padding, _) = self.dilation[0], _sides(self.padding)
        rows = -(-height // apart)
        folded = F.pad(input, (0, 0, 0, rows * apart - height)).permute(0, 2, 3, 1)
        folded = folded.reshape(count, rows, apart * width, channels).permute(0, 3, 1, 2)
        found = F.conv2d(folded, weight, bias, padding=(padding // apart, 0), groups=self.groups)
        return found.permute(0, 2, 3, 1).reshape(count, -1, width, channels).permute(0, 3, 1, 2)[:, :, :height]

    @staticmethod
    def replaces(conv: nn.Conv2d) -> bool:
        (apart, beside), (padding, around) = conv.dilation, _sides(conv.padding)
        is_column = conv.kernel_size[1] == 1 and conv.stride == (1, 1) and conv.padding_mode == "zeros"
        keeps_height = (apart > 1, beside, 2 * padding, around) == (True, 1, apart * (conv.kernel_size[0] - 1), 0)
        return is_column and keeps_height and conv.groups == conv.in_channels == conv.out_channels


def _sides(padding: str | tuple[int, ...]) -> tuple[int, ...]:
    """In numbers; "same" and "valid" stay as they are and match none."""
    return (-1, -1) if isinstance(padding, str) else padding


def with_quick_kernels(net: nn.Module) -> nn.Module:
    """The network with convolutions that oneDNN is slow or unsafe at computed otherwise, in place; parameters stay."""
    for module in net.modules():
        if type(module) is not nn.Conv2d:
            continue
        is_pointwise = module.kernel_size == (1, 1) and module.padding in _NO_PADDING
        if is_pointwise and module.stride != (1, 1):
            module.__class__ = UnitStrideConv2d
        elif FoldedConv2d.replaces(module):
            module.__class__ = FoldedConv2d
    return net
