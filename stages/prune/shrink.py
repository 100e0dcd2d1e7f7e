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


def carry_over_optimiser(
    channels: Channels, kept: Sequence[Tensor], big: nn.Module, small: nn.Module, optimiser: torch.optim.Optimizer
) -> None:
    """Let the big network's optimiser go on with the small one, in place; momentum and the like are cut, too.

    What it holds beside the network's parameters stays.
    """
    parameters = dict(small.named_parameters())
    name_of = {parameter: name for name, parameter in big.named_parameters() if parameter in optimiser.state}
    shaped: dict[str, dict[str, Tensor]] = {}  # by what it is, such as momentum_buffer, then by parameter
    for parameter, name in name_of.items():
        state = optimiser.state.pop(parameter)
        optimiser.state[parameters[name]] = state
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                shaped.setdefault(key, {})[name] = value
    for key, values in shaped.items():
        cut = cut_tensors(channels, kept, values)
        for name in values:
            # Same memory layout as the parameter's, so that a run resumed from a checkpoint adds in the same order.
            optimiser.state[parameters[name]][key] = torch.empty_like(parameters[name]).copy_(cut[name])
    replaced = {parameter: parameters[name] for name, parameter in big.named_parameters()}
    for group in optimiser.param_groups:
        group["params"] = [replaced.get(parameter, parameter) for parameter in group["params"]]
