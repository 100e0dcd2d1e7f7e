"""MobileNet-v2 (Sandler et al. 2018) for any image size and width multiplier.

conv 3x3, stride 2 -> 17 inverted bottlenecks -> conv 1x1 -> global average pool -> classes; batch normalisation behind
every convolution, ReLU6 behind all but the projections.

The figures in the paper's table belong to the published network plus two things, which `extras` adds: an expansion in
the first block too (32 -> 32), and a 1x1 convolution as the shortcut of each block that keeps its map and changes its
channels (32 -> 16, 64 -> 96, 160 -> 320).
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from stages.nets.backbones.inverted import InvertedBlock
from stages.nets.backbones.layers import ConvNorm, Head, scaled, stacked

_STEM, _LAST = 32, 1280
# Expansion (None: no such layer), channels, blocks, stride of the first block.
_STAGES = (
    (None, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class MobileNetV2(nn.Module):
    """Input NCHW, output logits."""

    def __init__(
        self, input_shape: tuple[int, int, int], classes: int, *, width_multiplier: float, extras: bool
    ) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        width = scaled(_STEM, width_multiplier)
        self.stem = ConvNorm(channels, width, 3, size=(height, breadth), stride=2, activation="relu6")
        first, shortcut = (1, "projection") if extras else (None, "identity")
        block = partial(InvertedBlock, kernel=3, activation="relu6", shortcut=shortcut)
        rows = [
            (partial(block, expansion=expansion or first), scaled(full, width_multiplier), 1 if number else stride)
            for expansion, full, count, stride in _STAGES
            for number in range(count)
        ]
        self.blocks = stacked(self.stem, rows)
        last = scaled(_LAST, max(1.0, width_multiplier))  # never narrowed, as published
        self.last = ConvNorm(rows[-1][1], last, 1, size=self.blocks[-1].size_out, activation="relu6")
        self.head = Head(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.blocks(self.stem(x))))
