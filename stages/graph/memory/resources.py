"""What a network needs on the device: size, peak memory and multiply-accumulates, also for widths that are not whole.

The conventions reproduce the paper's table:
  size   1 byte per weight, 4 bytes per bias (batch normalisation folded); shape operands and scales are not counted
  MACs   those of convolutions and fully connected layers, plus one per pooled input element and one per element of an
         Add; nothing else counts, the Mul of a squeeze-and-excitation neither
  peak   bytes of activations (int8) alive at once in the best operator order, see `op_order`
  imprecise peak   the bound of earlier work: the largest sum of one op's inputs and outputs, a result that fits over an
         operand (an Add's) being written there. It never exceeds the exact peak and misses what branches keep alive.

With `runtime='overlap'` the peak is that of a runtime that writes outputs over dying operands and fuses layers row by
row, see `overlap`.

Each figure is a sum of monomials in the channel groups' widths, so that gradients are exact; for the peak they are
those of the tensors that form the bottleneck (paper, section 'Execution constraints').
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stages.graph.graph import NO_GROUP, WEIGHTED, Graph, Op, PlainOptions, PoolOptions, Tensor
from stages.graph.memory.buffers import ALIASES, activation_bytes, replaceable
from stages.graph.memory.op_order import Cases, OpOrder, OrderProblem
from stages.graph.memory.overlap import OverlapProblem, Runtime

BIAS_BYTES = 4
POOLING = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "MEAN"})
ELEMENTWISE = frozenset({"ADD", "MUL"})


@dataclass(frozen=True)
class Resources:
    """What a network with whole widths needs."""

    size_bytes: int
    peak_bytes: int
    peak_bytes_imprecise: int
    macs: int


@dataclass(frozen=True)
class Usage:
    """Size, peak and MACs at continuous widths."""

    size_bytes: float
    peak_bytes: float
    peak_bytes_imprecise: float
    macs: float


@dataclass(frozen=True, eq=False)
class UsageGradients:
    """Derivatives of size, peak and MACs by the width of every group, in units per channel."""

    size_bytes: np.ndarray
    peak_bytes: np.ndarray
    peak_bytes_imprecise: np.ndarray
    macs: np.ndarray


@dataclass(frozen=True)
class Monomial:
    """factor * product of the widths of `groups`."""

    factor: float
    groups: tuple[int, ...] = ()

    def value(self, widths: Sequence[float]) -> float:
        return self.factor * math.prod(widths[group] for group in self.groups)

    def add_gradient(self, widths: Sequence[float], gradient: np.ndarray) -> None:
        for position, group in enumerate(self.groups):
            others = self.groups[:position] + self.groups[position + 1 :]
            gradient[group] += self.factor * math.prod(widths[other] for other in others)


def resources(graph: Graph, runtime: Runtime = "classic") -> Resources:
    """What the network needs as it stands."""
    model = ResourceModel(graph, runtime)
    return model.resources(model.widths)


def order_problem(graph: Graph, runtime: Runtime, may_fuse: Collection[int] | None = None) -> OrderProblem:
    """What finds the best order for a runtime, and what that needs; `may_fuse`: see OverlapProblem."""
    return OrderProblem(graph) if runtime == "classic" else OverlapProblem(graph, may_fuse)


class ResourceModel:
    """A graph's resource use as a function of the widths of its channel groups."""

    def __init__(self, graph: Graph, runtime: Runtime = "classic", may_fuse: Collection[int] | None = None) -> None:
        self.graph = graph
        self.widths = _group_widths(graph)  # as the graph stands
        self._activations = [self._terms(activation_bytes(tensor), [tensor]) for tensor in graph.tensors]
        self._size = [term for op in graph.ops for term in self._size_of(op)]
        self._macs = [term for op in graph.ops for term in self._terms(op_macs(graph, op), _axes_of_macs(graph, op))]
        self._touched = [_touched(graph, op) for op in graph.ops]
        self._orders = order_problem(graph, runtime, may_fuse)
        self._solved: tuple[list[float], OpOrder] | None = None  # pruning asks for figures and gradients at one place

    def best_order(self, widths: Sequence[float]) -> OpOrder:
        """The operator order with the smallest peak."""
        tensor_bytes = self._tensor_bytes(widths)
        if self._solved is None or self._solved[0] != tensor_bytes:
            self._solved = tensor_bytes, self._orders.solve(tensor_bytes)
        return self._solved[1]

    def resources(self, widths: Sequence[int]) -> Resources:
        """Exact figures for whole widths."""
        usage = self.usage(widths)
        peaks = round(usage.peak_bytes), round(usage.peak_bytes_imprecise)
        return Resources(round(usage.size_bytes), *peaks, round(usage.macs))

    def usage(self, widths: Sequence[float]) -> Usage:
        """Figures for any widths."""
        tensor_bytes = self._tensor_bytes(widths)
        peak, imprecise = self.best_order(widths).peak_bytes, self._largest_op(tensor_bytes)
        return Usage(
            size_bytes=_total(self._size, widths),
            peak_bytes=peak,
            peak_bytes_imprecise=sum(tensor_bytes[index] for index in imprecise),
            macs=_total(self._macs, widths),
        )

    def gradients(self, widths: Sequence[float]) -> UsageGradients:
        """Derivatives by each group's width; at a tie between bottlenecks, those of one of them."""
        tensor_bytes = self._tensor_bytes(widths)
        peak, imprecise = self._bottleneck(self.best_order(widths)), self._largest_op(tensor_bytes)
        return UsageGradients(
            size_bytes=self._gradient(self._size, widths),
            peak_bytes=self._gradient(peak, widths),
            peak_bytes_imprecise=self._gradient((t for index in imprecise for t in self._activations[index]), widths),
            macs=self._gradient(self._macs, widths),
        )

    def order_cases(self, widths: Sequence[float]) -> tuple[list[Cases], np.ndarray]:
        """Of the order that is best at these widths; bytes of each buffer as a constant and a part for every group."""
        order = self.best_order(widths).order
        buffers = np.zeros((len(self._orders.buffers.tensors), 1 + len(self.widths)))
        for row, tensors in enumerate(self._orders.buffers.tensors):
            for term in self._activations[tensors[0]]:
                assert len(term.groups) <= 1, "a tensor has one axis of channels"
                buffers[row, 1 + term.groups[0] if term.groups else 0] += term.factor
        return list(self._orders.cases(order, self._tensor_bytes(widths))), buffers

    def _bottleneck(self, order: OpOrder) -> list[Monomial]:
        shares = order.shares or (1.0,) * len(order.bottleneck)
        return [
            Monomial(term.factor * share, term.groups)
            for tensor, share in zip(order.bottleneck, shares, strict=True)
            for term in self._activations[tensor]
        ]

    def _gradient(self, terms: Iterable[Monomial], widths: Sequence[float]) -> np.ndarray:
        gradient = np.zeros(len(self.widths))
        for term in terms:
            term.add_gradient(widths, gradient)
        return gradient

    def _tensor_bytes(self, widths: Sequence[float]) -> list[float]:
        return [_total(terms, widths) for terms in self._activations]

    def _largest_op(self, tensor_bytes: Sequence[float]) -> frozenset[int]:
        """Tensors of the op that touches the most bytes."""
        return max(self._touched, key=lambda touched: sum(tensor_bytes[index] for index in touched))

    def _terms(self, amount: float, axes: Sequence[Tensor]) -> list[Monomial]:
        """`amount` by the widths of the groups: it is proportional to the channels of each tensor in `axes`."""
        shares: list[tuple[float, tuple[int, ...]]] = [(amount, ())]
        for tensor in axes:
            total = math.prod(tensor.shape[-1:])
            shares = [
                (share if count == total else share * count / total, groups + group)
                for share, groups in shares
                for group, count in _parts(tensor)
            ]
        return [Monomial(share / math.prod(self.widths[group] for group in groups), groups) for share, groups in shares]

    def _size_of(self, op: Op) -> list[Monomial]:
        biases = bias_bytes(self.graph, op)
        weights = self._terms(op_size_bytes(self.graph, op) - biases, _axes_of_weights(self.graph, op))
        return weights + self._terms(biases, [self.graph.tensors[op.outputs[0]]]) if biases else weights


