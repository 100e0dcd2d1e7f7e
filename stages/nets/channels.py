"""Which modules of a torch network a channel group reaches into: for salience, masks and narrowing.

A group's mask is applied where its channels leave the group. A layer all of whose readers end up in a depthwise
convolution of the same group stays unmasked, so that the batch normalisation behind the depthwise one still sees living
channels and can take them back. So does the gate of a squeeze-and-excitation: the map that it multiplies is masked, and
the sigmoid of a masked gate would not be zero anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx, nn

from pipeline.errors import StageError
from stages.graph.from_torch.builder import TracedLayer
from stages.graph.from_torch.conversion import trace
from stages.graph.graph import WEIGHTED, Graph, Op
from stages.graph.groups import PASS_THROUGH
from stages.graph.memory.resources import Resources, resources


@dataclass(frozen=True)
class Layer:
    """A Conv2d or Linear with its batch normalisation, and the groups on its two sides (None: cannot be pruned)."""

    weight: str
    norm: str | None
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
    unmasked = _unmasked(graph)
    layers = tuple(_layer(graph, found, unmasked) for found in traced.layers)
    widths: dict[int, int] = {}
    _refuse_shared(net, layers)
    for layer in layers:
        module = net.get_submodule(layer.weight)
        if not isinstance(module.weight, nn.Parameter):
            raise StageError(f"{layer.weight}: its weight is computed, not a parameter; remove the weight norm")
        if layer.group_out is None:
            continue
        channels = module.out_channels if isinstance(module, nn.Conv2d) else module.out_features
        if widths.setdefault(layer.group_out, channels) != channels:
            several = "; use a depthwise multiplier of 1" if layer.depthwise else ""
            raise StageError(
                f"{layer.weight}: {channels} channels tied to {widths[layer.group_out]}, cannot be pruned{several}"
            )
        if layer.norm is not None and net.get_submodule(layer.norm).weight is None:
            raise StageError(f"{layer.norm}: batch normalisation without gamma has no salience; set affine=True")
    _refuse_leaks(graph, {found.op for found, layer in zip(traced.layers, layers, strict=True) if layer.masked})
    return Channels(graph, tuple(widths[group] for group in sorted(widths)), layers, traced.module)


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


def _layer(graph: Graph, found: TracedLayer, unmasked: set[int]) -> Layer:
    op = graph.ops[found.op]
    output = op.outputs[0]
    group_out = graph.tensors[output].group
    return Layer(
        weight=found.weight,
        norm=found.norm,
        group_in=graph.tensors[op.inputs[0]].group,
        group_out=group_out,
        depthwise=op.kind == "DEPTHWISE_CONV_2D",
        masked=group_out is not None and output not in unmasked,
    )


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
    zero = {index for index in range(len(graph.tensors)) if graph.tensors[index].group is None}
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
