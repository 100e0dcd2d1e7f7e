"""Run an int8 Graph in numpy, operator by operator, with the very bits of TensorFlow Lite Micro's reference kernels.

The oracle of the firmware's kernels and the engine of int8 accuracy: every intermediate can be had, for many inputs at
once. Sums of products are taken in float32, exact while every partial sum stays below 2^24; longer ones are cut.
Refuses operators without an int8 kernel here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pipeline.errors import StageError
from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic import int8_pointwise, int8_rare, int16_reference
from stages.graph.arithmetic.int8_curves import CURVES, PAIRS
from stages.graph.arithmetic.int8_lstm import lstm
from stages.graph.arithmetic.int8_pointwise import activation_range, clamped, scale_of, zero_point_of
from stages.graph.arithmetic.movement import MOVES, moved
from stages.graph.arithmetic.windows import ungrouped, windows
from stages.graph.graph import ConcatOptions, ConvOptions, Graph, Op, PoolOptions, Tensor

__all__ = ["activation_range", "run_graph", "run_op", "sample_shape", "takes_batches"]

# |x - zero point| <= 255 and |w| <= 128: this many products cannot reach 2^24.
_EXACT_PRODUCTS = 2**24 // (255 * 128)
_BATCH = 16  # inputs at a time: intermediates stay within the cache


def run_graph(graph: Graph, inputs: np.ndarray | Sequence[np.ndarray], keep_all: bool = True) -> dict[int, np.ndarray]:
    """Every computed tensor (or the outputs only) for `inputs`: an array for each input of the network, or just one.

    The first axis of all arrays says which sample; the network's own first axis is left out where it has one element.
    Samples follow each other in time: states last from one to the next.
    """
    given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    _check_inputs(graph, given)
    wanted = {index for op in graph.ops for index in op.outputs} if keep_all else set(graph.outputs)
    found: dict[int, list[np.ndarray]] = {index: [] for index in wanted}
    at_once = _BATCH if takes_batches(graph) else 1
    states = {index: np.array(graph.tensors[index].data) for index in graph.states}
    for start in range(0, len(given[0]), at_once):
        values = _run_batch(graph, [each[start : start + at_once] for each in given], at_once == 1, states)
        for index in wanted:
            found[index].append(values[index])
    return {index: np.concatenate(parts) for index, parts in found.items()}


def sample_shape(tensor: Tensor) -> tuple[int, ...]:
    """Of an array of samples, without the axis that says which."""
    return tensor.shape[1:] if tensor.shape[:1] == (1,) else tensor.shape


def takes_batches(graph: Graph) -> bool:
    """Whether every op treats the first axis as that of samples."""
    touched = {index for op in graph.ops for index in (*graph.activations_of(op), *op.outputs)}
    return all(op.kind in _KERNELS for op in graph.ops) and all(
        graph.tensors[index].shape[:1] == (1,) and graph.tensors[index].dtype != "int16" for index in touched
    )


def _check_inputs(graph: Graph, given: Sequence[np.ndarray]) -> None:
    if len(given) != len(graph.inputs):
        raise StageError(
            f"inputs for {len(given)} tensors, the network has {len(graph.inputs)} inputs, needed one each"
        )
    for index, values in zip(graph.inputs, given, strict=True):
        source = graph.tensors[index]
        if values.dtype != source.dtype or values.shape[1:] != sample_shape(source) or len(values) != len(given[0]):
            needed = f"{source.dtype} of shape (N, *{sample_shape(source)})"
            raise StageError(f"inputs are {values.dtype} of shape {values.shape}, needed {needed}")


def _run_batch(
    graph: Graph, inputs: Sequence[np.ndarray], is_one: bool, states: dict[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """Values with the sample as first axis; `is_one`: computed in the shapes of the tensors."""
    values = dict(zip(graph.inputs, inputs, strict=True))
    if is_one:
        values = {index: value.reshape(graph.tensors[index].shape) for index, value in values.items()}
    for op in graph.ops:
        operands = [_operand(graph, index, values) for index in op.inputs]
        if op.kind == "READ_VARIABLE":
            result = states[op.inputs[0]].copy()
        elif op.kind == "ASSIGN_VARIABLE":
            result = states[op.inputs[1]] = values[op.inputs[0]]
        elif op.kind in RECURRENT:
            _check(graph, op)
            result = RECURRENT[op.kind](graph, op, operands, states)
        else:
            result = run_op(graph, op, *operands)
        values[op.outputs[0]] = result.reshape(graph.tensors[op.outputs[0]].shape) if is_one else result
    if is_one:
        values = {index: value.reshape(1, *sample_shape(graph.tensors[index])) for index, value in values.items()}
    return values


def run_op(graph: Graph, op: Op, *operands: np.ndarray | None) -> np.ndarray:
    """The result of one operator; operands that are computed have N as their first axis, or their tensors' shapes."""
    _check(graph, op)
    if op.kind in MOVES:
        assert operands[0] is not None
        return moved(graph, op, operands[0])
    if int16_reference.is_wide(graph, op) and op.kind in int16_reference.KERNELS:
        return int16_reference.KERNELS[op.kind](graph, op, *operands)
    return _ALL[op.kind](graph, op, *(None if each is None else np.atleast_1d(each) for each in operands))


