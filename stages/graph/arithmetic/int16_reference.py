"""int16 activations, with int8 weights where there are any (16x8, as audio networks have it): the bits of TFLM.

Grids are symmetric, all zero points are 0. Sums of products are of 64 bits, and scaled with 15 bits of the multiplier
and one rounding; only with int32 biases are they of 32 bits, and scaled as for int8. For one sample in the shapes of
its tensors. What moves values, or joins them, does so as for int8.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_lstm import sigmoid_int16, tanh_int16
from stages.graph.arithmetic.int8_pointwise import activation_range, scale_of, zero_point_of
from stages.graph.arithmetic.windows import ungrouped, windows
from stages.graph.graph import (
    ActivationOptions,
    ConvOptions,
    Graph,
    Op,
    PlainOptions,
    PoolOptions,
    SoftmaxOptions,
    Tensor,
)

ADD_HEADROOM_BITS = 15
SOFTMAX_RANGE = 65535
LUT_STEPS = 512
_LOWEST, _HIGHEST = -32768, 32767


def is_wide(graph: Graph, op: Op) -> bool:
    """Whether it computes with int16."""
    touched = [*graph.activations_of(op), *op.outputs]
    return op.kind not in _WITH_WIDE_STATES and any(graph.tensors[index].dtype == "int16" for index in touched)


def has_wide(graph: Graph) -> bool:
    return any(is_wide(graph, op) for op in graph.ops)


def sums_are_narrow(graph: Graph, op: Op) -> bool:
    """Of 32 bits: with biases of int32."""
    return len(op.inputs) > 2 and op.inputs[2] >= 0 and graph.tensors[op.inputs[2]].dtype == "int32"


def short_multiplier(factor: float) -> tuple[int, int]:
    """(15 bits of a factor's mantissa, the shift to the right that goes with them), for sums of 64 bits."""
    multiplier = fp.quantised_multiplier(factor)
    return fp.upper_half(multiplier.mantissa), 15 - multiplier.shift


def curve_scaling(tensor: Tensor) -> tuple[int, int]:
    """(multiplier, shift to the right) from a tensor's grid to 3 * 4096 a unit, for the tables of sigmoid and tanh."""
    scale = scale_of(tensor)
    if scale == 2.0**-12:
        return 3, 0
    factor, shift = scale * 4096 * 3, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    return int(factor), shift


def lookup_table(scale: float, zero_point: int, curve: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A curve at 513 places of the int16 range, in single precision; results are in 2 / 65535."""
    one = np.float32
    first, last = (one(scale) * one(end - zero_point) for end in (_LOWEST, _HIGHEST))
    ends = one(2.0 / SOFTMAX_RANGE) * one(_LOWEST), one(2.0 / SOFTMAX_RANGE) * one(_HIGHEST)
    step, inverse = (last - first) / one(LUT_STEPS), one(65536) / (ends[1] - ends[0])
    places = np.arange(LUT_STEPS).astype(np.float32)
    here = curve(first + places * step) * inverse
    between = curve(first + places * step + step / one(2)) * inverse
    following = curve(first + (places + one(1)) * step) * inverse
    straight = _rounded((following + _rounded(here)) / one(2))
    bent = _rounded((straight - _rounded(between)) / one(2))
    table = np.append(_rounded(here) - bent, _rounded(curve(last) * inverse))
    return np.clip(table, _LOWEST, _HIGHEST).astype(np.int64)


def _rounded(value: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    return np.copysign(np.floor(np.abs(value.astype(np.float64)) + 0.5), value).astype(np.float32)


def softmax_tables() -> tuple[np.ndarray, np.ndarray]:
    """exp(x) from -10 to 0, and 1 / (1 + x) from 0 to 1."""
    exponential = lookup_table(10.0 / SOFTMAX_RANGE, _HIGHEST, lambda x: np.exp(x.astype(np.float64)).astype(x.dtype))
    return exponential, lookup_table(1.0 / SOFTMAX_RANGE, _LOWEST, lambda x: np.float32(1) / (np.float32(1) + x))


def softmax_multiplier(graph: Graph, op: Op) -> fp.Multiplier:
    """To 10 / 65535 a unit."""
    assert isinstance(op.options, SoftmaxOptions)
    scale = scale_of(graph.tensors[op.inputs[0]])
    return fp.quantised_multiplier(scale * float(np.float32(op.options.beta)) / (10.0 / SOFTMAX_RANGE))


def _looked_up(value: np.ndarray, table: np.ndarray) -> np.ndarray:
    index, rest = 256 + (value >> 7), value & 0x7F
    return table[index] + (((table[index + 1] - table[index]) * rest + 64) >> 7)


def _scaled(value: np.ndarray, factor: float) -> np.ndarray:
    multiplier = fp.quantised_multiplier(factor)
    return fp.rescale(value, multiplier.mantissa, multiplier.shift)


def _onto(result: Tensor, value: np.ndarray, activation: str = "none") -> np.ndarray:
    dtype = np.int16 if result.dtype == "int16" else np.int8
    return np.clip(value + zero_point_of(result), *activation_range(result, activation)).astype(dtype)


def _ends(graph: Graph, op: Op) -> tuple[Tensor, Tensor]:
    return graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]


def _requantised(graph: Graph, op: Op, sums: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    source, result = _ends(graph, op)
    grid = graph.tensors[op.inputs[1]].quantisation
    assert grid and isinstance(op.options, ConvOptions | ActivationOptions)
    sums = sums if bias is None else sums + bias.reshape(-1).astype(np.int64)
    factors = [scale_of(source) * float(np.float32(scale)) / scale_of(result) for scale in grid.scale]
    if sums_are_narrow(graph, op):
        made = [fp.quantised_multiplier(factor) for factor in factors]
        narrow = sums.astype(np.int32).astype(np.int64)
        scaled = fp.rescale(narrow, np.array([m.mantissa for m in made]), np.array([m.shift for m in made]))
    else:
        pairs = np.array([short_multiplier(factor) for factor in factors], np.int64)
        scaled = (sums * pairs[:, 0] + (1 << (pairs[:, 1] - 1))) >> pairs[:, 1]
    return _onto(result, scaled, op.options.activation)


def _convolution(
    graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    """In double precision, which is exact."""
    assert isinstance(op.options, ConvOptions)
    weights = ungrouped(weights, x.shape[3])
    taps = windows(x.astype(np.float64), weights.shape[1:3], op.options, op.options.dilation, 0)
    rows = taps.transpose(0, 1, 2, 4, 5, 3).reshape(-1, math.prod(weights.shape[1:]))
    sums = (rows @ weights.reshape(len(weights), -1).T.astype(np.float64)).astype(np.int64)
    return _requantised(graph, op, sums, bias).reshape(*taps.shape[:3], len(weights))


def _depthwise(graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    assert isinstance(op.options, ConvOptions)
    repeated = np.repeat(x.astype(np.int64), op.options.depth_multiplier, axis=3)
    taps = windows(repeated, weights.shape[1:3], op.options, op.options.dilation, 0)
    sums = (taps * weights[0].transpose(2, 0, 1).astype(np.int64)).sum(axis=(4, 5))
    return _requantised(graph, op, sums, bias)


def _fully_connected(
    graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    rows = x.reshape(-1, weights.shape[1]).astype(np.int64)
    sums = rows @ weights.T.astype(np.int64)
    return _requantised(graph, op, sums, bias).reshape(graph.tensors[op.outputs[0]].shape)


def _sum(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    """ADD and SUB."""
    assert isinstance(op.options, ActivationOptions)
    result = graph.tensors[op.outputs[0]]
    scales = [scale_of(graph.tensors[index]) for index in op.inputs]
    first, second = (
        _scaled(value.astype(np.int64) << ADD_HEADROOM_BITS, scale / (2 * max(scales)))
        for value, scale in zip(values, scales, strict=True)
    )
    total = first - second if op.kind == "SUB" else first + second
    factor = 2 * max(scales) / ((1 << ADD_HEADROOM_BITS) * scale_of(result))
    return _onto(result, _scaled(total, factor), op.options.activation)


def _mul(graph: Graph, op: Op, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, ActivationOptions)
    a, b, result = (graph.tensors[index] for index in (*op.inputs, op.outputs[0]))
    factor = scale_of(a) * scale_of(b) / scale_of(result)
    return _onto(result, _scaled(first.astype(np.int64) * second, factor), op.options.activation)


def _average_pool(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, PoolOptions)
    sums = windows(x.astype(np.int64), op.options.filter, op.options, (1, 1), 0).sum(axis=(4, 5))
    inside = np.ones((1, *x.shape[1:3], 1), np.int64)
    counts = windows(inside, op.options.filter, op.options, (1, 1), 0).sum(axis=(4, 5))
    means = np.where(sums > 0, (sums + counts // 2) // counts, -((-sums + counts // 2) // counts))
    return _onto(graph.tensors[op.outputs[0]], means, op.options.activation)


def _max_pool(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, PoolOptions)
    largest = windows(x.astype(np.int64), op.options.filter, op.options, (1, 1), _LOWEST).max(axis=(4, 5))
    return _onto(graph.tensors[op.outputs[0]], largest, op.options.activation)


def _rescaled(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """RELU, LEAKY_RELU, QUANTIZE: one factor above zero, one below."""
    source, result = _ends(graph, op)
    value, (above, below) = x.astype(np.int64) - zero_point_of(source), slopes(graph, op)
    negative = _scaled(value, abs(below)) if below >= 0 else -_scaled(-value, -below)
    return _onto(result, np.where(value >= 0, _scaled(value, above), negative))


def slopes(graph: Graph, op: Op) -> tuple[float, float]:
    """What values above and below zero are multiplied by."""
    source, result = _ends(graph, op)
    factor = scale_of(source) / scale_of(result)
    if op.kind == "RELU":
        return factor, 0.0
    if op.kind == "LEAKY_RELU":
        assert isinstance(op.options, PlainOptions)
        scales = np.float32(scale_of(source)), np.float32(scale_of(result))
        return float(scales[0] / scales[1]), float(scales[0] * np.float32(op.options.values[0]) / scales[1])
    return factor, factor


def _relu6(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    return np.clip(x, *activation_range(graph.tensors[op.inputs[0]], "relu6")).astype(np.int16)


def _logistic(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    return sigmoid_int16(x, *curve_scaling(graph.tensors[op.inputs[0]])).astype(np.int16)


def _tanh(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    return tanh_int16(x, *curve_scaling(graph.tensors[op.inputs[0]])).astype(np.int16)


def _softmax(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    exponential, reciprocal = softmax_tables()
    multiplier = softmax_multiplier(graph, op)
    below = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
    place = fp.saturated(fp.rescale(below, multiplier.mantissa, multiplier.shift) + _HIGHEST, 16)
    powers = _looked_up(place, exponential)
    total = powers.sum(axis=-1, keepdims=True)
    headroom = 32 - np.frexp(total.astype(np.float64))[1]
    shifted = ((total << (headroom - 1)) + (1 << 13)) >> 14
    inverse = _looked_up(fp.saturated(shifted - (1 << 15) - (1 << 16), 16), reciprocal)
    right = 31 - headroom
    return np.clip((powers * inverse + (1 << (right - 1))) >> right, 0, _HIGHEST).astype(np.int16)


def _mean(graph: Graph, op: Op, x: np.ndarray, axes: np.ndarray) -> np.ndarray:
    source, result = _ends(graph, op)
    over = tuple({int(axis) % x.ndim for axis in axes.flat})
    count = math.prod(x.shape[axis] for axis in over)
    multiplier = fp.quantised_multiplier(scale_of(source) / scale_of(result))
    bits = min(count.bit_length() - 1, 32, 31 + multiplier.shift)
    sums = x.sum(axis=over, dtype=np.int64)
    return _onto(result, fp.rescale(sums, (multiplier.mantissa << bits) // count, multiplier.shift - bits))


def _pad(graph: Graph, op: Op, x: np.ndarray, paddings: np.ndarray) -> np.ndarray:
    return np.pad(x, [tuple(pair) for pair in paddings])


_WITH_WIDE_STATES = frozenset({"SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"})
KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
    "ADD": _sum,
    "SUB": _sum,
    "MUL": _mul,
    "MAXIMUM": lambda graph, op, a, b: np.maximum(a, b),
    "MINIMUM": lambda graph, op, a, b: np.minimum(a, b),
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "RELU": _rescaled,
    "RELU6": _relu6,
    "LEAKY_RELU": _rescaled,
    "LOGISTIC": _logistic,
    "TANH": _tanh,
    "SOFTMAX": _softmax,
    "MEAN": _mean,
    "QUANTIZE": _rescaled,
    "PAD": _pad,
}
