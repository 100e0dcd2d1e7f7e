"""EfficientNet-B0 (Tan & Le 2019).

conv 3x3, stride 2 -> 16 inverted bottlenecks with squeeze-and-excitation -> global average pool -> classes.

Two differences to the published network. Behind the last block it has a 1x1 convolution to 1280 channels; the paper's
figures (3.66 M, 187.6 M MACs) are those without it. And its swish is Hardswish here, which the int8 kernels have.
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.inverted import InvertedBlock, shortcut_of
from stages.nets.backbones.layers import ConvNorm, Head, scaled

_STEM = 32
_SQUEEZE = 4  # squeeze-and-excitation keeps a quarter of the block's input channels
# Expansion, kernel, channels, blocks, stride of the first block.
_STAGES = (
    (1, 3, 16, 1, 1),
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
        size = self.stem.size_out
        blocks: list[InvertedBlock] = []
        for expansion, kernel, full, count, first_stride in _STAGES:
            channels_out = scaled(full, width_multiplier)
            for number in range(count):
                stride = 1 if number else first_stride
                blocks.append(
                    InvertedBlock(
                        width,
                        channels_out,
                        kernel,
                        size=size,
                        stride=stride,
                        expanded=width * expansion if expansion > 1 else None,
                        shortcut=shortcut_of(width, channels_out, stride, projects=False),
                        activation="hard_swish",
                        squeezed=max(1, width // _SQUEEZE),
                    )
                )
                size, width = blocks[-1].size_out, channels_out
        self.blocks = nn.Sequential(*blocks)
        self.head = Head(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
