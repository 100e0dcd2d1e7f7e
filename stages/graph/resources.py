"""What a network needs on the device: size, peak memory and multiply-accumulates, also for widths that are not whole.

The conventions reproduce the paper's table:
  size   1 byte per weight, 4 bytes per bias (batch normalisation folded); shape operands and scales are not counted
  MACs   those of convolutions and fully connected layers, plus one per pooled input element and one per element of an
         Add or Mul; Softmax and Reshape count nothing
  peak   bytes of activations (int8) alive at once in the best operator order, see `op_order`
  imprecise peak   the bound of earlier work: the largest sum of one op's inputs and outputs, an Add's result being
         accumulated into an operand. It never exceeds the exact peak and misses what branches keep alive.

Each figure is a sum of monomials in the channel groups' widths, so that gradients are exact; for the peak they are
those of the tensors that form the bottleneck (paper, section 'Execution constraints').
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stages.graph.graph import Graph, Op, Tensor
from stages.graph.op_order import ALIASES, IN_PLACE, activation_bytes, smallest_peak_order

BIAS_BYTES = 4
POOLING = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "MEAN"})
ELEMENTWISE = frozenset({"ADD", "MUL"})
WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})


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
    macs: float


@dataclass(frozen=True, eq=False)
class UsageGradients:
    """Derivatives of size, peak and MACs by the width of every group, in units per channel."""

    size_bytes: np.ndarray
    peak_bytes: np.ndarray
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


def resources(graph: Graph) -> Resources:
    """What the network needs as it stands."""
    model = ResourceModel(graph)
    return model.resources(model.widths)


class ResourceModel:
    """A graph's resource use as a function of the widths of its channel groups."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.widths = _group_widths(graph)  # as the graph stands
        self._activations = [self._elements(tensor, activation_bytes(tensor)) for tensor in graph.tensors]
        self._size = [term for op in graph.ops for term in self._size_of(op)]
        self._macs = [term for op in graph.ops for term in self._macs_of(op)]

    def resources(self, widths: Sequence[int]) -> Resources:
        """Exact figures for whole widths."""
        usage = self.usage(widths)
        imprecise = max(self._op_bytes(op, widths) for op in self.graph.ops)
        return Resources(round(usage.size_bytes), round(usage.peak_bytes), round(imprecise), round(usage.macs))

    def usage(self, widths: Sequence[float]) -> Usage:
        """Figures for any widths."""
        peak = smallest_peak_order(self.graph, self._tensor_bytes(widths)).peak_bytes
        return Usage(_total(self._size, widths), peak, _total(self._macs, widths))

    def gradients(self, widths: Sequence[float]) -> UsageGradients:
        """Derivatives by each group's width; at a tie between bottlenecks, those of one of them."""
        bottleneck = smallest_peak_order(self.graph, self._tensor_bytes(widths)).bottleneck
        peak = [self._activations[tensor] for tensor in bottleneck]
        return UsageGradients(*(self._gradient(terms, widths) for terms in (self._size, peak, self._macs)))

    def _gradient(self, terms: Iterable[Monomial], widths: Sequence[float]) -> np.ndarray:
        gradient = np.zeros(len(self.widths))
        for term in terms:
            term.add_gradient(widths, gradient)
        return gradient

    def _tensor_bytes(self, widths: Sequence[float]) -> list[float]:
        return [term.value(widths) for term in self._activations]

    def _op_bytes(self, op: Op, widths: Sequence[float]) -> float:
        touched = set(self.graph.activations_of(op))
        if op.kind not in IN_PLACE | ALIASES:
            touched |= set(op.outputs)
        return sum(self._activations[index].value(widths) for index in touched)

    def _elements(self, tensor: Tensor, amount: float) -> Monomial:
        """`amount` as a monomial: proportional to the width of the tensor's group, if it has one."""
        if tensor.group is None:
            return Monomial(amount)
        return Monomial(amount / self.widths[tensor.group], (tensor.group,))

    def _size_of(self, op: Op) -> list[Monomial]:
        if op.kind not in WEIGHTED:
            # A constant operand of an Add or Mul is stored as int8; shapes and axes (integers) are not counted.
            stored = [self.graph.tensors[index] for index in self.graph.constants_of(op) if op.kind in ELEMENTWISE]
            return [Monomial(activation_bytes(tensor)) for tensor in stored]
        has_bias = len(op.inputs) > 2 and op.inputs[2] >= 0
        bias = [self._outputs(op, BIAS_BYTES)] if has_bias else []
        return [self._weights(op, 1), *bias]

    def _macs_of(self, op: Op) -> list[Monomial]:
        tensors = self.graph.tensors
        if op.kind in WEIGHTED:
            pixels = math.prod(tensors[op.outputs[0]].shape[1:-1])
            return [self._weights(op, pixels)]
        if op.kind in POOLING:
            source = tensors[op.inputs[0]]
            return [self._elements(source, source.elements)]
        if op.kind in ELEMENTWISE:
            result = tensors[op.outputs[0]]
            return [self._elements(result, result.elements)]
        return []

    def _weights(self, op: Op, factor: float) -> Monomial:
        """factor * number of weights, which grows with the channels in and out; depthwise: with those out."""
        source, filters, result = (self.graph.tensors[index] for index in (op.inputs[0], op.inputs[1], op.outputs[0]))
        mixed = [result] if op.kind == "DEPTHWISE_CONV_2D" else [source, result]
        groups = tuple(tensor.group for tensor in mixed if tensor.group is not None)
        return Monomial(factor * filters.elements / math.prod(self.widths[group] for group in groups), groups)

    def _outputs(self, op: Op, factor: float) -> Monomial:
        result = self.graph.tensors[op.outputs[0]]
        return self._elements(result, factor * result.shape[-1])


def _total(terms: Iterable[Monomial], widths: Sequence[float]) -> float:
    return sum(term.value(widths) for term in terms)


def _group_widths(graph: Graph) -> tuple[int, ...]:
    """Channels of each group: the narrowest last axis (a flattened map has a multiple of it)."""
    widths: dict[int, int] = {}
    for tensor in graph.tensors:
        if tensor.group is not None:
            widths[tensor.group] = min(widths.get(tensor.group, tensor.shape[-1]), tensor.shape[-1])
    return tuple(widths[group] for group in sorted(widths))
