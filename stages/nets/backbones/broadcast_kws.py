"""Broadcast-residual network for keyword spotting, after BC-ResNet (Kim et al. 2021, arXiv:2106.04140), for int8.

A block looks along the frequencies of each moment (depthwise 1x3), takes the mean over them, looks along time there
(depthwise 3x1, dilated, then pointwise: on one column instead of the whole map) and adds what it found to every
frequency again. So almost all of its channels' products are computed on a map a tenth as large.

    conv 5x5 -> 2, 2, 4, 4 blocks of 1, 1.5, 2, 2.5 times `width` channels
             -> depthwise over five moments and all frequencies, pointwise -> mean, classes

The first block of a stage changes the channels and has no shortcut; stages 2 and 3 halve the frequencies. For int8 the
activation is ReLU instead of swish, and batch normalisation, which folds into the convolutions, stands in the place of
sub-spectral normalisation, which does not: its statistics differ from band to band. Without dropout. Time is the height
of a map, frequency its width.
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, Head, Size

# Blocks, channels in halves of `width`, stride along the frequencies, dilation along time.
_MOST_BANDS = 20  # of a finer picture (log-mel) the stem halves both sides: a quarter of the work behind it
_STAGES = ((2, 2, 1, 1), (2, 3, 2, 2), (4, 4, 2, 4), (4, 5, 1, 8))


class BroadcastBlock(nn.Module):
    """Along the frequencies, and along time on their mean; a shortcut around both where the channels stay."""

    def __init__(self, channels_in: int, channels_out: int, *, size: Size, stride: int, dilation: int) -> None:
        super().__init__()
        self.has_shortcut = channels_in == channels_out and stride == 1
        self.enter: nn.Module = nn.Identity()
        if not self.has_shortcut:
            self.enter = ConvNorm(channels_in, channels_out, 1, size=size)
        self.spectral = ConvNorm(
            channels_out, channels_out, (1, 3), size=size, stride=(1, stride), depthwise=True, activation="none"
        )
        self.size_out = self.spectral.size_out
        self.mean = nn.AvgPool2d((1, self.size_out[1]))
        column = (self.size_out[0], 1)
        self.temporal = ConvNorm(
            channels_out, channels_out, (3, 1), size=column, dilation=(dilation, 1), depthwise=True
        )
        self.pointwise = ConvNorm(channels_out, channels_out, 1, size=column, activation="none")
        self.act = nn.ReLU(inplace=True)
        # A block begins as what leads around its branches: without that the first epochs learn next to nothing.
        nn.init.zeros_(self.pointwise.norm.weight)
        if self.has_shortcut:
            nn.init.zeros_(self.spectral.norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        spectral = self.spectral(entered)
        found = spectral + self.pointwise(self.temporal(self.mean(spectral)))
        return self.act(entered + found if self.has_shortcut else found)


class BroadcastKws(nn.Module):
    """Input NCHW, output logits."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, *, width: int) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        stride = 2 if breadth > _MOST_BANDS else 1
        self.stem = ConvNorm(channels, 2 * width, 5, size=(height, breadth), stride=stride)
        blocks: list[nn.Module] = []
        before, size = 2 * width, self.stem.size_out
        for count, halves, stride, dilation in _STAGES:
            for number in range(count):
                wide, step = max(1, width * halves // 2), 1 if number else stride
                blocks.append(BroadcastBlock(before, wide, size=size, stride=step, dilation=dilation))
                before, size = wide, blocks[-1].size_out
        self.blocks = nn.Sequential(*blocks)
        whole = (1, size[1])  # one column is left
        self.depthwise = ConvNorm(before, before, (5, size[1]), size=size, stride=whole, depthwise=True)
        self.pointwise = ConvNorm(before, 4 * width, 1, size=self.depthwise.size_out)
        self.head = Head(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pointwise(self.depthwise(self.blocks(self.stem(x)))))
