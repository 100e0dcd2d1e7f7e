"""The int8 kernels that look at one element at a time: sums, products, activations and changes of grid.

Same bits as TensorFlow Lite Micro's reference kernels, quirks included: its RELU6 clamps on the grid of the input and
does not rescale; its HARD_SWISH computes in 16 bits. Values come with the sample as first axis (see int8_reference).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stages.graph.arithmetic import fixed_point as fp
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, PoolOptions, SoftmaxOptions, Tensor

_ADD_HEADROOM_BITS = 20
_SOFTMAX_INTEGER_BITS = 5
_SUM_INTEGER_BITS = 12
_LOGISTIC_INTEGER_BITS = 4
_HARD_SWISH_INPUT_BITS = 7  # int8 differences are lifted by these to fill an int16
_HARD_SWISH_UNIT = np.float32(3) / np.float32(2**15)  # one step of the int16 that spans [-3, 3)


def scale_of(tensor: Tensor) -> float:
    """The one scale of a tensor, as the single-precision number that the file holds."""
    assert tensor.quantisation
    return float(np.float32(tensor.quantisation.scale[0]))


def zero_point_of(tensor: Tensor) -> int:
    """The one zero point of a tensor."""
    assert tensor.quantisation
    return tensor.quantisation.zero_point[0]


def on_grid(values: np.ndarray, tensor: Tensor) -> np.ndarray:
    """Real numbers as the nearest steps of a tensor, in its shape; halves fall as in fine-tuning, single precision."""
    assert tensor.quantisation
    steps = np.round(np.asarray(values, np.float32) / np.float32(tensor.quantisation.scale[0])) + zero_point_of(tensor)
    limits = np.iinfo(tensor.dtype)
    return np.clip(steps, limits.min, limits.max).astype(tensor.dtype).reshape(-1, *tensor.shape[1:])


def activation_range(tensor: Tensor, activation: str) -> tuple[int, int]:
    """The int8 values that a fused activation leaves, or int16."""
    lowest, highest = (-(2**15), 2**15 - 1) if tensor.dtype == "int16" else (-128, 127)
    scale = np.float32(scale_of(tensor))
    if activation in ("relu", "relu6"):
        lowest = max(lowest, zero_point_of(tensor))
    if activation == "relu_n1_to_1":
        one = fp.round_half_away(float(np.float32(1) / scale))
        lowest, highest = max(lowest, zero_point_of(tensor) - one), min(highest, zero_point_of(tensor) + one)
    if activation == "relu6":
        highest = min(highest, zero_point_of(tensor) + fp.round_half_away(float(np.float32(6) / scale)))
    return lowest, highest


def clamped(value: np.ndarray, tensor: Tensor, op: Op) -> np.ndarray:
    """Clip to what the op's fused activation leaves of int8."""
    assert isinstance(op.options, ConvOptions | PoolOptions | ActivationOptions)
    return np.clip(value, *activation_range(tensor, op.options.activation)).astype(np.int8)


def _scaled(value: np.ndarray, factor: float) -> np.ndarray:
    multiplier = fp.quantised_multiplier(factor)
    return fp.rescale(value, multiplier.mantissa, multiplier.shift)


def _centred(value: np.ndarray, tensor: Tensor) -> np.ndarray:
    return value.astype(np.int64) - zero_point_of(tensor)


