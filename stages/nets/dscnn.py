"""DS-CNN for keyword spotting (Zhang et al. 2017) in the paper's sizes: 'MN-M' has 5 blocks of 276 channels, 'MN-L' 7.

conv 10x4, stride 1 -> depthwise-separable blocks (depthwise 3x3, pointwise 1x1), the first depthwise with stride 2
-> global average pool -> classes. Batch normalisation and ReLU behind every convolution; 'same' padding.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from stages.nets.layers import ConvNormRelu


class SeparableBlock(nn.Module):
    """Depthwise 3x3, then pointwise."""

    def __init__(self, channels_in: int, channels_out: int, *, size: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__()
        self.depthwise = ConvNormRelu(channels_in, channels_in, (3, 3), size=size, stride=stride, depthwise=True)
        self.pointwise = ConvNormRelu(channels_in, channels_out, (1, 1), size=size)

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x))


class DsCnn(nn.Module):
    """`widths`: channels of the first convolution and of each block's pointwise; input NCHW, output logits."""

    def __init__(self, widths: Sequence[int], *, input_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        height, width, channels = input_shape
        size = (height, width)
        self.stem = ConvNormRelu(channels, widths[0], (10, 4), size=size)
        blocks: list[SeparableBlock] = []
        for channels_in, channels_out in zip(widths, widths[1:], strict=False):
            stride = (1, 1) if blocks else (2, 2)
            blocks.append(SeparableBlock(channels_in, channels_out, size=size, stride=stride))
            size = (-(-size[0] // stride[0]), -(-size[1] // stride[1]))
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.pool(self.blocks(self.stem(x)))))
