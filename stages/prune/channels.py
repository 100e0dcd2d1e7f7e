"""Which modules of a torch network a channel group reaches into: for salience, masks and shrinking.

A group's mask is applied where its channels leave the group: on every layer of the group whose output somebody other
than a depthwise convolution reads. A layer that only feeds a depthwise convolution of the same group stays unmasked, so
that the batch normalisation behind the depthwise one still sees living channels and can take them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, fx, nn

from pipeline.errors import StageError
from stages.graph.from_torch import TorchTrace, trace
from stages.graph.graph import Graph
from stages.graph.resources import Resources, resources


@dataclass(frozen=True)
class Layer:
    """A Conv2d or Linear with its batch normalisation, and the groups on its two sides (None: cannot be pruned)."""

    weight: str
    norm: str | None
    node: str  # fx node of its result, activation included
    group_in: int | None
    group_out: int | None
    depthwise: bool
    masked: bool


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
        return tuple(layer for layer in self.layers if layer.group_out == group)


def find_channels(net: nn.Module, input_shape: tuple[int, int, int]) -> Channels:
    """Trace the network and find its groups."""
    traced = trace(net, input_shape)
    graph = traced.graph
    layers = tuple(_layer(traced, number) for number in range(len(traced.layers)))
    widths: dict[int, int] = {}
    for layer in layers:
        if sum(other.weight == layer.weight for other in layers) > 1:
            raise StageError(
                f"{layer.weight}: used more than once, which cannot be pruned; give each use its own layer"
            )
        module = net.get_submodule(layer.weight)
        if layer.group_out is not None:
            channels = module.out_channels if isinstance(module, nn.Conv2d) else module.out_features
            if widths.setdefault(layer.group_out, channels) != channels:
                raise StageError(
                    f"{layer.weight}: {channels} channels tied to {widths[layer.group_out]}; cannot be pruned"
                )
        if layer.norm is not None and net.get_submodule(layer.norm).weight is None:
            raise StageError(f"{layer.norm}: batch normalisation without gamma has no salience; set affine=True")
    return Channels(graph, tuple(widths[group] for group in sorted(widths)), layers, traced.module)


def _layer(traced: TorchTrace, number: int) -> Layer:
    graph, found = traced.graph, traced.layers[number]
    op = graph.ops[found.op]
    output = op.outputs[0]
    readers = [reader for reader in graph.ops if output in reader.inputs]
    feeds_depthwise_only = bool(readers) and all(reader.kind == "DEPTHWISE_CONV_2D" for reader in readers)
    group_out = graph.tensors[output].group
    return Layer(
        weight=found.weight,
        norm=found.norm,
        node=found.node,
        group_in=graph.tensors[op.inputs[0]].group,
        group_out=group_out,
        depthwise=op.kind == "DEPTHWISE_CONV_2D",
        masked=group_out is not None and not feeds_depthwise_only,
    )


def saliences(net: nn.Module, channels: Channels) -> list[Tensor]:
    """Importance of every channel of every group: the largest over the group's layers."""
    return [
        _maximum([_layer_salience(net, layer) for layer in channels.of_group(group)])
        for group in range(len(channels.widths))
    ]


def _layer_salience(net: nn.Module, layer: Layer) -> Tensor:
    """|gamma| where there is batch normalisation, else the L2 norm of the weights into the channel."""
    if layer.norm is not None:
        return net.get_parameter(f"{layer.norm}.weight").detach().abs()
    return net.get_parameter(f"{layer.weight}.weight").detach().flatten(1).norm(dim=1)


def _maximum(values: list[Tensor]) -> Tensor:
    largest = values[0]
    for value in values[1:]:
        largest = largest.maximum(value)
    return largest
