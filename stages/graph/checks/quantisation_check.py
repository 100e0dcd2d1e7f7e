"""Whether an int8 op, or one of int16, has the grids that TensorFlow Lite Micro's kernels take for granted.

What is refused here would be computed wrongly, or end the runtime, without a word: it checks some of these in debug
builds only.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.errors import StageError
from stages.graph.graph import Graph, Op, Quantisation, SoftmaxOptions, Tensor

FILTER_AXIS = {
    "CONV_2D": 0,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 0,
    "TRANSPOSE_CONV": 0,
}  # which axis of the weights is the output's
_ONE_GRID = frozenset({"CONCATENATION"})  # bytes are copied: all operands are on the grid of the result
_UNIT_GRID = Quantisation((1 / 256,), (-128,))  # of everything between 0 and 1
_ONTO_UNIT = frozenset({"SOFTMAX", "LOGISTIC"})
_MOST_MEAN_AXES = 2  # the runtime has room for two and writes a third behind them
_SMALLEST_LOGISTIC_SCALE = 2.0**-27
_SMALLEST_SOFTMAX_STEP = 2.0**-26  # scale * beta
_LARGEST_HARD_SWISH_RATIO = 128
_RESCALING = frozenset({"RELU", "QUANTIZE", "MEAN"})
_LARGEST_FACTOR = 2.0**30
# What the runtime computes in int16, too.
WIDE_KINDS = frozenset(FILTER_AXIS) - {"TRANSPOSE_CONV"} | {
    *("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "AVERAGE_POOL_2D", "MAX_POOL_2D", "RELU", "RELU6", "LEAKY_RELU"),
    *("LOGISTIC", "TANH", "SOFTMAX", "MEAN", "QUANTIZE", "PAD", "CONCATENATION", "RESHAPE", "EXPAND_DIMS", "SQUEEZE"),
    *("STRIDED_SLICE", "SLICE", "TRANSPOSE", "SPLIT", "SPLIT_V", "PACK", "UNPACK", "RESIZE_NEAREST_NEIGHBOR"),
    *("READ_VARIABLE", "ASSIGN_VARIABLE"),
}
_UNIT_INT16 = 2.0**-15
_LARGEST_WIDE_FACTOR = 2.0**7  # by which the runtime scales a sum of 64 bits
_LARGEST_CURVE_SCALE = 2.0  # of an int16: beyond it a product leaves 32 bits
_NEEDS_LONG_BIAS = frozenset({"DEPTHWISE_CONV_2D"})  # the runtime reads int32 biases of int16 layers as int64


def check_int8(graph: Graph, op: Op) -> None:
    """Scales are there, zero points are int8, and each kind's own rules hold."""
    first, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    check_one_scale(op, result)
    if first.dtype == "float32":  # QUANTIZE
        return
    check_one_scale(op, first)
    if op.kind in ("ADD", "SUB", "MUL", "DIV", "CONCATENATION"):
        for index in op.inputs:
            check_one_scale(op, graph.tensors[index])
    if op.kind in FILTER_AXIS:
        _check_weights(graph, op)
    elif op.kind in _ONE_GRID:
        _check_same_grid(graph, op, result)
    elif op.kind in _ONTO_UNIT and _grid(result) != _grid_of(_UNIT_GRID):
        raise StageError(f"{op.title}: output on scale {_grid(result)[0]:g}, needed 1/256 and zero point -128")
    _check_range(graph, op, first, result)
    _check_factor(graph, op, first, result)


def check_int16(graph: Graph, op: Op) -> None:
    """Symmetric grids, all of int16, and each kind's own rules."""
    first, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    for tensor in (first, result) if first.dtype != "float32" else (result,):
        check_one_scale(op, tensor)
    if first.dtype == "float32":
        return
    if op.kind in ("ADD", "SUB", "MUL", "CONCATENATION"):
        for index in op.inputs:
            check_one_scale(op, graph.tensors[index])
            if graph.tensors[index].dtype != "int16":
                raise StageError(f"{op.title}: operand of {graph.tensors[index].dtype}, needed int16 like the others")
    if op.kind in FILTER_AXIS:
        _check_weights(graph, op)
        factor = _largest_factor(graph, op, first, result)
        if factor >= _LARGEST_WIDE_FACTOR:
            raise StageError(f"{op.title}: the scales call for a factor of {factor:g}, needed below 2^7 for int16")
    elif op.kind == "CONCATENATION":
        _check_same_grid(graph, op, result)
    elif op.kind in ("SOFTMAX", "LOGISTIC", "TANH") and _grid(result)[0] != _UNIT_INT16:
        raise StageError(f"{op.title}: output on scale {_grid(result)[0]:g}, needed 1/32768 for int16")
    if op.kind in ("LOGISTIC", "TANH") and _grid(first)[0] >= _LARGEST_CURVE_SCALE:
        raise StageError(f"{op.title}: input scale {_grid(first)[0]:g}, needed below {_LARGEST_CURVE_SCALE:g}")
    _check_range(graph, op, first, result)
    _check_factor(graph, op, first, result)


def _check_factor(graph: Graph, op: Op, first: Tensor, result: Tensor) -> None:
    factor = _largest_factor(graph, op, first, result)
    if factor >= _LARGEST_FACTOR:
        raise StageError(f"{op.title}: the scales call for a factor of {factor:g}, needed below {_LARGEST_FACTOR:g}")


