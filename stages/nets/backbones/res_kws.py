"""RES-8 and RES-15 for keyword spotting (Tang & Lin 2018), 45 maps.

conv 3x3 -> 3x3 convolutions in pairs with a shortcut around each pair -> global average pool -> classes. RES-8 first
averages over windows of 4x3, which fit into the map whole, and has 3 pairs. RES-15 has 6 pairs and a last single
convolution, the dilation doubling with every third of the 13 (1, 1, 1, 2, 2, 2, 4, ... 16). Batch normalisation and
ReLU behind every convolution; sums are not rectified. (The original normalises behind the sum, where it could not be
folded.)
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, Size


class Pair(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, width: int, *, size: Size, dilations: tuple[int, int]) -> None:
        super().__init__()
        self.first = ConvNorm(width, width, 3, size=size, dilation=dilations[0])
        self.second = ConvNorm(width, width, 3, size=size, dilation=dilations[1])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))


class ResKws(nn.Module):
    """`convolutions` are those behind the stem; an odd last one has no shortcut. Input NCHW, output logits."""

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        classes: int,
        *,
        width: int,
        convolutions: int,
        dilated: bool,
        pooled: Size | None,
    ) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        size = (height, breadth)
        self.stem = ConvNorm(channels, width, 3, size=size)
        self.shrink: nn.Module = nn.Identity()
        if pooled is not None:
            self.shrink = nn.AvgPool2d(pooled)
            size = (height // pooled[0], breadth // pooled[1])
            if min(size) < 1:
                raise ValueError(f"needed at least {pooled[0]}x{pooled[1]}, the first pooling window")
        spread = [2 ** (number // 3) if dilated else 1 for number in range(convolutions)]
        layers: list[nn.Module] = [
            Pair(width, size=size, dilations=(first, second))
            for first, second in zip(spread[::2], spread[1::2], strict=False)
        ]
        if convolutions % 2:
            layers.append(ConvNorm(width, width, 3, size=size, dilation=spread[-1]))
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.pool(self.layers(self.shrink(self.stem(x))))))