def _touched(graph: Graph, op: Op) -> frozenset[int]:
    """What one op reads and writes; a result that is written over an operand takes no room of its own."""
    in_place = op.kind in ALIASES or replaceable(graph, op)
    return frozenset(graph.activations_of(op)) | (frozenset() if in_place else frozenset(op.outputs))


def imprecise_peak_bytes(graph: Graph) -> int:
    """The most that one op touches."""
    return max(sum(activation_bytes(graph.tensors[i]) for i in _touched(graph, op)) for op in graph.ops)


def op_size_bytes(graph: Graph, op: Op) -> int:
    """Bytes that one op stores: weights and biases, or the constant operand of an Add, a Mul or an opaque op."""
    constants = [graph.tensors[index] for index in graph.constants_of(op)]
    if op.kind in WEIGHTED:
        return graph.tensors[op.inputs[1]].elements + bias_bytes(graph, op)
    # Shapes, axes and paddings (integers) are not counted.
    stored = (tensor for tensor in constants if tensor.dtype != "int32")
    has_values = op.kind in ELEMENTWISE or isinstance(op.options, PlainOptions)
    return sum(activation_bytes(tensor) for tensor in stored) if has_values else 0


def bias_bytes(graph: Graph, op: Op) -> int:
    """Bytes of one op's biases: one per output channel, if it has any."""
    has_bias = op.kind in WEIGHTED and len(op.inputs) > 2 and op.inputs[2] >= 0
    return BIAS_BYTES * graph.tensors[op.outputs[0]].shape[-1] if has_bias else 0


