"""Building blocks that the backbones share: convolution with batch normalisation, squeeze-and-excitation, the head.

Maps shrink as in TensorFlow: 'same' padding, output = ceil(input / stride). What a layer pads depends on the size of
the map it is given, so every block is built for a size and says which one it delivers (`size_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from torch import Tensor, nn

from stages.graph.padding import zero_pads

Size = tuple[int, int]  # height, width of a map
Activation = Literal["none", "relu", "relu6", "hard_swish"]

_ACTIVATIONS = {"relu": nn.ReLU, "relu6": nn.ReLU6, "hard_swish": nn.Hardswish}


def activation_layer(name: Activation) -> nn.Module:
    """In place: a fifth less time per step, because there is one map less to write."""
    return nn.Identity() if name == "none" else _ACTIVATIONS[name](inplace=True)


def scaled(channels: int, multiplier: float, multiple: int = 8) -> int:
    """Channels times a width multiplier, to the nearest `multiple`, losing at most a tenth (as MobileNets round)."""
    rounded = max(multiple, int(channels * multiplier + multiple / 2) // multiple * multiple)
    return rounded + multiple if rounded < 0.9 * channels * multiplier else rounded


class ConvNorm(nn.Module):
    """Convolution with TensorFlow's 'same' padding for maps of size `size`, batch normalisation, activation."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int | Size,
        *,
        size: Size,
        stride: int | Size = 1,
        dilation: int | Size = 1,
        depthwise: bool = False,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        taps, steps, spread = _pair(kernel), _pair(stride), _pair(dilation)
        top, bottom, left, right = zero_pads(size, taps, steps, spread, "same")
        symmetric = top == bottom and left == right
        # The convolution pads for free, but only symmetrically.
        self.pad = nn.Identity() if symmetric else nn.ZeroPad2d((left, right, top, bottom))
        self.conv = nn.Conv2d(
            channels_in,
            channels_out,
            taps,
            steps,
            padding=(top, left) if symmetric else 0,
            dilation=spread,
            groups=channels_in if depthwise else 1,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(channels_out)
        self.act = activation_layer(activation)
        self.size_out: Size = (-(-size[0] // steps[0]), -(-size[1] // steps[1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(self.pad(x))))


class SeparableBlock(nn.Module):
    """Depthwise 3x3, then pointwise."""

    def __init__(self, channels_in: int, channels_out: int, *, size: Size, stride: int) -> None:
        super().__init__()
        self.depthwise = ConvNorm(channels_in, channels_in, 3, size=size, stride=stride, depthwise=True)
        self.pointwise = ConvNorm(channels_in, channels_out, 1, size=self.depthwise.size_out)
        self.size_out = self.pointwise.size_out

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x))


def stacked(stem: ConvNorm, rows: Iterable[tuple[Callable[..., nn.Module], int, int]]) -> nn.Sequential:
    """Blocks behind `stem`, each for the map that the one before delivers; a row: kind, output channels, stride."""
    blocks: list[nn.Module] = []
    width, size = stem.conv.out_channels, stem.size_out
    for block, channels_out, stride in rows:
        blocks.append(block(width, channels_out, size=size, stride=stride))
        width, size = channels_out, blocks[-1].size_out
    return nn.Sequential(*blocks)


class SqueezeExcite(nn.Module):
    """Every channel times a gate in (0, 1) that is computed from the means of all channels (Hu et al. 2018)."""

    def __init__(self, channels: int, squeezed: int, activation: Activation) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.act = activation_layer(activation)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class Head(nn.Module):
    """Mean over the map, then one score per class."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.pool(x)))


def _pair(value: int | Size) -> Size:
    return (value, value) if isinstance(value, int) else value
