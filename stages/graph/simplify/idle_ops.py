"""Operators that do nothing, or that another one can do at no cost.

vanish    RESHAPE to the shape that is there, PAD by nothing, a function of one int8 that gives every value that can
          arrive as it is (QUANTIZE to the same grid, RELU behind a fused ReLU), on the same grid
join      RESHAPE of a RESHAPE; QUANTIZE of a QUANTIZE where the two give, for all 256 values, what one would; two equal
          QUANTIZEs of one tensor; a function that only clips, as the fused activation of the layer before it; PAD in
          front of a convolution without padding, where it pads as TensorFlow's 'same' would
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stages.graph.arithmetic.int8_pointwise import KERNELS, activation_range
from stages.graph.graph import (
    Activation,
    ActivationOptions,
    ConvOptions,
    Graph,
    Op,
    PoolOptions,
    Tensor,
)
from stages.graph.padding import zero_pads

_ONE_BYTE_FUNCTIONS = frozenset({"RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "QUANTIZE"})
_EVERY_INT8 = np.arange(-128, 128).astype(np.int8)
_CLIPPING: tuple[Activation, ...] = ("relu", "relu6")


def without_idle_ops(graph: Graph) -> Graph:
    """The very same object where there is nothing to do."""
    while True:
        rewritten = _first_rewrite(graph)
        if rewritten is None:
            return graph
        graph = rewritten


def _first_rewrite(graph: Graph) -> Graph | None:
    makers = {index: op for op in graph.ops for index in op.outputs}
    for op in graph.ops:
        maker = makers.get(op.inputs[0])
        if _is_idle(graph, op, maker) and _may_take_over(graph, op.inputs[0], op.outputs[0]):
            return _without(graph, op, op.inputs[0])
        if maker is not None and (joined := _joined(graph, maker, op)) is not None:
            return _replaced(graph, maker, op, joined)
        if op.kind == "QUANTIZE" and (twin := _earlier_twin(graph, op)) is not None:
            return _without(graph, op, twin)
    return None


def _is_idle(graph: Graph, op: Op, maker: Op | None) -> bool:
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if source.quantisation != result.quantisation or source.dtype != result.dtype or source.shape != result.shape:
        return False
    if op.kind in ("RESHAPE", "PAD"):
        return True
    if op.kind not in _ONE_BYTE_FUNCTIONS or source.dtype != "int8":
        return False
    arriving = _arriving(graph, op.inputs[0], maker)
    return bool(np.array_equal(_values(graph, op, arriving), arriving))


def _arriving(graph: Graph, tensor: int, maker: Op | None) -> np.ndarray:
    """Every value that the tensor can hold, as far as its maker's fused activation tells."""
    options = None if maker is None else maker.options
    if not isinstance(options, ConvOptions | PoolOptions | ActivationOptions):
        return _EVERY_INT8
    lowest, highest = activation_range(graph.tensors[tensor], options.activation)
    return np.arange(lowest, highest + 1).astype(np.int8)


def _values(graph: Graph, op: Op, values: np.ndarray) -> np.ndarray:
    return KERNELS[op.kind](graph, op, values)


def _may_take_over(graph: Graph, source: int, result: int) -> bool:
    """An output of the network must not become one of its inputs, nor the same as another output."""
    return result not in graph.outputs or (source not in graph.inputs and source not in graph.outputs)


def _joined(graph: Graph, first: Op, second: Op) -> Op | None:
    """One op that does what `second` makes of the result of `first`, which nobody else sees."""
    between = first.outputs[0]
    readers = sum(op.inputs.count(between) for op in graph.ops)
    if readers != 1 or between in graph.outputs:
        return None
    if first.kind == second.kind == "RESHAPE":
        return replace(second, inputs=(first.inputs[0], *second.inputs[1:]))
    if first.kind == second.kind == "QUANTIZE" and graph.tensors[first.inputs[0]].dtype == "int8":
        return _one_quantise(graph, first, second)
    if first.kind == "PAD" and second.kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        return _padded(graph, first, second)
    if second.kind in _ONE_BYTE_FUNCTIONS:
        return _with_activation(graph, first, second)
    return None


def _one_quantise(graph: Graph, first: Op, second: Op) -> Op | None:
    direct = replace(second, inputs=first.inputs)
    in_two = _values(graph, second, _values(graph, first, _EVERY_INT8))
    return direct if np.array_equal(_values(graph, direct, _EVERY_INT8), in_two) else None


def _with_activation(graph: Graph, first: Op, second: Op) -> Op | None:
    options = first.options
    between, result = graph.tensors[first.outputs[0]], graph.tensors[second.outputs[0]]
    if not isinstance(options, ConvOptions | PoolOptions | ActivationOptions) or options.activation != "none":
        return None
    if between.dtype != "int8" or between.quantisation != result.quantisation:
        return None
    clipped = _values(graph, second, _EVERY_INT8)
    for activation in _CLIPPING:
        if np.array_equal(np.clip(_EVERY_INT8, *activation_range(result, activation)), clipped):
            return replace(first, outputs=second.outputs, options=replace(options, activation=activation))
    return None


def _padded(graph: Graph, pad: Op, conv: Op) -> Op | None:
    source, padded, weights = (graph.tensors[i] for i in (pad.inputs[0], pad.outputs[0], conv.inputs[1]))
    amounts = graph.tensors[pad.inputs[1]].data
    assert isinstance(conv.options, ConvOptions)
    assert amounts is not None
    if conv.options.padding != "valid" or source.quantisation != padded.quantisation or len(source.shape) != 4:
        return None
    wanted = zero_pads(source.shape[1:3], weights.shape[1:3], conv.options.stride, conv.options.dilation, "same")
    given = tuple(int(amount) for amount in amounts[1:3].reshape(-1))
    same = replace(conv, inputs=(pad.inputs[0], *conv.inputs[1:]), options=replace(conv.options, padding="same"))
    return same if given == wanted and not amounts[0].any() and not amounts[3].any() else None


def _earlier_twin(graph: Graph, op: Op) -> int | None:
    """The result of an equal QUANTIZE that runs before."""
    if op.outputs[0] in graph.outputs:
        return None
    for other in graph.ops[: graph.ops.index(op)]:
        same_grid = _same_grid(graph.tensors[other.outputs[0]], graph.tensors[op.outputs[0]])
        if other.kind == op.kind and other.inputs == op.inputs and same_grid:
            return other.outputs[0]
    return None


def _same_grid(first: Tensor, second: Tensor) -> bool:
    return first.quantisation == second.quantisation and first.dtype == second.dtype


def _without(graph: Graph, op: Op, instead: int) -> Graph:
    """The graph without `op`; whoever read its result reads `instead`."""
    gone = op.outputs[0]

    def renamed(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(instead if index == gone else index for index in indices)

    ops = tuple(replace(other, inputs=renamed(other.inputs)) for other in graph.ops if other is not op)
    return replace(graph, ops=ops, outputs=renamed(graph.outputs))


def _replaced(graph: Graph, first: Op, second: Op, joined: Op) -> Graph:
    """`joined` in the place of the first of the two: the second one has no other computed operand to wait for."""
    ops = tuple(joined if op is first else op for op in graph.ops if op is not second)
    return replace(graph, ops=ops)
