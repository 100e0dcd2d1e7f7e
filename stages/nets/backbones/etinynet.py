"""EtinyNet for ImageNet (Xu et al. 2022).

conv 3x3, stride 2 -> linear depthwise blocks (depthwise without activation, pointwise, a second depthwise) -> dense
ones, which have shortcuts around both halves -> global average pool -> classes. The original takes 224x224 images and
halves them by max pooling behind the first convolution; the paper takes 112x112 and leaves the pooling out. Batch
normalisation stands directly behind every convolution, where it can be folded (the authors have it behind the ReLU).

A dense block adds its input, where it fits, both to the pointwise result and to the end. The second of these sums is
inferred: only with it are the MACs of the paper's x0.75 row met (63.35 M; 63.28 M without).
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, Head, Size, stacked

_STEM = 32
# Channels of each block; the first of a stage but the first halves the map; whether its blocks are dense.
_STAGES = (
    ((32, 32, 32, 32), False),
    ((128, 128, 128, 128), False),
    ((192, 192, 192), True),
    ((256, 256, 512), True),
)


class LinearDepthwiseBlock(nn.Module):
    """Depthwise without activation, pointwise, depthwise; in a dense one every result is added to all later ones."""

    def __init__(self, channels_in: int, channels_out: int, *, size: Size, stride: int, dense: bool) -> None:
        super().__init__()
        self.spread = ConvNorm(channels_in, channels_in, 3, size=size, stride=stride, depthwise=True, activation="none")
        self.size_out = self.spread.size_out
        self.pointwise = ConvNorm(channels_in, channels_out, 1, size=self.size_out)
        self.depthwise = ConvNorm(channels_out, channels_out, 3, size=self.size_out, depthwise=True)
        self.adds_input = dense and stride == 1 and channels_in == channels_out
        self.adds_middle = dense

    def forward(self, x: Tensor) -> Tensor:
        y = self.pointwise(self.spread(x))
        if self.adds_input:
            y = y + x
        z = self.depthwise(y)
        if self.adds_middle:
            z = z + y
        return z + x if self.adds_input else z


class EtinyNet(nn.Module):
    """Input NCHW, output logits."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, *, width_multiplier: float) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        self.stem = ConvNorm(channels, int(_STEM * width_multiplier), 3, size=(height, breadth), stride=2)
        rows = [
            (partial(LinearDepthwiseBlock, dense=dense), int(full * width_multiplier), 2 if stage and not number else 1)
            for stage, (counts, dense) in enumerate(_STAGES)
            for number, full in enumerate(counts)
        ]
        self.blocks = stacked(self.stem, rows)
        self.head = Head(rows[-1][1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))
