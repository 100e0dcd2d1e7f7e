"""MobileNet-v1 (Howard et al. 2017); MLPerf Tiny's person detector is the one with multiplier 0.25 for 96x96 images.

conv 3x3, stride 2 -> 13 depthwise-separable blocks -> global average pool -> classes; batch normalisation and ReLU
behind every convolution.
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, Head, SeparableBlock, scaled, stacked

_STEM = 32
# Channels and stride of each block.
_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


class MobileNetV1(nn.Module):
    """Input NCHW, output logits."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, *, width_multiplier: float) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        rows = [(SeparableBlock, scaled(full, width_multiplier), stride) for full, stride in _BLOCKS]
        self.stem = ConvNorm(channels, scaled(_STEM, width_multiplier), 3, size=(height, breadth), stride=2)
        self.blocks = stacked(self.stem, rows)
        self.head = Head(rows[-1][1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
