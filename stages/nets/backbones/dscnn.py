"""DS-CNN for keyword spotting (Zhang et al. 2017).

conv 10x4 -> depthwise-separable blocks (depthwise 3x3, pointwise 1x1) -> global average pool -> classes. Batch
normalisation and ReLU behind every convolution.

'dscnn' is the paper's: the first convolution keeps the map, the first depthwise has stride 2. 'MN-M' has 5 blocks of
276 channels, 'MN-L' 7. 'dscnn_mlperf' is MLPerf Tiny's DS-CNN-S: stride 2 in the first convolution, 4 blocks of 64.
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, SeparableBlock, stacked


class DsCnn(nn.Module):
    """Input NCHW, output logits."""

    def __init__(
        self, input_shape: tuple[int, int, int], classes: int, *, width: int, blocks: int, stem_stride: int
    ) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        self.stem = ConvNorm(channels, width, (10, 4), size=(height, breadth), stride=stem_stride)
        strides = [2 // stem_stride, *[1] * (blocks - 1)]
        self.blocks = stacked(self.stem, [(SeparableBlock, width, stride) for stride in strides])
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.pool(self.blocks(self.stem(x)))))
