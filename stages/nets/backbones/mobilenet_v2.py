"""MobileNet-v2 (Sandler et al. 2018) for any image size and width multiplier.

conv 3x3, stride 2 -> 17 inverted bottlenecks -> conv 1x1 -> global average pool -> classes; batch normalisation behind
every convolution, ReLU6 behind all but the projections.

The figures in the paper's table belong to the published network plus two things, which `extras` adds: an expansion in
the first block too (32 -> 32), and a 1x1 convolution as the shortcut of each block that keeps its map and changes its
channels (32 -> 16, 64 -> 96, 160 -> 320).
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.inverted import InvertedBlock, shortcut_of
from stages.nets.backbones.layers import ConvNorm, Head, scaled

_STEM, _LAST = 32, 1280
# Expansion, channels, blocks, stride of the first block.
_STAGES = (
    (1, 16, 1, 1),
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
        size = self.stem.size_out
        blocks: list[InvertedBlock] = []
        for expansion, full, count, first_stride in _STAGES:
            channels_out = scaled(full, width_multiplier)
            for number in range(count):
                stride = 1 if number else first_stride
                blocks.append(
                    InvertedBlock(
                        width,
                        channels_out,
                        3,
                        size=size,
                        stride=stride,
                        expanded=width * expansion if expansion > 1 or extras else None,
                        shortcut=shortcut_of(width, channels_out, stride, projects=extras),
                        activation="relu6",
                    )
                )
                size, width = blocks[-1].size_out, channels_out
        self.blocks = nn.Sequential(*blocks)
        last = scaled(_LAST, max(1.0, width_multiplier))  # never narrowed, as published
        self.last = ConvNorm(width, last, 1, size=size, activation="relu6")
        self.head = Head(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(self.blocks(self.stem(x))))
