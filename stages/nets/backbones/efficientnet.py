"""EfficientNet-B0 (Tan & Le 2019).

conv 3x3, stride 2 -> 16 inverted bottlenecks with squeeze-and-excitation -> global average pool -> classes.

Two differences to the published network. Behind the last block it has a 1x1 convolution to 1280 channels; the paper's
figures (3.66 M, 187.6 M MACs) are those without it. And its swish is Hardswish here, which the int8 kernels have.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from stages.nets.backbones.inverted import InvertedBlock
from stages.nets.backbones.layers import ConvNorm, Head, scaled, stacked

_STEM = 32
_SQUEEZE = 4  # squeeze-and-excitation keeps a quarter of the block's input channels
# Expansion (None: no such layer), kernel, channels, blocks, stride of the first block.
_STAGES = (
    (None, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)


class EfficientNetB0(nn.Module):
    """Input NCHW, output logits."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, *, width_multiplier: float) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        width = scaled(_STEM, width_multiplier)
        self.stem = ConvNorm(channels, width, 3, size=(height, breadth), stride=2, activation="hard_swish")
        block = partial(InvertedBlock, activation="hard_swish", squeeze=_SQUEEZE)
        rows = [
            (
                partial(block, kernel=kernel, expansion=expansion),
                scaled(full, width_multiplier),
                1 if number else stride,
            )
            for expansion, kernel, full, count, stride in _STAGES
            for number in range(count)
        ]
        self.blocks = stacked(self.stem, rows)
        self.head = Head(rows[-1][1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
