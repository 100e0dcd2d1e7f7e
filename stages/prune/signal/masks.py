"""Which channels stay, by their salience, and running a network with the others masked.

For training the mask is folded into the scale and offset of batch normalisation, which costs nothing:
ReLU(0 * z + 0) = 0. That loses the gradient of a masked channel, so the task loss, which asks for it, multiplies where
channels leave their group instead: in front of the convolutions and linear layers that mix them. Further up would not
do: ReLU(0 + 0) behind a sum of two masked maps has no slope either.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from stages.graph.from_torch.walk import place
from stages.nets.channels import Axis, Channels, Layer


def saliences(net: nn.Module, channels: Channels) -> list[Tensor]:
    """Importance of every channel of every group: the largest over the group's layers.

    A norm of weights is no gamma: where a group has layers with batch normalisation, only those count (the gate of a
    squeeze-and-excitation has none).
    """
    found = []
    for group, width in enumerate(channels.widths):
        layers = channels.of_group(group)
        normalised = [layer for layer in layers if layer.norm is not None]
        by_layer = [
            _of_group(_layer_salience(net, layer), layer.outputs, group, width) for layer in normalised or layers
        ]
        found.append(reduce(torch.maximum, by_layer))
    return found


def _of_group(salience: Tensor, axis: Axis, group: int, width: int) -> Tensor:
    """The saliences of a group's channels from those of an axis: the largest, of one that is there several times."""
    if axis.whole == group:
        return salience
    there = (axis.groups == group).to(salience.device)
    numbers = axis.numbers.to(salience.device)[there]
    return salience.new_zeros(width).scatter_reduce(0, numbers, salience[there], "amax")


def _layer_salience(net: nn.Module, layer: Layer) -> Tensor:
    """|gamma| where there is batch normalisation, else the L2 norm of the weights into the channel."""
    if layer.norm is not None:
        return net.get_parameter(f"{layer.norm}.weight").detach().abs()
    return net.get_parameter(f"{layer.weight}.weight").detach().flatten(1).norm(dim=1)


def top_masks(salience: Sequence[Tensor], widths: Sequence[int]) -> list[Tensor]:
    """1 for the most salient channels of every group, 0 for the rest; among equals the first ones stay.

    Top-k, not 's > threshold' as the paper writes: at the start all gammas are equal and a threshold would mask all.
    """
    masks = []
    for values, width in zip(salience, widths, strict=True):
        kept = torch.sort(values, descending=True, stable=True).indices[:width]
        masks.append(torch.zeros_like(values).index_fill_(0, kept, 1.0))
    return masks


def folded_forward(net: nn.Module, channels: Channels, masks: Sequence[Tensor], x: Tensor) -> Tensor:
    """The masked network's output, the masks folded into its parameters; gradients reach the parameters."""
    masked: dict[str, Tensor] = {}
    for layer in channels.layers:
        if layer.masked:
            mask = layer.outputs.values(masks)
            path = layer.norm or layer.weight
            for name in (f"{path}.weight", f"{path}.bias"):
                parameter = _parameter(net, name)
                if parameter is not None:
                    masked[name] = parameter * mask.reshape(-1, *[1] * (parameter.dim() - 1))
    return functional_call(net, masked, (x,))


def explicit_forward(channels: Channels, masks: Sequence[Tensor], x: Tensor) -> Tensor:
    """The same output, masks multiplied in front of what reads a group; gradients reach all masks, also those of 0.

    A mask has one value per channel, or one per example and channel.
    """
    readers = {
        layer.weight: layer.inputs.values(masks)
        for layer in channels.layers
        if layer.weight is not None and layer.inputs.can_shrink and not layer.depthwise
    }
    return _MaskingInterpreter(channels.module, readers).run(x)


class _MaskingInterpreter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, masks: dict[str, Tensor]) -> None:
        super().__init__(module)
        self.masks = masks

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask = self.masks.get(target)
        if mask is not None:
            x = args[0] if args else kwargs["input"]
            positions = x.shape[1] // mask.shape[-1]  # of a flattened map, channel after channel
            mask = mask.repeat_interleave(positions, dim=-1)
            args, kwargs = (x * mask.reshape(-1, x.shape[1], *[1] * (x.dim() - 2)),), {}
        return super().call_module(target, args, kwargs)


class _FiniteInterpreter(fx.Interpreter):
    """Remembers the first node whose result is not finite."""

    first: str | None = None

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if self.first is None and isinstance(result, Tensor) and not bool(torch.isfinite(result).all()):
            self.first = place(n)
        return result


def first_broken_layer(channels: Channels, x: Tensor) -> str | None:
    """Path of the first layer whose output holds NaN or infinity."""
    interpreter = _FiniteInterpreter(channels.module)
    with torch.no_grad():
        interpreter.run(x)
    return interpreter.first


def _parameter(net: nn.Module, name: str) -> Tensor | None:
    path, _, leaf = name.rpartition(".")
    found = getattr(net.get_submodule(path), leaf)
    assert found is None or isinstance(found, Tensor)
    return found
