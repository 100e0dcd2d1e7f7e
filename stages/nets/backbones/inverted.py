"""The inverted bottleneck of MobileNet-v2, EfficientNet and MCUNet."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from stages.nets.backbones.layers import Activation, ConvNorm, Size, SqueezeExcite

Shortcut = Literal["none", "identity", "projection"]


def shortcut_of(channels_in: int, channels_out: int, stride: int, *, projects: bool) -> Shortcut:
    """Around a block that keeps its map; if only the channels change, `projects` allows a 1x1 convolution."""
    if stride != 1:
        return "none"
    if channels_in == channels_out:
        return "identity"
    return "projection" if projects else "none"


class InvertedBlock(nn.Module):
    """Pointwise expansion, depthwise, optional gate, pointwise projection without activation, optional shortcut."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        *,
        size: Size,
        stride: int,
        expanded: int | None,  # None: no expansion
        shortcut: Shortcut,
        activation: Activation,
        squeezed: int | None = None,  # channels inside squeeze-and-excitation; None: none
    ) -> None:
        super().__init__()
        width = expanded or channels_in
        self.expand: nn.Module = nn.Identity()
        if expanded is not None:
            self.expand = ConvNorm(channels_in, width, 1, size=size, activation=activation)
        self.depthwise = ConvNorm(width, width, kernel, size=size, stride=stride, depthwise=True, activation=activation)
        self.excite = nn.Identity() if squeezed is None else SqueezeExcite(width, squeezed, activation)
        self.size_out = self.depthwise.size_out
        self.project = ConvNorm(width, channels_out, 1, size=self.size_out, activation="none")
        self.has_shortcut = shortcut != "none"
        self.shortcut: nn.Module = nn.Identity()
        if shortcut == "projection":
            self.shortcut = ConvNorm(channels_in, channels_out, 1, size=size, activation="none")

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.excite(self.depthwise(self.expand(x))))
        return self.shortcut(x) + y if self.has_shortcut else y
