"""Whether a Graph is sound: operands exist, every tensor is made before it is used, shapes and types fit together.

Whoever reads a graph after this check (kernels, planner, firmware compiler) may index without looking again.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import StageError
from stages.graph.graph import ConvOptions, Graph, Op, PoolOptions, Tensor

_FILTER_AXIS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
_OPERANDS = {
    "CONV_2D": (2, 3),
    "DEPTHWISE_CONV_2D": (2, 3),
    "FULLY_CONNECTED": (2, 3),
    "ADD": (2, 2),
    "MUL": (2, 2),
    "AVERAGE_POOL_2D": (1, 1),
    "MAX_POOL_2D": (1, 1),
    "SOFTMAX": (1, 1),
    "MEAN": (2, 2),
    "RESHAPE": (1, 2),
    "PAD": (2, 2),
    "RELU": (1, 1),
    "RELU6": (1, 1),
}


def windows(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """How many places a sliding window takes along one axis, as TensorFlow counts them."""
    reach = (kernel - 1) * dilation + 1
    return -(-size // stride) if padding == "same" else max(0, -(-(size - reach + 1) // stride))


def padding_before(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Zeros in front along one axis; where the total is odd, the extra one is behind (TensorFlow's 'same')."""
    if padding == "valid":
        return 0
    reach = (kernel - 1) * dilation + 1
    return max(0, (windows(size, kernel, stride, dilation, padding) - 1) * stride + reach - size) // 2


def check_graph(graph: Graph) -> None:
    """Raise StageError with one sentence on the first thing that does not fit."""
    _check_boundary(graph)
    made = set(graph.inputs) | {index for index, tensor in enumerate(graph.tensors) if tensor.data is not None}
    for op in graph.ops:
        for index in op.inputs:
            if index >= 0 and index not in made:
                raise StageError(f"{_title(op)}: tensor {graph.tensors[index].name} is used before it is computed")
        for index in op.outputs:
            if index in made:
                raise StageError(f"{_title(op)}: tensor {graph.tensors[index].name} is computed twice")
        made.update(op.outputs)
        _check_op(graph, op)
    for index in graph.outputs:
        if index not in made:
            raise StageError(f"output {graph.tensors[index].name} is never computed")


def _check_boundary(graph: Graph) -> None:
    if not graph.ops or not graph.inputs or not graph.outputs:
        found = f"{len(graph.inputs)} inputs, {len(graph.ops)} operators and {len(graph.outputs)} outputs"
        raise StageError(f"found {found}, needed at least one of each")
    for index in graph.inputs + graph.outputs:
        if not 0 <= index < len(graph.tensors):
            raise StageError(f"input or output {index}, needed a tensor 0 to {len(graph.tensors) - 1}")
    for index in graph.inputs:
        if graph.tensors[index].data is not None:
            raise StageError(f"input {graph.tensors[index].name} is a constant, needed an activation")


def _title(op: Op) -> str:
    return f"{op.kind} {op.name}"


def _check_op(graph: Graph, op: Op) -> None:
    least, most = _OPERANDS.get(op.kind, (1, 8))
    if not least <= len(op.inputs) <= most or len(op.outputs) != 1 or any(index < 0 for index in op.inputs[:least]):
        found = f"{len(op.inputs)} inputs and {len(op.outputs)} outputs"
        raise StageError(f"{_title(op)}: {found}, needed {least} to {most} and 1")
    first, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if first.data is not None and op.kind not in ("ADD", "MUL"):
        raise StageError(f"{_title(op)}: the first operand is a constant, needed an activation")
    expected = _output_shape(graph, op, first)
    if expected is not None and expected != result.shape:
        raise StageError(f"{_title(op)}: output of shape {result.shape}, needed {expected}")
    if first.dtype != result.dtype:
        raise StageError(f"{_title(op)}: output of type {result.dtype}, needed {first.dtype} like the input")
    if result.dtype == "int8":
        _check_int8(graph, op)


def _output_shape(graph: Graph, op: Op, first: Tensor) -> tuple[int, ...] | None:
    """The shape that the operands prescribe; None where they leave it open."""
    shape, result = first.shape, graph.tensors[op.outputs[0]].shape
    if op.kind in _FILTER_AXIS:
        return _weighted_shape(graph, op, shape)
    if isinstance(op.options, PoolOptions):
        return (shape[0], *_slid(op, shape, op.options.filter, (1, 1)), shape[-1])
    if op.kind in ("ADD", "MUL"):
        return _broadcast(op, shape, graph.tensors[op.inputs[1]].shape)
    if op.kind == "RESHAPE":
        return result if math.prod(result) == math.prod(shape) else shape
    if op.kind in ("MEAN", "PAD"):
        return _from_constant(graph, op, shape)
    return shape


