"""Making a masked network physically smaller: only the channels that its masks keep, weights and optimiser state alike.

Exact: a masked channel delivers zeros and nothing reads what would be computed from it, so the small network's outputs
are the masked network's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stages.prune.channels import Channels, Layer


def kept_channels(masks: Sequence[Tensor]) -> list[Tensor]:
    """Indices of the channels that each group keeps."""
    return [torch.nonzero(mask, as_tuple=False).flatten() for mask in masks]


def shrunk_tensors(channels: Channels, masks: Sequence[Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors`, named like the network's parameters and statistics, cut to the channels that the masks keep."""
    kept = kept_channels(masks)
    small = dict(tensors)
    for layer in channels.layers:
        for name in list(small):
            path, _, leaf = name.rpartition(".")
            if path == layer.weight and leaf == "weight":
                small[name] = _cut_weight(layer, channels, kept, small[name])
            elif path in (layer.weight, layer.norm) and small[name].dim() == 1 and layer.group_out is not None:
                small[name] = small[name][kept[layer.group_out]].clone()
    return small


def _cut_weight(layer: Layer, channels: Channels, kept: Sequence[Tensor], weight: Tensor) -> Tensor:
    """Rows are output channels; columns are input channels, or their map positions (CHW) behind a flattening."""
    if layer.group_out is not None:
        weight = weight[kept[layer.group_out]]
    if layer.group_in is not None and not layer.depthwise:
        indices, width = kept[layer.group_in], channels.widths[layer.group_in]
        positions = weight.shape[1] // width
        columns = (indices[:, None] * positions + torch.arange(positions)).flatten()
        weight = weight[:, columns]
    return weight.clone(memory_format=torch.contiguous_format)


def carry_over_momentum(
    channels: Channels,
    masks: Sequence[Tensor],
    old: tuple[nn.Module, torch.optim.SGD],
    new: tuple[nn.Module, torch.optim.SGD],
) -> None:
    """Give the small network's optimiser the momentum that the big network's optimiser had."""
    old_net, old_optimiser = old
    new_net, new_optimiser = new
    momentum = {
        name: old_optimiser.state[parameter]["momentum_buffer"]
        for name, parameter in old_net.named_parameters()
        if old_optimiser.state.get(parameter, {}).get("momentum_buffer") is not None
    }
    small = shrunk_tensors(channels, masks, momentum)
    for name, parameter in new_net.named_parameters():
        if name in small:
            # Same memory layout as the parameter's, so that a run resumed from a checkpoint adds in the same order.
            new_optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(small[name])
