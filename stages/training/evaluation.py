"""What a network says about examples that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def predictions(net: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor, at_once: int) -> Tensor:
    """The class of every example, on the CPU; `forward` runs `net`, which is in eval mode meanwhile."""
    was_training, device = net.training, next(net.parameters()).device
    net.eval()
    try:
        with torch.no_grad():
            return torch.cat([forward(part.to(device)).argmax(1).cpu() for part in x.split(at_once)])
    finally:
        net.train(was_training)


def accuracy(predicted: Tensor, y: Tensor) -> float:
    """Share of the examples that are told right."""
    return float((predicted == y).double().mean())