def _side_by_side(graph: Graph, op: Op, values: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Operands of lower rank get axes of 1 behind the sample's, so that numpy broadcasts like the runtime."""
    rank = len(graph.tensors[op.outputs[0]].shape)
    found = []
    for index, value in zip(op.inputs, values, strict=True):
        # numpy aligns constants from the right, as they are; one sample, too.
        is_as_it_should = graph.tensors[index].data is not None or value.shape == graph.tensors[index].shape
        missing = 0 if is_as_it_should else rank - value.ndim
        found.append(value.reshape(len(value), *(1,) * missing, *value.shape[1:]) if missing else np.atleast_1d(value))
    return found


def _add(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    tensors = [graph.tensors[index] for index in op.inputs]
    result = graph.tensors[op.outputs[0]]
    twice_largest = 2 * max(scale_of(tensor) for tensor in tensors)
    total: np.ndarray | int = 0
    for tensor, value in zip(tensors, _side_by_side(graph, op, values), strict=True):
        total = total + _scaled(_centred(value, tensor) << _ADD_HEADROOM_BITS, scale_of(tensor) / twice_largest)
    scaled = _scaled(np.asarray(total), twice_largest / ((1 << _ADD_HEADROOM_BITS) * scale_of(result)))
    return clamped(scaled + zero_point_of(result), result, op)


def _mul(graph: Graph, op: Op, *values: np.ndarray) -> np.ndarray:
    tensors = [graph.tensors[index] for index in op.inputs]
    result = graph.tensors[op.outputs[0]]
    first, second = (_centred(v, t) for v, t in zip(_side_by_side(graph, op, values), tensors, strict=True))
    scaled = _scaled(first * second, scale_of(tensors[0]) * scale_of(tensors[1]) / scale_of(result))
    return clamped(scaled + zero_point_of(result), result, op)


def _quantise(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """From float32, or from one grid of bytes to another."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if source.dtype == "float32":
        # Far outside the grid the sum must not wrap: clip before the zero point is added, too.
        return _as_bytes(np.clip(float_steps(result, x), -1e6, 1e6) + zero_point_of(result), result)
    return _as_bytes(_on_grid(graph, op, x), result)


def float_steps(result: Tensor, x: np.ndarray) -> np.ndarray:
    """How many steps of a grid float32 values are from its zero point, halves away from it."""
    steps = x / np.float32(scale_of(result))
    return np.trunc(steps.astype(np.float64) + np.copysign(0.5, steps))


def _as_bytes(value: np.ndarray, result: Tensor) -> np.ndarray:
    lowest = 0 if result.dtype == "uint8" else -128
    return np.clip(value, lowest, lowest + 255).astype(result.dtype)


def _dequantise(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    return to_float(graph.tensors[op.inputs[0]], x)


def to_float(source: Tensor, x: np.ndarray) -> np.ndarray:
    """DEQUANTIZE."""
    return (scale_of(source) * _centred(x, source)).astype(np.float32)


def _on_grid(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """The values of `x` on the grid of the op's output, not clipped."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    return _scaled(_centred(x, source), scale_of(source) / scale_of(result)) + zero_point_of(result)


def _relu(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    lowest = zero_point_of(graph.tensors[op.outputs[0]])
    return np.clip(_on_grid(graph, op, x), lowest, 127).astype(np.int8)


def _relu6(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    return np.clip(x, *activation_range(graph.tensors[op.inputs[0]], "relu6")).astype(np.int8)


def _logistic(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    source = graph.tensors[op.inputs[0]]
    multiplier = fp.quantised_multiplier(scale_of(source) * 2 ** (31 - _LOGISTIC_INTEGER_BITS))
    span = (2**_LOGISTIC_INTEGER_BITS - 1) * 2 ** (31 - _LOGISTIC_INTEGER_BITS)
    radius = math.floor(span / 2**multiplier.shift)  # beyond it the result is 0 or 1
    value = _centred(x, source)
    inside = np.clip(value, -radius, radius)
    curve = fp.logistic(fp.rescale(inside, multiplier.mantissa, multiplier.shift), _LOGISTIC_INTEGER_BITS)
    result = np.clip(fp.rounding_shift_right(curve, 23) - 128, -128, 127)
    return np.where(value <= -radius, -128, np.where(value >= radius, 127, result)).astype(np.int8)


def _hard_swish(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """x * relu6(x + 3) / 6, with the gate as an int16 in [0, 1)."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    fine_scale = np.float32(scale_of(source)) / np.float32(2**_HARD_SWISH_INPUT_BITS)
    to_result = fp.quantised_multiplier(float(fine_scale / np.float32(scale_of(result))))
    to_gate = fp.quantised_multiplier(float(fine_scale / _HARD_SWISH_UNIT))
    fine = _centred(x, source) << _HARD_SWISH_INPUT_BITS
    gate = fine
    if to_gate.shift > 0:
        gate = fp.saturated(gate << (to_gate.shift - 1), 16)
    gate = fp.high_multiply_int16(gate, fp.upper_half(to_gate.mantissa))
    if to_gate.shift > 0:
        gate = fp.saturated(gate << 1, 16)
    elif to_gate.shift < 0:
        gate = fp.rounding_shift_right_int16(gate, -to_gate.shift)
    gate = (gate + (1 << 15)) >> 1
    value = fp.high_multiply_int16(fine, fp.upper_half(to_result.mantissa))
    product = fp.truncating_high_multiply_int16(gate, value)
    scaled = fp.rounding_shift_right_int16(product, -to_result.shift)
    return np.clip(scaled + zero_point_of(result), -128, 127).astype(np.int8)


def _softmax(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, SoftmaxOptions)
    unit = 1 << (31 - _SOFTMAX_INTEGER_BITS)
    factor = min(float(np.float32(op.options.beta)) * scale_of(graph.tensors[op.inputs[0]]) * unit, 2.0**31 - 1)
    multiplier = fp.quantised_multiplier(factor)
    smallest = -math.floor((2**_SOFTMAX_INTEGER_BITS - 1) * unit / 2.0**multiplier.shift)
    below = x.astype(np.int64) - x.max(axis=-1, keepdims=True)
    counts = below >= smallest  # the exponential of anything smaller is nothing
    lifted = np.where(counts, below, 0) << multiplier.shift
    powers = fp.exp_of_negative(fp.high_multiply(lifted, multiplier.mantissa), _SOFTMAX_INTEGER_BITS)
    total = np.where(counts, fp.rounding_shift_right(powers, _SUM_INTEGER_BITS), 0).sum(axis=-1, keepdims=True)
    inverse, bits = fp.reciprocal(total, _SUM_INTEGER_BITS)
    scores = fp.rounding_shift_right(fp.high_multiply(powers, inverse), bits + 31 - 8) - 128
    return np.where(counts, np.clip(scores, -128, 127), -128).astype(np.int8)


KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "ADD": _add,
    "MUL": _mul,
    "RELU": _relu,
    "RELU6": _relu6,
    "LOGISTIC": _logistic,
    "HARD_SWISH": _hard_swish,
    "SOFTMAX": _softmax,
    "QUANTIZE": _quantise,
    "DEQUANTIZE": _dequantise,
}
