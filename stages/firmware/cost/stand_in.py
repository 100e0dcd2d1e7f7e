"""A network that was not trained yet as the int8 graph that its firmware will be made from, at any widths.

Weights, biases and scales are drawn, shapes and grids are those that training and export will give: activations behind
a ReLU begin at the lowest code, every output channel has a scale of its own. What the compiler chooses depends on
little else, so that kernels, memory and cycles are those of the trained network; see the README of stages/prune for
what is not (a layer whose sums might leave 31 bits, channels that die).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stages.graph.graph import NO_GROUP, WEIGHTED, Graph, Op, Quantisation, Tensor
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.packable_order import packable_order

_SCALE = 0.05
_RELU, _LINEAR = Quantisation((_SCALE,), (-128,)), Quantisation((_SCALE,), (3,))
_PROBABILITIES = Quantisation((1 / 256,), (-128,))  # what SOFTMAX and LOGISTIC have to give
_KEEPS_GRID = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE", "PAD", "RELU6", "CONCATENATION"})
_ACTIVATED = frozenset({"relu", "relu6"})


def stand_in(graph: Graph, widths: Sequence[int], full: Sequence[int]) -> Graph:
    """The graph of a torch network (with channel groups) with `widths` of the `full` channels that its groups have."""
    tensors = [_narrowed(tensor, widths, full) for tensor in graph.tensors]
    grids: dict[int, Quantisation] = dict.fromkeys(graph.inputs, _LINEAR)
    for op in graph.ops:
        grids.update({result: _grid(op, grids) for result in op.outputs})
    for index, grid in grids.items():
        tensors[index] = replace(tensors[index], dtype="int8", quantisation=grid)
    for number, op in enumerate(graph.ops):
        if op.kind in WEIGHTED:
            _draw_weights(op, tensors, np.random.default_rng(number))
    return replace(graph, tensors=tuple(tensors))


def drawn_op(graph: Graph, inputs: int, outputs: int) -> Graph:
    """A graph of one op with other numbers of channels in and out; further operands have theirs in proportion."""
    op = graph.ops[0]
    before = graph.tensors[op.inputs[0]].shape[-1]
    tensors = list(graph.tensors)
    for index in graph.activations_of(op):
        shape = tensors[index].shape
        tensors[index] = replace(tensors[index], shape=(*shape[:-1], shape[-1] * inputs // before))
    for index in op.outputs:
        tensors[index] = replace(tensors[index], shape=(*tensors[index].shape[:-1], outputs))
    if op.kind in WEIGHTED:
        _draw_weights(op, tensors, np.random.default_rng(0))
    return replace(graph, tensors=tuple(tensors))


def ordered(graph: Graph) -> Graph:
    """In the order that export would choose."""
    problem = OrderProblem(graph)
    return graph.in_order(packable_order(problem, problem.solve()).order)


def channels_at(tensor: Tensor, widths: Sequence[int], full: Sequence[int]) -> int:
    """Channels that a tensor has when the groups have these widths."""
    if tensor.channels is None:
        return tensor.shape[-1]
    groups, counts = np.unique(tensor.channels[:, 0], return_counts=True)
    pairs = zip(groups.tolist(), counts.tolist(), strict=True)
    return sum(count if group == NO_GROUP else count * widths[group] // full[group] for group, count in pairs)


def _narrowed(tensor: Tensor, widths: Sequence[int], full: Sequence[int]) -> Tensor:
    if tensor.data is not None or not tensor.shape:
        return tensor
    return replace(tensor, shape=(*tensor.shape[:-1], channels_at(tensor, widths, full)), channels=None)


def _grid(op: Op, grids: dict[int, Quantisation]) -> Quantisation:
    if op.kind in ("SOFTMAX", "LOGISTIC"):
        return _PROBABILITIES
    if op.kind in _KEEPS_GRID:
        return grids[op.inputs[0]]
    activation = getattr(op.options, "activation", "none")
    return _RELU if activation in _ACTIVATED or op.kind == "RELU" else _LINEAR


def _draw_weights(op: Op, tensors: list[Tensor], draw: np.random.Generator) -> None:
    source, result = tensors[op.inputs[0]], tensors[op.outputs[0]]
    weights = tensors[op.inputs[1]]
    outputs, is_depthwise = result.shape[-1], op.kind == "DEPTHWISE_CONV_2D"
    shape = (*weights.shape[:3], outputs) if is_depthwise else (outputs, *weights.shape[1:-1], source.shape[-1])
    taps = int(np.prod(shape)) // outputs
    # So large that sums of many taps fill the output's range, as those of trained weights do.
    scales = (_SCALE / (8 * np.sqrt(taps)) * 2 ** draw.uniform(-1, 1, outputs)).astype(np.float32)
    grid = Quantisation(tuple(scales.tolist()), (0,) * outputs, 3 if is_depthwise else 0)
    steps = scales.astype(np.float64) * np.float64(np.float32(_SCALE))
    data = draw.integers(-127, 128, shape, np.int8)
    tensors[op.inputs[1]] = replace(weights, shape=shape, dtype="int8", quantisation=grid, data=data)
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        biases = Quantisation(tuple(steps.astype(np.float32).tolist()), (0,) * outputs)
        drawn = draw.integers(-2000, 2000, outputs).astype(np.int32)
        bias = tensors[op.inputs[2]]
        tensors[op.inputs[2]] = replace(bias, shape=(outputs,), dtype="int32", quantisation=biases, data=drawn)
