"""MCUNet-S and MCUNet-M for ImageNet (Lin et al. 2020): what TinyNAS found for 256 KB and 320 KB of RAM.

conv 3x3, stride 2 -> a depthwise-separable block -> inverted bottlenecks with expansions 3 to 6 and kernels 3 to 7 ->
global average pool -> classes; ReLU6. Kernels, expansions and widths are those of the authors' model zoo. The published
networks have width multiplier 0.5, S for 160x160 and M for 176x176 images, and then the figures that the paper prints;
the paper starts from the full width, 1.0, and prunes to those figures.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from torch import Tensor, nn

from stages.nets.backbones.inverted import InvertedBlock
from stages.nets.backbones.layers import ConvNorm, Head, scaled, stacked

_STEM, _FIRST = 32, 16
# Channels at full width, stride of the first block.
_STAGES = ((24, 2), (40, 2), (80, 2), (96, 1), (192, 2), (320, 1))
# For each stage its blocks: expansion, kernel.
_BLOCKS = {
    "s": (
        ((3, 5), (6, 7), (5, 3), (5, 5)),
        ((5, 3), (6, 7), (6, 5)),
        ((4, 7), (5, 5)),
        ((5, 3), (5, 5), (4, 3)),
        ((6, 5), (4, 5), (3, 5), (4, 3)),
        ((5, 5),),
    ),
    "m": (
        ((3, 7), (5, 3), (5, 7), (4, 5)),
        ((5, 5), (5, 5), (5, 5)),
        ((5, 3), (6, 7), (4, 5)),
        ((5, 5), (5, 7), (5, 3)),
        ((6, 3), (5, 7), (4, 3)),
        ((5, 7),),
    ),
}


class McuNet(nn.Module):
    """Input NCHW, output logits."""

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        classes: int,
        *,
        variant: Literal["s", "m"],
        width_multiplier: float,
    ) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        stem = scaled(_STEM, width_multiplier)
        self.stem = ConvNorm(channels, stem, 3, size=(height, breadth), stride=2, activation="relu6")
        block = partial(InvertedBlock, activation="relu6")
        first = partial(block, kernel=3, expansion=None, shortcut="none")
        rows = [(first, scaled(_FIRST, width_multiplier), 1)]
        rows += [
            (
                partial(block, kernel=kernel, expansion=expansion),
                scaled(full, width_multiplier),
                1 if number else stride,
            )
            for (full, stride), stage in zip(_STAGES, _BLOCKS[variant], strict=True)
            for number, (expansion, kernel) in enumerate(stage)
        ]
        self.blocks = stacked(self.stem, rows)
        self.head = Head(rows[-1][1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
