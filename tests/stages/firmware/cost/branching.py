"""A small network that branches: pointwise, depthwise and 3x3 layers, a sum, a pool, a classifier."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SHAPE = (16, 12, 3)


def layer(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class Branching(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.stem = layer(3, width, 3, 2)
        self.one = nn.Sequential(layer(width, width, 3, groups=width), layer(width, 2 * width, 1))
        self.two = layer(width, 2 * width, 3)
        self.end = layer(2 * width, width, 1)
        self.classify = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.end(self.one(x) + self.two(x))
        return self.classify(torch.flatten(nn.functional.avg_pool2d(x, (8, 6)), 1))
