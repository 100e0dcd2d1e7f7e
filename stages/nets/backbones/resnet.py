"""Residual networks for CIFAR-10 (He et al. 2016): ResNet-18, and MLPerf Tiny's ResNet-8.

conv 3x3 -> stages of basic blocks (two 3x3 convolutions, a shortcut, ReLU behind the sum), each but the first stage
halving the map and doubling the channels -> global average pool -> classes. Where a block changes its map, the shortcut
is a 1x1 convolution. ResNet-18: 64 channels, 4 stages of 2 blocks; ResNet-8: 16 channels, 3 stages of 1 block.
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, Head, Size, stacked


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, *, size: Size, stride: int) -> None:
        super().__init__()
        self.first = ConvNorm(channels_in, channels_out, 3, size=size, stride=stride)
        self.second = ConvNorm(channels_out, channels_out, 3, size=self.first.size_out, activation="none")
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = ConvNorm(channels_in, channels_out, 1, size=size, stride=stride, activation="none")
        self.act = nn.ReLU()
        self.size_out = self.first.size_out

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.second(self.first(x)) + self.shortcut(x))


class ResNet(nn.Module):
    """Input NCHW, output logits."""

    def __init__(
        self, input_shape: tuple[int, int, int], classes: int, *, width: int, stages: int, blocks: int
    ) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        self.stem = ConvNorm(channels, width, 3, size=(height, breadth))
        rows = [
            (BasicBlock, width << stage, 2 if stage and not block else 1)
            for stage in range(stages)
            for block in range(blocks)
        ]
        self.blocks = stacked(self.stem, rows)
        self.head = Head(rows[-1][1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
