"""Further int8 kernels that look at many values: resizing, reductions, products, transposed convolutions, SVDF.

The same bits as TensorFlow Lite Micro's reference kernels, for one sample in the shapes of its tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_pointwise import activation_range, scale_of, zero_point_of
from stages.graph.graph import ConvOptions, Graph, Op, PlainOptions, Tensor
from stages.graph.padding import zero_pads

RESIZE_BITS = 10
_L2_BITS = 7


def numbers(op: Op) -> tuple[float, ...]:
    """Of its options."""
    assert isinstance(op.options, PlainOptions)
    return op.options.values


def centred(value: np.ndarray, tensor: Tensor) -> np.ndarray:
    return value.astype(np.int64) - zero_point_of(tensor)


def rescaled(value: np.ndarray, factor: float) -> np.ndarray:
    multiplier = fp.quantised_multiplier(factor)
    return fp.rescale(value, multiplier.mantissa, multiplier.shift)


def _onto(result: Tensor, value: np.ndarray) -> np.ndarray:
    return np.clip(value + zero_point_of(result), -128, 127).astype(np.int8)


def resize_line(source: int, result: int, align_corners: int, half_pixels: int) -> list[tuple[int, int, int]]:
    """For each place of the result the two places that it lies between, and how far from the first, in 1/1024."""
    scale = ((source << RESIZE_BITS) + result // 2) // result
    if align_corners and result > 1:
        scale = (((source - 1) << RESIZE_BITS) + (result - 1) // 2) // (result - 1)
    found = []
    for place in range(result):
        at = place * scale + (scale // 2 - (1 << RESIZE_BITS - 1) if half_pixels else 0)
        lower = max(int(at / (1 << RESIZE_BITS)), 0)  # C divides towards zero
        upper = min(int((at + (1 << RESIZE_BITS) - 1) / (1 << RESIZE_BITS)), source - 1)
        found.append((lower, upper, at - (lower << RESIZE_BITS)))
    return found


def _resize_bilinear(graph: Graph, op: Op, x: np.ndarray, _size: np.ndarray) -> np.ndarray:
    align_corners, half_pixels = map(int, numbers(op))
    height, width = graph.tensors[op.outputs[0]].shape[1:3]
    rows, columns = (
        np.array(resize_line(source, result, align_corners, half_pixels))
        for source, result in zip(x.shape[1:3], (height, width), strict=True)
    )
    one, wide = 1 << RESIZE_BITS, x.astype(np.int64)
    down, across = rows[:, 2][:, np.newaxis, np.newaxis], columns[:, 2][:, np.newaxis]
    upper, lower = wide[:, rows[:, 0]], wide[:, rows[:, 1]]
    total = upper[:, :, columns[:, 0]] * (one - down) * (one - across)
    total += lower[:, :, columns[:, 0]] * down * (one - across)
    total += upper[:, :, columns[:, 1]] * (one - down) * across
    total += lower[:, :, columns[:, 1]] * down * across
    half = 1 << 2 * RESIZE_BITS - 1
    rounded = np.where(total > 0, total + half, total - half)
    return (np.sign(rounded) * (np.abs(rounded) >> 2 * RESIZE_BITS)).astype(np.int8)


def axes_of(graph: Graph, op: Op) -> tuple[int, ...]:
    """The axes over which an operator goes."""
    data, rank = graph.tensors[op.inputs[1]].data, len(graph.tensors[op.inputs[0]].shape)
    assert data is not None
    return tuple(sorted({int(axis) % rank for axis in data.flat}))


def _sum(graph: Graph, op: Op, x: np.ndarray, _axes: np.ndarray) -> np.ndarray:
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    total = centred(x, source).sum(axis=axes_of(graph, op))
    return _onto(result, rescaled(total, scale_of(source) / scale_of(result)))


def _best_index(graph: Graph, op: Op, x: np.ndarray, _axis: np.ndarray) -> np.ndarray:
    (axis,) = axes_of(graph, op)
    return (x.argmax(axis) if op.kind == "ARG_MAX" else x.argmin(axis)).astype(np.int32)


def _l2_normalise(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    value = centred(x, graph.tensors[op.inputs[0]])
    rows, found = value.reshape(-1, value.shape[-1]), []
    for row in rows:
        mantissa, shift = fp.inverse_square_root(int((row * row).sum()))
        found.append(np.clip(fp.rescale(row, mantissa, shift + _L2_BITS), -128, 127))
    return np.array(found).reshape(x.shape).astype(np.int8)


def _transpose_conv(
    graph: Graph, op: Op, x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None, _shape: object = None
) -> np.ndarray:
    """Operands as the reader puts them: the shape of the result, which comes first in a file, is the last."""
    assert isinstance(op.options, ConvOptions)
    source, filters, result = (graph.tensors[i] for i in (op.inputs[0], op.inputs[1], op.outputs[0]))
    stride, (_, height, width, outputs) = op.options.stride, result.shape
    top, _, left, _ = zero_pads((height, width), weights.shape[1:3], stride, (1, 1), op.options.padding)
    sides = (height + top + weights.shape[1] + stride[0], width + left + weights.shape[2] + stride[1])
    total = np.zeros((*sides, outputs), np.int64)
    value = centred(x, source)[0]
    for row, column in np.ndindex(*value.shape[:2]):
        y, z = row * stride[0], column * stride[1]
        if y < total.shape[0] and z < total.shape[1]:
            products = np.tensordot(weights.astype(np.int64), value[row, column], axes=(3, 0)).transpose(1, 2, 0)
            part = total[y : y + weights.shape[1], z : z + weights.shape[2]]
            part += products[: part.shape[0], : part.shape[1]]
    sums = total[top : top + height, left : left + width]
    if bias is not None:
        sums = sums + bias.reshape(-1)
    assert filters.quantisation
    factors = [
        fp.quantised_multiplier(scale_of(source) * float(np.float32(scale)) / scale_of(result))
        for scale in filters.quantisation.scale
    ]
    mantissa, shift = (np.array([getattr(f, name) for f in factors]) for name in ("mantissa", "shift"))
    scaled = fp.rescale(sums, mantissa, shift) + zero_point_of(result)
    return np.clip(scaled, *activation_range(result, op.options.activation)).astype(np.int8)[np.newaxis]


def _batch_matmul(graph: Graph, op: Op, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    a, b, result = (graph.tensors[index] for index in (*op.inputs, op.outputs[0]))
    turns = numbers(op)
    left, right = centred(first, a), centred(second, b)
    left = left.swapaxes(-1, -2) if turns[0] else left
    right = right.swapaxes(-1, -2) if turns[1] else right
    factor = scale_of(a) * scale_of(b) / scale_of(result)
    return _onto(result, rescaled(left @ right, factor))


def svdf(graph: Graph, op: Op, operands: list[np.ndarray | None], states: dict[int, np.ndarray]) -> np.ndarray:
    """Input, weights of features and of time, biases; the state holds the last outputs of every filter."""
    source, feature, time, result = (graph.tensors[i] for i in (*op.inputs[:3], op.outputs[0]))
    x, by_feature, by_time, bias = operands[:4]
    assert x is not None and by_feature is not None and by_time is not None
    held, state = states[op.inputs[4]], graph.tensors[op.inputs[4]]
    rank, filters = int(numbers(op)[0]), len(by_feature)
    dots = centred(x, source).reshape(-1) @ by_feature.astype(np.int64).T
    new = fp.saturated(rescaled(dots, scale_of(source) * scale_of(feature) / scale_of(state)), 16)
    moved = np.concatenate([held.reshape(filters, -1)[:, 1:], new[:, np.newaxis]], axis=1)
    states[op.inputs[4]] = moved.reshape(held.shape).astype(held.dtype)
    sums = (moved.astype(np.int64) * by_time.astype(np.int64)).sum(axis=1).reshape(-1, rank).sum(axis=1)
    if bias is not None:
        sums = sums + bias.reshape(-1)
    sums = sums.astype(np.int32).astype(np.int64)  # the runtime's sum is one of 32 bits, which runs over
    scaled = rescaled(sums, scale_of(state) * scale_of(time) / scale_of(result))
    return _onto(result, scaled).reshape(result.shape)


KERNELS: dict[str, Callable[..., np.ndarray]] = {
    "RESIZE_BILINEAR": _resize_bilinear,
    "SUM": _sum,
    "REDUCE_MAX": lambda graph, op, x, axes: x.max(axis=axes_of(graph, op)),
    "REDUCE_MIN": lambda graph, op, x, axes: x.min(axis=axes_of(graph, op)),
    "ARG_MAX": _best_index,
    "ARG_MIN": _best_index,
    "L2_NORMALIZATION": _l2_normalise,
    "TRANSPOSE_CONV": _transpose_conv,
    "BATCH_MATMUL": _batch_matmul,
}