def graph_macs(graph: Graph) -> int:
    """Multiply-accumulates of one inference."""
    return sum(op_macs(graph, op) for op in graph.ops)


def op_macs(graph: Graph, op: Op) -> int:
    """Multiply-accumulates of one op."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if op.kind in WEIGHTED:
        places = result.elements // result.shape[-1]  # pixels and rows of the whole batch; each uses every weight once
        return graph.tensors[op.inputs[1]].elements * places
    if op.kind in POOLING:
        # Elements outside every window (an uneven 'valid' border) are not pooled.
        windows = isinstance(op.options, PoolOptions)
        return min(source.elements, result.elements * math.prod(op.options.filter)) if windows else source.elements
    return result.elements if op.kind == "ADD" else 0


def _axes_of_weights(graph: Graph, op: Op) -> list[Tensor]:
    """The tensors by whose channels an op's weights grow: those in and out; depthwise: those out."""
    if op.kind not in WEIGHTED:
        return []
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    return [result] if op.kind == "DEPTHWISE_CONV_2D" else [source, result]


def _axes_of_macs(graph: Graph, op: Op) -> list[Tensor]:
    if op.kind in WEIGHTED:
        return _axes_of_weights(graph, op)
    return [graph.tensors[op.inputs[0] if op.kind in POOLING else op.outputs[0]]]


def _parts(tensor: Tensor) -> list[tuple[tuple[int, ...], int]]:
    """The groups in a tensor, each with its number of channels there; () for those that always stay."""
    if tensor.channels is None:
        return [((), math.prod(tensor.shape[-1:]))]
    groups, counts = np.unique(tensor.channels[:, 0], return_counts=True)
    return [
        (() if group == NO_GROUP else (group,), count)
        for group, count in zip(groups.tolist(), counts.tolist(), strict=True)
    ]


def _total(terms: Iterable[Monomial], widths: Sequence[float]) -> float:
    return sum(term.value(widths) for term in terms)


def _group_widths(graph: Graph) -> tuple[int, ...]:
    """Channels of each group."""
    axes = {id(tensor.channels): tensor.channels for tensor in graph.tensors if tensor.channels is not None}
    widths = np.zeros(max((int(axis[:, 0].max()) for axis in axes.values()), default=NO_GROUP) + 2, dtype=int)
    for axis in axes.values():
        np.maximum.at(widths, axis[:, 0], axis[:, 1] + 1)
    return tuple(widths[:NO_GROUP].tolist())  # NO_GROUP, -1, is the last place
