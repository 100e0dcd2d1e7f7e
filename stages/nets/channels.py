"""Which modules of a torch network a channel group reaches into: for salience, masks and narrowing.

A group's mask is applied where its channels leave the group. A layer all of whose readers end up in a depthwise
convolution of the same channels stays unmasked, so that the batch normalisation behind the depthwise one still sees
living channels and can take them back. So does the gate of a squeeze-and-excitation: the map that it multiplies is
masked, and the sigmoid of a masked gate would not be zero anyway. A concatenation stands in nobody's way: what reads it
sees the channels of several groups, each at its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, fx, nn

from pipeline.errors import StageError
from stages.graph.from_torch.builder import TracedLayer
from stages.graph.from_torch.conversion import trace
from stages.graph.graph import NO_GROUP, WEIGHTED, Graph, Op
from stages.graph.groups import PASS_THROUGH
from stages.graph.memory.resources import ResourceModel, Resources, resources


@dataclass(frozen=True, eq=False)
class Axis:
    """The channels on one side of a layer: group and number within it of each, `groups` is NO_GROUP for what stays."""

    groups: Tensor
    numbers: Tensor
    whole: int | None  # the group, where the axis is just that: all its channels in their order

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def can_shrink(self) -> bool:
        return bool((self.groups != NO_GROUP).any())

    def values(self, by_group: Sequence[Tensor]) -> Tensor:
        """What each channel has in `by_group`, such as its mask (last dimension); 1 for what always stays."""
        if self.whole is not None:
            return by_group[self.whole]
        first = by_group[0]
        starts = np.cumsum([0, *(values.shape[-1] for values in by_group)])  # NO_GROUP, -1, is behind the last one
        places = torch.from_numpy(starts)[self.groups] + torch.where(self.groups == NO_GROUP, 0, self.numbers)
        together = torch.cat([*by_group, first.new_ones((*first.shape[:-1], 1))], -1)
        return together[..., places.to(first.device)]

    def kept(self, kept: Sequence[Tensor]) -> Tensor:
        """The positions on the axis that stay when each group keeps the channels `kept`."""
        stays = self.groups == NO_GROUP
        for group, numbers in enumerate(kept):
            stays |= (self.groups == group) & torch.isin(self.numbers, numbers.cpu())
        return torch.nonzero(stays).flatten()


@dataclass(frozen=True)
class Layer:
    """A Conv2d or Linear with its batch normalisation, or that alone, and the channels on its two sides."""

    weight: str | None
    norm: str | None
    inputs: Axis  # of a flattened map: its channels, not their positions
    outputs: Axis
    depthwise: bool
    masked: bool

    @property
    def title(self) -> str:
        return self.weight or self.norm or ""


@dataclass(frozen=True)
class Channels:
    """The channel groups of a network."""

    graph: Graph
    widths: tuple[int, ...]  # channels of every group, unpruned
    layers: tuple[Layer, ...]
    module: fx.GraphModule  # shares its layers with the network

    @cached_property
    def resources(self) -> Resources:
        """What the network needs with all its channels."""
        return resources(self.graph)

    def of_group(self, group: int) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if bool((layer.outputs.groups == group).any()))


def find_channels(net: nn.Module, input_shape: tuple[int, int, int]) -> Channels:
    """Trace the network and find its groups."""
    traced = trace(net, input_shape)
    graph = traced.graph
    widths = ResourceModel(graph).widths
    unmasked = _unmasked(graph)
    layers = tuple(_layer(graph, found, widths, unmasked) for found in traced.layers)
    _refuse_shared(net, layers)
    for layer in layers:
        if layer.weight is not None and not isinstance(net.get_submodule(layer.weight).weight, nn.Parameter):
            raise StageError(f"{layer.weight}: its weight is computed, not a parameter; remove the weight norm")
        if layer.outputs.can_shrink and layer.norm is not None and net.get_submodule(layer.norm).weight is None:
            raise StageError(f"{layer.norm}: batch normalisation without gamma has no salience; set affine=True")
    _refuse_leaks(graph, {found.op for found, layer in zip(traced.layers, layers, strict=True) if layer.masked})
    return Channels(graph, widths, layers, traced.module)


def _refuse_shared(net: nn.Module, layers: Sequence[Layer]) -> None:
    """A layer or a parameter that stands in two places would have to be cut in two ways."""
    used = Counter(path for layer in layers for path in (layer.weight, layer.norm) if path is not None)
    for path, times in used.items():
        if times > 1:
            raise StageError(f"{path}: used more than once, which cannot be pruned; give each use its own layer")
    first: dict[int, str] = {}
    for name, parameter in net.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            raise StageError(
                f"{name}: the same parameter as {first[id(parameter)]}, which cannot be pruned; give each its own"
            )


def _layer(graph: Graph, found: TracedLayer, widths: Sequence[int], unmasked: set[int]) -> Layer:
    op = graph.ops[found.op]
    outputs = _axis(graph, op.outputs[0], widths)
    return Layer(
        weight=found.weight,
        norm=found.norm,
        inputs=_axis(graph, op.inputs[0], widths, found.positions),
        outputs=outputs,
        depthwise=op.kind == "DEPTHWISE_CONV_2D",
        masked=outputs.can_shrink and op.outputs[0] not in unmasked,
    )


def _axis(graph: Graph, tensor: int, widths: Sequence[int], positions: int = 1) -> Axis:
    channels = graph.tensors[tensor].channels
    assert channels is not None
    groups, numbers = torch.from_numpy(channels[: len(channels) // positions].T.copy())
    group = int(groups[0])
    is_whole = group != NO_GROUP and len(groups) == widths[group] and bool((groups == group).all())
    is_whole = is_whole and torch.equal(numbers, torch.arange(len(numbers)))
    return Axis(groups, numbers, group if is_whole else None)


def _unmasked(graph: Graph) -> set[int]:
    """Tensors that only depthwise convolutions read, also behind ops that pass channels through; and gates."""
    readers: dict[int, list[Op]] = {index: [] for index in range(len(graph.tensors))}
    for op in graph.ops:
        for index in op.inputs:
            readers[index].append(op)
    before_depthwise: set[int] = set()
    gates: set[int] = set()
    for op in reversed(graph.ops):
        result = op.outputs[0]
        found = readers[result]
        if found and all(
            reader.kind == "DEPTHWISE_CONV_2D"
            or (reader.kind in PASS_THROUGH and reader.outputs[0] in before_depthwise)
            for reader in found
        ):
            before_depthwise.add(result)
        if found and all(
            reader.kind == "LOGISTIC" and all(last.kind == "MUL" for last in readers[reader.outputs[0]])
            for reader in found
        ):
            gates.add(result)
    return before_depthwise | gates


def _refuse_leaks(graph: Graph, masked_ops: set[int]) -> None:
    """Masked channels must be zero wherever they leave their group, or narrowing would change the network."""
    zero = {index for index, tensor in enumerate(graph.tensors) if not _can_shrink(tensor.channels)}
    for number, op in enumerate(graph.ops):
        sources = list(graph.activations_of(op))
        if op.kind in WEIGHTED:
            mixes = op.kind != "DEPTHWISE_CONV_2D"
            if mixes and sources[0] not in zero:
                raise StageError(
                    f"{op.name}: reads channels that cannot be masked, they went through a sigmoid; "
                    "multiply the sigmoid's result with a map, as squeeze-and-excitation does"
                )
            is_zero = number in masked_ops
        elif op.kind == "LOGISTIC":
            is_zero = False
        else:
            is_zero = (any if op.kind == "MUL" else all)(index in zero for index in sources)
        if is_zero:
            zero.update(op.outputs)


def _can_shrink(channels: np.ndarray | None) -> bool:
    return channels is not None and bool((channels[:, 0] != NO_GROUP).any())
