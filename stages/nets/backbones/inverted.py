"""The inverted bottleneck of MobileNet-v2, EfficientNet and MCUNet."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from stages.nets.backbones.layers import Activation, ConvNorm, Size, SqueezeExcite

Shortcut = Literal["none", "identity", "projection"]


class InvertedBlock(nn.Module):
    """Pointwise expansion, depthwise, optional gate, pointwise projection without activation, optional shortcut.

    The shortcut goes around a block that keeps its map; `shortcut` says which ones may be had: none, one that adds the
    input as it is, or, where the channels change, a 1x1 convolution.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        *,
        kernel: int,
        size: Size,
        stride: int,
        expansion: int | None,  # None: no expansion
        activation: Activation,
        shortcut: Shortcut = "identity",
        squeeze: int | None = None,  # the gate keeps one in so many of the input channels; None: no gate
    ) -> None:
        super().__init__()
        width = channels_in * (expansion or 1)
        self.expand: nn.Module = nn.Identity()
        if expansion is not None:
            self.expand = ConvNorm(channels_in, width, 1, size=size, activation=activation)
        self.depthwise = ConvNorm(width, width, kernel, size=size, stride=stride, depthwise=True, activation=activation)
        self.excite: nn.Module = nn.Identity()
        if squeeze is not None:
            self.excite = SqueezeExcite(width, max(1, channels_in // squeeze), activation)
        self.size_out = self.depthwise.size_out
        self.project = ConvNorm(width, channels_out, 1, size=self.size_out, activation="none")
        keeps_channels = channels_in == channels_out
        self.has_shortcut = stride == 1 and (keeps_channels if shortcut == "identity" else shortcut == "projection")
        self.shortcut: nn.Module = nn.Identity()
        if self.has_shortcut and not keeps_channels:
            self.shortcut = ConvNorm(channels_in, channels_out, 1, size=size, activation="none")

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.excite(self.depthwise(self.expand(x))))
        return self.shortcut(x) + y if self.has_shortcut else y
