"""VGG-16 for CIFAR-10 (Simonyan & Zisserman 2015, with batch normalisation and a single fully connected layer).

13 convolutions 3x3 with batch normalisation and ReLU; max pooling 2x2 behind the 2nd, 4th, 7th, 10th and 13th, which
leaves one pixel of a 32x32 image.
"""

from __future__ import annotations

from torch import Tensor, nn

from stages.nets.backbones.layers import ConvNorm, scaled

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions


class Vgg16(nn.Module):
    """Input NCHW, output logits."""

    def __init__(self, input_shape: tuple[int, int, int], classes: int, *, width_multiplier: float) -> None:
        super().__init__()
        height, breadth, channels = input_shape
        size = (height, breadth)
        if min(size) < 1 << len(_STAGES):
            raise ValueError("needed at least 32x32, five times halved")
        stages: list[nn.Module] = []
        for full, convolutions in _STAGES:
            width = scaled(full, width_multiplier)
            layers: list[nn.Module] = []
            for _ in range(convolutions):
                layers.append(ConvNorm(channels, width, 3, size=size))
                channels = width
            stages.append(nn.Sequential(*layers, nn.MaxPool2d(2)))
            size = (size[0] // 2, size[1] // 2)
        self.stages = nn.Sequential(*stages)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(channels * size[0] * size[1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.flatten(self.stages(x)))
