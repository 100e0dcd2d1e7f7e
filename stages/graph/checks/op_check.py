"""Whether a Graph is sound: operands exist, every tensor is made before it is used, shapes and types fit together.

Whoever reads a graph after this check (kernels, planner, firmware compiler) may index without looking again.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import StageError
from stages.graph.checks.quantisation_check import FILTER_AXIS, check_int8, check_int16
from stages.graph.checks.shape_rules import check_shapes
from stages.graph.graph import ConcatOptions, ConvOptions, Graph, Op, PlainOptions, PoolOptions, Tensor
from stages.graph.padding import map_size

_OPERANDS = {
    "CONV_2D": (2, 3),
    "DEPTHWISE_CONV_2D": (2, 3),
    "FULLY_CONNECTED": (2, 3),
    "TRANSPOSE_CONV": (2, 4),
    "ADD": (2, 2),
    "MUL": (2, 2),
    "SUB": (2, 2),
    "DIV": (2, 2),
    "AVERAGE_POOL_2D": (1, 1),
    "MAX_POOL_2D": (1, 1),
    "SOFTMAX": (1, 1),
    "MEAN": (2, 2),
    "RESHAPE": (1, 2),
    "PAD": (2, 2),
    "CONCATENATION": (1, 10),  # ten: the most that TensorFlow Lite Micro takes
    "RELU": (1, 1),
    "RELU6": (1, 1),
    "LOGISTIC": (1, 1),
    "HARD_SWISH": (1, 1),
    "QUANTIZE": (1, 1),
    "DEQUANTIZE": (1, 1),
}
_TYPE_CHANGES = {
    "QUANTIZE": ({"float32", "int8", "uint8", "int16"}, {"int8", "uint8", "int16"}),
    "DEQUANTIZE": ({"int8", "uint8", "int16"}, {"float32"}),
}
_MAY_START_WITH_CONSTANT = frozenset({"ADD", "SUB", "MUL", "DIV", "CONCATENATION"})


def check_graph(graph: Graph) -> None:
    """Raise StageError with one sentence on the first thing that does not fit."""
    _check_boundary(graph)
    made = set(graph.inputs) | {index for index, tensor in enumerate(graph.tensors) if tensor.data is not None}
    for op in graph.ops:
        for index in op.inputs:
            if index >= 0 and index not in made:
                raise StageError(f"{op.title}: tensor {graph.tensors[index].name} is used before it is computed")
        for index in op.outputs:
            if index in made:
                raise StageError(f"{op.title}: tensor {graph.tensors[index].name} is computed twice")
        made.update(op.outputs)
        check_op(graph, op)
    for index in graph.outputs:
        if index not in made or graph.tensors[index].data is not None:
            raise StageError(f"output {graph.tensors[index].name} is never computed")


def _check_boundary(graph: Graph) -> None:
    if not graph.ops or not graph.inputs or not graph.outputs:
        found = f"{len(graph.inputs)} inputs, {len(graph.ops)} operators and {len(graph.outputs)} outputs"
        raise StageError(f"found {found}, needed at least one of each")
    for index in graph.inputs + graph.outputs:
        if not 0 <= index < len(graph.tensors):
            raise StageError(f"input or output {index}, needed a tensor 0 to {len(graph.tensors) - 1}")
    if len(set(graph.inputs)) != len(graph.inputs):
        raise StageError(f"{len(graph.inputs)} inputs, some of them the same tensor, needed one tensor each")
    for index in graph.inputs:
        if graph.tensors[index].data is not None:
            raise StageError(f"input {graph.tensors[index].name} is a constant or a state, needed an activation")


def check_op(graph: Graph, op: Op) -> None:
    """The same for one op, whose operands exist."""
    if isinstance(op.options, PlainOptions):
        check_shapes(graph, op)
        return
    least, most = _OPERANDS.get(op.kind, (1, 8))
    if not least <= len(op.inputs) <= most or len(op.outputs) != 1 or any(index < 0 for index in op.inputs[:least]):
        found = f"{len(op.inputs)} inputs and {len(op.outputs)} outputs"
        raise StageError(f"{op.title}: {found}, needed {least} to {most} and 1")
    first, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if first.data is not None and not (
        op.kind in _MAY_START_WITH_CONSTANT and any(True for _ in graph.activations_of(op))
    ):
        raise StageError(f"{op.title}: the first operand is a constant, needed an activation")
    expected = output_shape(graph, op, first)
    if expected is not None and expected != result.shape:
        raise StageError(f"{op.title}: output of shape {result.shape}, needed {expected}")
    _check_types(op, first, result)
    if result.dtype in ("int8", "uint8"):
        check_int8(graph, op)
    elif result.dtype == "int16":
        check_int16(graph, op)


def _check_types(op: Op, first: Tensor, result: Tensor) -> None:
    if op.kind in _TYPE_CHANGES:
        sources, results = _TYPE_CHANGES[op.kind]
        if first.dtype not in sources or result.dtype not in results:
            needed = f"{' or '.join(sorted(sources))} to {' or '.join(sorted(results))}"
            raise StageError(f"{op.title}: from {first.dtype} to {result.dtype}, needed {needed}")
        if {first.dtype, result.dtype} == {"uint8", "int16"}:
            raise StageError(f"{op.title}: from {first.dtype} to {result.dtype}, needed int8 on one side")
    elif first.dtype != result.dtype:
        raise StageError(f"{op.title}: output of type {result.dtype}, needed {first.dtype} like the input")


def output_shape(graph: Graph, op: Op, first: Tensor) -> tuple[int, ...] | None:
    """The shape that the operands prescribe; None where they leave it open."""
    shape, result = first.shape, graph.tensors[op.outputs[0]].shape
    if op.kind in FILTER_AXIS:
        return _weighted_shape(graph, op, shape)
    if isinstance(op.options, PoolOptions):
        return (shape[0], *_slid(op, shape, op.options.filter, (1, 1)), shape[-1])
    if op.kind in ("ADD", "SUB", "MUL", "DIV"):
        return _broadcast(op, shape, graph.tensors[op.inputs[1]].shape)
    if op.kind == "RESHAPE":
        return result if math.prod(result) == math.prod(shape) else shape
    if op.kind in ("MEAN", "PAD"):
        return _from_constant(graph, op, shape)
    if isinstance(op.options, ConcatOptions):
        return _joined(op, op.options, [graph.tensors[index].shape for index in op.inputs])
    return shape


def _joined(op: Op, options: ConcatOptions, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = len(shapes[0])
    if not -rank <= options.axis < rank or options.activation != "none":
        found = f"axis {options.axis}, activation {options.activation}"
        raise StageError(f"{op.title}: {found}, needed an axis of {rank} and no activation")
    axis = options.axis % rank
    rests = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rests) != 1 or any(len(shape) != rank for shape in shapes):
        raise StageError(f"{op.title}: operands of shapes {shapes} do not fit together along axis {axis}")
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _broadcast(op: Op, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise StageError(f"{op.title}: operands of shapes {first} and {second} do not fit together") from None


def _weighted_shape(graph: Graph, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    weights = graph.tensors[op.inputs[1]]
    if weights.data is None:
        raise StageError(f"{op.title}: the weights are computed, needed a constant")
    outputs = weights.shape[FILTER_AXIS[op.kind]] if len(weights.shape) > FILTER_AXIS[op.kind] else 0
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        bias = graph.tensors[op.inputs[2]]
        if bias.data is None or bias.elements != outputs:
            raise StageError(f"{op.title}: bias of shape {bias.shape}, needed {outputs} constants")
    if op.kind == "FULLY_CONNECTED":
        rows = math.prod(shape) // weights.shape[-1]
        if len(weights.shape) != 2 or rows * weights.shape[1] != math.prod(shape):
            raise StageError(f"{op.title}: weights of shape {weights.shape} do not fit an input of shape {shape}")
        kept = shape[:-1] + (outputs,)
        return kept if kept == graph.tensors[op.outputs[0]].shape and shape[-1] == weights.shape[1] else (rows, outputs)
    options = op.options
    assert isinstance(options, ConvOptions)
    if op.kind == "TRANSPOSE_CONV":
        return _transposed_shape(graph, op, shape, weights)
    fits = len(weights.shape) == len(shape) == 4
    if fits and op.kind == "CONV_2D":  # of groups of channels each filter sees its own
        groups = shape[3] // weights.shape[3]
        fits = groups > 0 and weights.shape[3] * groups == shape[3] and outputs % groups == 0
    elif fits:
        fits = weights.shape[3] == shape[3] * options.depth_multiplier and weights.shape[0] == 1
    if not fits:
        raise StageError(f"{op.title}: weights of shape {weights.shape} do not fit an input of shape {shape}")
    return (shape[0], *_slid(op, shape, weights.shape[1:3], options.dilation), outputs)


def _transposed_shape(graph: Graph, op: Op, shape: tuple[int, ...], weights: Tensor) -> tuple[int, ...]:
    """The file says how large the result is: a convolution of it must give the input back."""
    result = graph.tensors[op.outputs[0]].shape
    if len(weights.shape) != 4 or len(shape) != 4 or weights.shape[3] != shape[3] or len(result) != 4:
        raise StageError(f"{op.title}: weights of shape {weights.shape} do not fit an input of shape {shape}")
    if _slid(op, result, weights.shape[1:3], (1, 1)) != tuple(shape[1:3]):
        raise StageError(f"{op.title}: output of shape {result} does not fit an input of shape {shape}")
    return (shape[0], *result[1:3], weights.shape[0])


def _slid(op: Op, shape: tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, int]) -> tuple[int, int]:
    assert isinstance(op.options, ConvOptions | PoolOptions)
    stride = op.options.stride
    if len(shape) != 4 or min(*kernel, *stride, *dilation) < 1:
        found = f"input {shape}, window {kernel}, stride {stride}"
        raise StageError(f"{op.title}: {found}, needed 4 axes and steps of 1 or more")
    return map_size(shape[1:3], kernel, stride, dilation, op.options.padding)


def _from_constant(graph: Graph, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    values = graph.tensors[op.inputs[1]].data
    if values is None or values.dtype != np.int32:
        raise StageError(f"{op.title}: the second operand is computed or not int32, needed constant int32 values")
    if op.kind == "PAD":
        if values.shape != (len(shape), 2) or values.min() < 0:
            raise StageError(f"{op.title}: paddings of shape {values.shape}, needed {(len(shape), 2)}, none below 0")
        return tuple(side + int(before) + int(after) for side, (before, after) in zip(shape, values, strict=True))
    if values.size > len(shape):
        raise StageError(f"{op.title}: the mean over {values.size} axes, needed at most {len(shape)}, one for each")
    if not all(-len(shape) <= int(axis) < len(shape) for axis in values.flat):
        raise StageError(f"{op.title}: an axis is not among the {len(shape)} of the input, needed axes that exist")
    axes = {int(axis) % len(shape) for axis in values.flat}
    kept = tuple(1 if axis in axes else side for axis, side in enumerate(shape))
    removed = tuple(side for axis, side in enumerate(shape) if axis not in axes)
    return kept if graph.tensors[op.outputs[0]].shape == kept else removed