def _check(graph: Graph, op: Op) -> None:
    result = graph.tensors[op.outputs[0]]
    known = op.kind in _ALL or op.kind in MOVES or op.kind in _STATEFUL
    types = _RESULTS.get(op.kind, ("int8",))
    if int16_reference.is_wide(graph, op):
        types = ("int8", "int16") if op.kind == "QUANTIZE" else ("int16",)
        known = op.kind in (*int16_reference.KERNELS, *MOVES, "RESHAPE", "CONCATENATION", *_STATEFUL)
    if not known or result.dtype not in types:
        kinds = ", ".join(sorted({*_ALL, *MOVES, *_STATEFUL}))
        found = f"{op.kind} of {result.dtype}"
        raise StageError(f"{op.name}: {found} has no reference kernel, needed int8 and one of {kinds}")


def _operand(graph: Graph, index: int, values: dict[int, np.ndarray]) -> np.ndarray | None:
    if index < 0:
        return None
    constant = graph.tensors[index].data
    return values[index] if constant is None else constant


def _convolution(
    graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    assert isinstance(op.options, ConvOptions)
    weights = ungrouped(weights, x.shape[3])
    taps = windows(_centred(graph, op, x), weights.shape[1:3], op.options, op.options.dilation, 0.0)
    # (N, H', W', C, kh, kw) -> rows of kh * kw * C, in the order of the filter's OHWI
    rows = taps.transpose(0, 1, 2, 4, 5, 3).reshape(-1, math.prod(weights.shape[1:]))
    sums = _exact_product(rows, weights.reshape(weights.shape[0], -1))
    return _requantised(graph, op, sums, bias).reshape(*taps.shape[:3], weights.shape[0])


def _depthwise(graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    assert isinstance(op.options, ConvOptions)
    repeated = np.repeat(_centred(graph, op, x), op.options.depth_multiplier, axis=3)
    taps = windows(repeated, weights.shape[1:3], op.options, op.options.dilation, 0.0)
    sums = np.zeros(taps.shape[:4], np.int64 if math.prod(weights.shape[1:3]) > _EXACT_PRODUCTS else np.float32)
    for row, column in np.ndindex(weights.shape[1:3]):
        sums += (taps[..., row, column] * weights[0, row, column].astype(np.float32)).astype(sums.dtype)
    return _requantised(graph, op, sums.astype(np.int64), bias)


def _fully_connected(
    graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    rows = _centred(graph, op, x).reshape(-1, weights.shape[1])
    result = _requantised(graph, op, _exact_product(rows, weights), bias)
    shape = graph.tensors[op.outputs[0]].shape
    return result.reshape(-1, *shape[1:])


def _centred(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """The input minus its zero point, in float32."""
    return x.astype(np.float32) - np.float32(zero_point_of(graph.tensors[op.inputs[0]]))


def _exact_product(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """rows @ weights.T, exactly, from float32 pieces short enough to be exact each."""
    columns = weights.T.astype(np.float32)
    total = np.zeros((rows.shape[0], columns.shape[1]), np.int64)
    for start in range(0, rows.shape[1], _EXACT_PRODUCTS):
        end = start + _EXACT_PRODUCTS
        total += (rows[:, start:end] @ columns[start:end]).astype(np.int64)
    return total


def _requantised(graph: Graph, op: Op, sums: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    source, weights, result = (graph.tensors[index] for index in (op.inputs[0], op.inputs[1], op.outputs[0]))
    if bias is not None:
        sums = sums + bias.reshape(-1)
    factors = [fp.quantised_multiplier(factor) for factor in rescaling_factors(source, weights, result)]
    mantissa = np.array([factor.mantissa for factor in factors], np.int64)
    shift = np.array([factor.shift for factor in factors], np.int64)
    return clamped(fp.rescale(sums, mantissa, shift) + zero_point_of(result), result, op)


def rescaling_factors(source: Tensor, weights: Tensor, result: Tensor) -> Iterator[float]:
    """s_in * s_w / s_out, one or one per output channel; single-precision scales, double-precision product."""
    assert weights.quantisation
    for scale in weights.quantisation.scale:
        yield scale_of(source) * float(np.float32(scale)) / scale_of(result)


def _average_pool(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, PoolOptions)
    sums = windows(x.astype(np.int32), op.options.filter, op.options, (1, 1), 0).sum(axis=(4, 5), dtype=np.int64)
    inside = np.ones((1, *x.shape[1:3], 1), np.int64)
    counts = windows(inside, op.options.filter, op.options, (1, 1), 0).sum(axis=(4, 5))
    # Halves away from zero; C divides towards zero.
    means = np.where(sums > 0, (sums + counts // 2) // counts, -((-sums + counts // 2) // counts))
    return clamped(means, graph.tensors[op.outputs[0]], op)


def _max_pool(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, PoolOptions)
    largest = windows(x.astype(np.int32), op.options.filter, op.options, (1, 1), -128).max(axis=(4, 5))
    return clamped(largest, graph.tensors[op.outputs[0]], op)


def _reshape(graph: Graph, op: Op, x: np.ndarray, _shape: np.ndarray | None = None) -> np.ndarray:
    return x.reshape(-1, *graph.tensors[op.outputs[0]].shape[1:])


def _pad(graph: Graph, op: Op, x: np.ndarray, paddings: np.ndarray) -> np.ndarray:
    return np.pad(x, [tuple(pair) for pair in paddings], constant_values=zero_point_of(graph.tensors[op.outputs[0]]))


def _concatenate(graph: Graph, op: Op, *parts: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, ConcatOptions)
    axis = op.options.axis % len(graph.tensors[op.outputs[0]].shape)
    if axis:  # a constant part is the same for every sample
        samples = max(len(part) for part in parts)
        parts = tuple(np.broadcast_to(part, (samples, *part.shape[1:])) for part in parts)
    return np.concatenate(parts, axis=axis)


def _mean(graph: Graph, op: Op, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    over = tuple({int(axis) % len(source.shape) for axis in axes.flat})
    sums = x.sum(axis=over, dtype=np.int64).reshape(-1, *result.shape[1:])
    count = math.prod(source.shape[axis] for axis in over)
    # The runtime folds 1 / count into the multiplier, which it keeps at 31 bits as far as the shift allows.
    multiplier = fp.quantised_multiplier(scale_of(source) / scale_of(result))
    bits = min(count.bit_length() - 1, 32, 31 + multiplier.shift)
    mantissa = (multiplier.mantissa << bits) // count
    means = fp.rescale(sums - zero_point_of(source) * count, mantissa, multiplier.shift - bits)
    return np.clip(means + zero_point_of(result), -128, 127).astype(np.int8)


_KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "MEAN": _mean,
    "RESHAPE": _reshape,
    "PAD": _pad,
    "CONCATENATION": _concatenate,
    **int8_pointwise.KERNELS,
}  # these take many samples at once, along the first axis
_ALL: dict[str, Callable[..., np.ndarray]] = {**_KERNELS, **CURVES, **PAIRS, **int8_rare.KERNELS}
RECURRENT = {"SVDF": int8_rare.svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
_STATEFUL = frozenset({"READ_VARIABLE", "ASSIGN_VARIABLE", *RECURRENT})
_RESULTS = {"DEQUANTIZE": ("float32",), "QUANTIZE": ("int8", "uint8"), "ARG_MAX": ("int32",), "ARG_MIN": ("int32",)}
