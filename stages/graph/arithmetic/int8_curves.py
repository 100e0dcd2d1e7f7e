"""Further functions of one int8, and of two that meet: the same bits as TensorFlow Lite Micro's reference kernels.

MAXIMUM and MINIMUM compare bytes, whatever their grids; DIV and RSQRT use gemmlowp's reciprocals. Operands come in the
shapes of their tensors (one sample), and numpy broadcasts them as the runtime does.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_pointwise import clamped, float_steps, scale_of, to_float, zero_point_of
from stages.graph.graph import FLOAT_KINDS, Graph, Op, PlainOptions, Tensor

SUB_HEADROOM_BITS = 20
SQUARE_HEADROOM_BITS = 7
_TANH_INTEGER_BITS = 4
_RSQRT_BITS = 20


def _centred(value: np.ndarray, tensor: Tensor) -> np.ndarray:
    return value.astype(np.int64) - zero_point_of(tensor)


def _scaled(value: np.ndarray, factor: float) -> np.ndarray:
    multiplier = fp.quantised_multiplier(factor)
    return fp.rescale(value, multiplier.mantissa, multiplier.shift)


def _onto(result: Tensor, value: np.ndarray) -> np.ndarray:
    return np.clip(value + zero_point_of(result), -128, 127).astype(np.int8)


def _ends(graph: Graph, op: Op) -> tuple[Tensor, Tensor]:
    return graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]


def _tanh(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    source, _ = _ends(graph, op)
    multiplier = fp.quantised_multiplier(scale_of(source) * 2 ** (31 - _TANH_INTEGER_BITS))
    span = (2**_TANH_INTEGER_BITS - 1) * 2 ** (31 - _TANH_INTEGER_BITS)
    radius = math.floor(span / 2**multiplier.shift)  # beyond it the result is an end of the range
    value = _centred(x, source)
    inside = np.clip(value, -radius, radius)
    curve = fp.tanh(fp.rescale(inside, multiplier.mantissa, multiplier.shift), _TANH_INTEGER_BITS)
    result = np.clip(fp.rounding_shift_right(curve, 24), -128, 127)
    return np.where(value <= -radius, -128, np.where(value >= radius, 127, result)).astype(np.int8)


def _leaky_relu(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """Both factors come from single precision."""
    source, result = _ends(graph, op)
    assert isinstance(op.options, PlainOptions)
    value = _centred(x, source)
    scales = np.float32(scale_of(source)), np.float32(scale_of(result))
    slope = np.float32(op.options.values[0])
    above, below = float(scales[0] / scales[1]), float(scales[0] * slope / scales[1])
    return _onto(result, np.where(value >= 0, _scaled(value, above), _signed_scaled(value, below)))


def _signed_scaled(value: np.ndarray, factor: float) -> np.ndarray:
    """A slope may be negative; the multiplier then is."""
    multiplier = fp.quantised_multiplier(abs(factor))
    return fp.rescale(value, multiplier.mantissa * (1 if factor >= 0 else -1), multiplier.shift)


def _abs(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    source, result = _ends(graph, op)
    value = np.abs(_centred(x, source))
    factor = float(np.float32(scale_of(source)) / np.float32(scale_of(result)))
    return _onto(result, value if factor == 1 else _scaled(value, factor))


def _rsqrt(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """Of nothing, and below it, the largest value."""
    source, result = _ends(graph, op)
    value = _centred(x, source)
    factor = fp.quantised_multiplier(1.0 / (math.sqrt(scale_of(source)) * scale_of(result)))
    found = np.full(value.shape, 127, np.int64)
    for number in np.unique(value[value > 0]).tolist():
        mantissa, shift = fp.inverse_square_root(int(number))
        data = fp.rescale(np.array([1], np.int64), mantissa, shift + _RSQRT_BITS)
        root = fp.rescale(data, factor.mantissa, factor.shift - _RSQRT_BITS)
        found[value == number] = np.clip(int(root[0]) + zero_point_of(result), -128, 127)
    return found.astype(np.int8)


def _elu(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """A table of single-precision values in the runtime, too."""
    source, result = _ends(graph, op)
    real = np.float32(scale_of(source)) * _centred(x, source).astype(np.float32)
    curve = np.where(real < 0, np.exp(real.astype(np.float64)).astype(np.float32) - np.float32(1), real)
    steps = curve * (np.float32(1) / np.float32(scale_of(result)))
    rounded = np.trunc(steps.astype(np.float64) + np.copysign(0.5, steps))
    return _onto(result, rounded.astype(np.int64))


# In double precision, then rounded once: what the C library's functions of single precision give.
_FLOAT_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ABS": np.abs,
    "CEIL": np.ceil,
    "COS": np.cos,
    "ELU": lambda x: np.where(x < 0, np.expm1(x), x),
    "EXP": np.exp,
    "FLOOR": np.floor,
    "LOG": np.log,
    "NEG": np.negative,
    "ROUND": np.rint,
    "RSQRT": lambda x: np.float32(1) / np.sqrt(x).astype(np.float32),
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "SQUARE": np.square,
}


def _in_float(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """A result that is no 32-bit number (a logarithm of nothing) becomes the lowest one, which may wrap."""
    source, result = _ends(graph, op)
    with np.errstate(all="ignore"):
        real = _FLOAT_FUNCTIONS[FLOAT_KINDS[op.kind]](to_float(source, x).astype(np.float64))
        steps = float_steps(result, real.astype(np.float32))
    whole = np.where(np.abs(steps) < 2**31, steps, -(2**31)).astype(np.int64) + zero_point_of(result)
    return np.clip(whole.astype(np.int32), -128, 127).astype(np.int8)


def _sub(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    tensors, result = [graph.tensors[index] for index in op.inputs], graph.tensors[op.outputs[0]]
    twice_largest = 2 * max(scale_of(tensor) for tensor in tensors)
    first, second = (
        _scaled(_centred(value, tensor) << SUB_HEADROOM_BITS, scale_of(tensor) / twice_largest)
        for tensor, value in zip(tensors, values, strict=True)
    )
    scaled = _scaled(first - second, twice_largest / ((1 << SUB_HEADROOM_BITS) * scale_of(result)))
    return clamped(scaled + zero_point_of(result), result, op)


def _squared_difference(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    tensors, result = [graph.tensors[index] for index in op.inputs], graph.tensors[op.outputs[0]]
    twice_largest = 2 * max(scale_of(tensor) for tensor in tensors)
    first, second = (
        _scaled(_centred(value, tensor) << SQUARE_HEADROOM_BITS, scale_of(tensor) / twice_largest)
        for tensor, value in zip(tensors, values, strict=True)
    )
    factor = twice_largest**2 / ((1 << 2 * SQUARE_HEADROOM_BITS) * scale_of(result))
    return _onto(result, _scaled((first - second) ** 2, factor))


def _div(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    """A division by nothing, which the runtime forbids, gives an end of the range here."""
    tensors, result = [graph.tensors[index] for index in op.inputs], graph.tensors[op.outputs[0]]
    first, second = (_centred(value, tensor) for value, tensor in zip(values, tensors, strict=True))
    factor = fp.quantised_multiplier(scale_of(tensors[0]) / (scale_of(tensors[1]) * scale_of(result)))
    first, second = np.broadcast_arrays(np.where(second < 0, -first, first), np.abs(second))
    found = np.zeros(first.shape, np.int64)
    for divisor in np.unique(second).tolist():
        at = second == divisor
        found[at] = fp.quotients(first[at], int(divisor), factor)
    return clamped(found + zero_point_of(result), result, op)


def _prelu(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    source, slopes, result = (graph.tensors[index] for index in (*op.inputs, op.outputs[0]))
    x, slope = _centred(values[0], source), _centred(values[1], slopes)
    above = float(np.float32(scale_of(source)) / np.float32(scale_of(result)))
    below = float(np.float32(scale_of(source)) * np.float32(scale_of(slopes)) / np.float32(scale_of(result)))
    return _onto(result, np.where(x >= 0, _scaled(x, above), _scaled(x * slope, below)))


CURVES: dict[str, Callable[..., np.ndarray]] = {
    "TANH": _tanh,
    "LEAKY_RELU": _leaky_relu,
    "ABS": _abs,
    "RSQRT": _rsqrt,
    "ELU": _elu,
    **dict.fromkeys(FLOAT_KINDS, _in_float),
}
PAIRS: dict[str, Callable[..., np.ndarray]] = {
    "SUB": _sub,
    "MAXIMUM": lambda graph, op, a, b: np.maximum(a, b),
    "MINIMUM": lambda graph, op, a, b: np.minimum(a, b),
    "SQUARED_DIFFERENCE": _squared_difference,
    "DIV": _div,
    "PRELU": _prelu,
}
