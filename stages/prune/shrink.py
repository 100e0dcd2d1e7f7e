"""Going on with a physically smaller network: only the channels that the masks keep, optimiser state included.

Exact: a masked channel delivers zeros and nothing reads what would be computed from it, so the small network's outputs
are the masked network's. The cutting itself is `stages.nets.narrowing`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stages.nets.channels import Channels
from stages.nets.narrowing import cut_tensors


def kept_channels(masks: Sequence[Tensor]) -> list[Tensor]:
    """Indices of the channels that each group keeps."""
    return [torch.nonzero(mask, as_tuple=False).flatten() for mask in masks]


def carry_over_momentum(
    channels: Channels,
    kept: Sequence[Tensor],
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
    small = cut_tensors(channels, kept, momentum)
    for name, parameter in new_net.named_parameters():
        if name in small:
            # Same memory layout as the parameter's, so that a run resumed from a checkpoint adds in the same order.
            new_optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(small[name])