def _broadcast(op: Op, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise StageError(f"{_title(op)}: operands of shapes {first} and {second} do not fit together") from None


def _weighted_shape(graph: Graph, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    weights = graph.tensors[op.inputs[1]]
    if weights.data is None:
        raise StageError(f"{_title(op)}: the weights are computed, needed a constant")
    outputs = weights.shape[_FILTER_AXIS[op.kind]] if len(weights.shape) > _FILTER_AXIS[op.kind] else 0
    if len(op.inputs) > 2 and op.inputs[2] >= 0:
        bias = graph.tensors[op.inputs[2]]
        if bias.data is None or bias.elements != outputs:
            raise StageError(f"{_title(op)}: bias of shape {bias.shape}, needed {outputs} constants")
    if op.kind == "FULLY_CONNECTED":
        rows = math.prod(shape) // weights.shape[-1]
        if len(weights.shape) != 2 or rows * weights.shape[1] != math.prod(shape):
            raise StageError(f"{_title(op)}: weights of shape {weights.shape} do not fit an input of shape {shape}")
        kept = shape[:-1] + (outputs,)
        return kept if kept == graph.tensors[op.outputs[0]].shape and shape[-1] == weights.shape[1] else (rows, outputs)
    options = op.options
    assert isinstance(options, ConvOptions)
    channels = shape[-1] if op.kind == "CONV_2D" else shape[-1] * options.depth_multiplier
    fits = len(weights.shape) == 4 and (
        weights.shape[3] == channels and (op.kind == "CONV_2D" or weights.shape[0] == 1)
    )
    if not fits:
        raise StageError(f"{_title(op)}: weights of shape {weights.shape} do not fit an input of shape {shape}")
    return (shape[0], *_slid(op, shape, weights.shape[1:3], options.dilation), outputs)


def _slid(op: Op, shape: tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, int]) -> tuple[int, int]:
    assert isinstance(op.options, ConvOptions | PoolOptions)
    stride = op.options.stride
    if len(shape) != 4 or min(*kernel, *stride, *dilation) < 1:
        found = f"input {shape}, window {kernel}, stride {stride}"
        raise StageError(f"{_title(op)}: {found}, needed 4 axes and steps of 1 or more")
    height, width = (
        windows(size, side, step, spread, op.options.padding)
        for size, side, step, spread in zip(shape[1:3], kernel, stride, dilation, strict=True)
    )
    return height, width


def _from_constant(graph: Graph, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    values = graph.tensors[op.inputs[1]].data
    if values is None or values.dtype.kind != "i":
        raise StageError(f"{_title(op)}: the second operand is computed, needed constant integers")
    if op.kind == "PAD":
        if values.shape != (len(shape), 2) or values.min() < 0:
            raise StageError(f"{_title(op)}: paddings of shape {values.shape}, needed {(len(shape), 2)}, none below 0")
        return tuple(side + int(before) + int(after) for side, (before, after) in zip(shape, values, strict=True))
    axes = {int(axis) % len(shape) for axis in values.flat if -len(shape) <= int(axis) < len(shape)}
    kept = tuple(1 if axis in axes else side for axis, side in enumerate(shape))
    removed = tuple(side for axis, side in enumerate(shape) if axis not in axes)
    return kept if graph.tensors[op.outputs[0]].shape == kept else removed


def _check_int8(graph: Graph, op: Op) -> None:
    """Scales are there, zero points are int8, and weights are symmetric with one scale or one per output channel."""
    for index in (op.inputs[0], *op.outputs):
        _check_one_scale(op, graph.tensors[index])
    if op.kind in ("ADD", "MUL"):
        _check_one_scale(op, graph.tensors[op.inputs[1]])
    if op.kind not in _FILTER_AXIS:
        return
    weights, axis = graph.tensors[op.inputs[1]], _FILTER_AXIS[op.kind]
    grid = weights.quantisation
    if weights.dtype != "int8" or grid is None or any(grid.zero_point):
        raise StageError(f"{_title(op)}: weights are {weights.dtype}, needed int8 with scales and zero points of 0")
    if len(grid.scale) != 1 and (len(grid.scale) != weights.shape[axis] or grid.axis != axis):
        needed = f"1 or {weights.shape[axis]} on axis {axis}"
        raise StageError(f"{_title(op)}: {len(grid.scale)} weight scales, needed {needed}")
    if len(op.inputs) > 2 and op.inputs[2] >= 0 and graph.tensors[op.inputs[2]].dtype != "int32":
        raise StageError(f"{_title(op)}: bias is {graph.tensors[op.inputs[2]].dtype}, needed int32")


def _check_one_scale(op: Op, tensor: Tensor) -> None:
    grid = tensor.quantisation
    if tensor.dtype != "int8" or grid is None or len(grid.scale) != 1 or not -128 <= grid.zero_point[0] <= 127:
        found = f"tensor {tensor.name} is {tensor.dtype}"
        raise StageError(f"{_title(op)}: {found}, needed int8 with one scale and zero point")
