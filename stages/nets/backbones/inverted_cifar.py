"""Inverted bottlenecks for pictures of 32 pixels: depth for few weights, in the spirit of MobileNet-v2.

conv 3x3, stride 1 -> 10 inverted bottlenecks at 16, 8 and 4 pixels -> conv 1x1 -> global average pool -> classes; batch
normalisation behind every convolution, ReLU6 behind all but the projections. MobileNet-v2 itself halves the map four
times before it has seen much of so small a picture.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from stages.nets.backbones.inverted import InvertedBlock
from stages.nets.backbones.layers import ConvNorm, Head, scaled, stacked

_STEM, _LAST = 16, 160
_STAGES = ((3, 24, 3, 2), (4, 40, 4, 2), (4, 64, 3, 2))  # expansion, channels, blocks, stride of the first block


class InvertedCifar(nn.Module):
    """Input NCHW, output logits."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, *, width_multiplier: float) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        self.stem = ConvNorm(channels, scaled(_STEM, width_multiplier), 3, size=(height, breadth), activation="relu6")
        rows = [
            (
                partial(InvertedBlock, kernel=3, activation="relu6", expansion=expansion),
                scaled(full, width_multiplier),
                1 if number else stride,
            )
            for expansion, full, count, stride in _STAGES
            for number in range(count)
        ]
        self.blocks = stacked(self.stem, rows)
        last = scaled(_LAST, width_multiplier)
        self.last = ConvNorm(rows[-1][1], last, 1, size=self.blocks[-1].size_out, activation="relu6")
        self.head = Head(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.blocks(self.stem(x))))