def _largest_factor(graph: Graph, op: Op, first: Tensor, result: Tensor) -> float:
    """The runtime shifts an int32 to the left by the exponent of this factor."""
    factor = 0.0
    if op.kind in FILTER_AXIS:
        weights = graph.tensors[op.inputs[1]].quantisation
        assert weights
        factor = _grid(first)[0] * max(weights.scale) / _grid(result)[0]
    elif op.kind == "MUL":
        factor = _grid(first)[0] * _grid(graph.tensors[op.inputs[1]])[0] / _grid(result)[0]
    elif op.kind in _RESCALING:
        factor = _grid(first)[0] / _grid(result)[0]
    elif op.kind in ("ADD", "SUB"):
        factor = max(_grid(graph.tensors[index])[0] for index in op.inputs) / _grid(result)[0]
    return factor


def _check_range(graph: Graph, op: Op, first: Tensor, result: Tensor) -> None:
    scale = _grid(first)[0]
    if op.kind == "LOGISTIC" and scale < _SMALLEST_LOGISTIC_SCALE:
        raise StageError(f"{op.title}: input scale {scale:g}, needed at least {_SMALLEST_LOGISTIC_SCALE:g}")
    if isinstance(op.options, SoftmaxOptions):
        step = scale * op.options.beta
        if not _SMALLEST_SOFTMAX_STEP < step < math.inf:
            raise StageError(f"{op.title}: beta times input scale is {step:g}, needed above {_SMALLEST_SOFTMAX_STEP:g}")
    if op.kind == "HARD_SWISH" and scale >= _LARGEST_HARD_SWISH_RATIO * _grid(result)[0]:
        found = f"input scale {scale:g} and output scale {_grid(result)[0]:g}"
        raise StageError(f"{op.title}: {found}, needed a ratio below {_LARGEST_HARD_SWISH_RATIO}")
    if op.kind == "MEAN":
        axes = graph.tensors[op.inputs[1]].elements
        if axes > _MOST_MEAN_AXES:
            raise StageError(f"{op.title}: the mean over {axes} axes, needed at most {_MOST_MEAN_AXES}")


def _check_weights(graph: Graph, op: Op) -> None:
    """Weights are symmetric with one scale or one per output channel."""
    weights, axis = graph.tensors[op.inputs[1]], FILTER_AXIS[op.kind]
    grid = weights.quantisation
    if weights.dtype != "int8" or grid is None or any(grid.zero_point):
        raise StageError(f"{op.title}: weights are {weights.dtype}, needed int8 with scales and zero points of 0")
    if len(grid.scale) != 1 and (len(grid.scale) != weights.shape[axis] or grid.axis != axis):
        needed = f"1 or {weights.shape[axis]} on axis {axis}"
        raise StageError(f"{op.title}: {len(grid.scale)} weight scales, needed {needed}")
    silent = (weights.data == 0).all(axis=tuple(a for a in range(weights.data.ndim) if a != axis))
    scales = np.broadcast_to(np.array(grid.scale), silent.shape)
    if not silent[scales == 0].all():
        raise StageError(f"{op.title}: a weight scale is 0, needed one above 0 where weights are not all zero")
    needed = ("int32",)
    if graph.tensors[op.inputs[0]].dtype == "int16":
        needed = ("int64",) if op.kind in _NEEDS_LONG_BIAS else ("int32", "int64")
    if len(op.inputs) > 2 and op.inputs[2] >= 0 and graph.tensors[op.inputs[2]].dtype not in needed:
        raise StageError(f"{op.title}: bias is {graph.tensors[op.inputs[2]].dtype}, needed {' or '.join(needed)}")


def _check_same_grid(graph: Graph, op: Op, result: Tensor) -> None:
    for index in op.inputs:
        if _grid(graph.tensors[index]) != _grid(result):
            name = graph.tensors[index].name
            raise StageError(f"{op.title}: tensor {name} is on another grid than the output, needed the same")


def check_one_scale(op: Op, tensor: Tensor) -> None:
    """An int8 tensor has one scale, and a zero point that is int8, too; of int16 it is 0."""
    grid = tensor.quantisation
    types = ("int8", *(["uint8"] if op.kind == "QUANTIZE" else []), *(["int16"] if op.kind in WIDE_KINDS else []))
    lowest = 0 if tensor.dtype == "uint8" else -128
    if tensor.dtype not in types or grid is None or len(grid.scale) != 1:
        found = f"tensor {tensor.name} is {tensor.dtype}"
        raise StageError(f"{op.title}: {found}, needed {' or '.join(types)} with one scale and zero point")
    symmetric = tensor.dtype != "int16" or grid.zero_point[0] == 0
    if grid.scale[0] == 0 or not lowest <= grid.zero_point[0] <= lowest + 255 or not symmetric:
        within = "of 0 for int16" if tensor.dtype == "int16" else f"within {tensor.dtype}"
        found = f"tensor {tensor.name} has scale {grid.scale[0]:g} and zero point {grid.zero_point[0]}"
        raise StageError(f"{op.title}: {found}, needed a scale above 0 and a zero point {within}")


def _grid(tensor: Tensor) -> tuple[float, int]:
    assert tensor.quantisation
    return _grid_of(tensor.quantisation)


def _grid_of(grid: Quantisation) -> tuple[float, int]:
    return float(np.float32(grid.scale[0])), grid.zero_point[0]
