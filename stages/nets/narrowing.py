"""A network with fewer channels: every Conv2d, BatchNorm and Linear cut to the channels that its groups keep.

Works for any network whose channels `find_channels` understands; nothing else of it changes. Exact: a masked channel
delivers zeros and nothing reads what would be computed from it, so the small network's outputs are those of the masked.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pipeline.errors import StageError
from stages.nets.channels import Channels, Layer


def first_channels(channels: Channels, widths: Sequence[int], title: str) -> list[Tensor]:
    """The first channels of each group, as many as `widths` says."""
    fits = len(widths) == len(channels.widths) and all(
        1 <= width <= full for width, full in zip(widths, channels.widths, strict=True)
    )
    if not fits:
        raise StageError(
            f"{title}: widths {list(widths)}, needed {len(channels.widths)}, one per channel group, "
            f"from 1 to {list(channels.widths)}"
        )
    return [torch.arange(width) for width in widths]


def narrowed(net: nn.Module, channels: Channels, kept: Sequence[Tensor]) -> nn.Module:
    """A copy of `net`, weights included, with only the channels `kept` (indices) of each group."""
    small = copy.deepcopy(net)
    for name, tensor in cut_tensors(channels, kept, net.state_dict()).items():
        path, _, leaf = name.rpartition(".")
        owner = small.get_submodule(path)
        old = getattr(owner, leaf)
        if old.shape != tensor.shape:
            setattr(owner, leaf, nn.Parameter(tensor, old.requires_grad) if isinstance(old, nn.Parameter) else tensor)
    for layer in channels.layers:
        _update_counts(small, layer, kept)
    return small


def cut_tensors(channels: Channels, kept: Sequence[Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors`, named like the network's parameters and statistics, cut to the channels `kept`."""
    small = dict(tensors)
    for layer in channels.layers:
        weight = f"{layer.weight}.weight"
        if layer.weight is not None and weight in small:
            small[weight] = _cut_weight(layer, kept, small[weight])
        if layer.outputs.can_shrink:
            names = [f"{layer.weight}.bias"]
            names += [f"{layer.norm}.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var")]
            for name in names:
                if name in small:
                    small[name] = small[name][_on(small[name], layer.outputs.kept(kept))].clone()
    return small


def _cut_weight(layer: Layer, kept: Sequence[Tensor], weight: Tensor) -> Tensor:
    """Rows are output channels; columns are input channels, or their map positions (CHW) behind a flattening."""
    if layer.outputs.can_shrink:
        weight = weight[_on(weight, layer.outputs.kept(kept))]
    if layer.inputs.can_shrink and not layer.depthwise:
        positions = weight.shape[1] // len(layer.inputs)
        columns = (layer.inputs.kept(kept)[:, None] * positions + torch.arange(positions)).flatten()
        weight = weight[:, _on(weight, columns)]
    return weight.clone(memory_format=torch.contiguous_format)


def _on(tensor: Tensor, indices: Tensor) -> Tensor:
    """The indices where the tensor is."""
    return indices.to(tensor.device)


def _update_counts(net: nn.Module, layer: Layer, kept: Sequence[Tensor]) -> None:
    """Make the modules say how many channels they have."""
    rows = len(layer.outputs.kept(kept))
    if layer.norm is not None:
        net.get_submodule(layer.norm).num_features = rows
    if layer.weight is None:
        return
    module = net.get_submodule(layer.weight)
    if isinstance(module, nn.Conv2d):
        module.out_channels, module.in_channels = rows, len(layer.inputs.kept(kept))
        if layer.depthwise:
            module.groups = module.in_channels
    else:
        module.out_features, module.in_features = module.weight.shape


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
