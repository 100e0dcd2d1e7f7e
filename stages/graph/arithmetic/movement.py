"""Operators that move values and compute nothing: each as what numpy makes of one sample.

The same functions tell where every value of a result comes from: they are run on the positions of the input instead of
its values (`source_positions`), which is what the firmware compiler reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stages.graph.arithmetic.int8_pointwise import zero_point_of
from stages.graph.graph import Graph, Op, PlainOptions

NOWHERE = -1  # the source of a value that is filled in


def source_positions(graph: Graph, op: Op) -> np.ndarray:
    """For every value of the result the position in the first operand from where it comes; NOWHERE: `fill_of`."""
    source = graph.tensors[op.inputs[0]]
    return MOVES[op.kind](graph, op, np.arange(source.elements).reshape(source.shape), NOWHERE)


def moved(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """The result for one sample."""
    return MOVES[op.kind](graph, op, x, fill_of(graph, op))


def fill_of(graph: Graph, op: Op) -> int:
    """What stands where no value comes from."""
    if op.kind == "PADV2":
        value = graph.tensors[op.inputs[2]].data
        assert value is not None
        return int(value.reshape(-1)[0])
    return zero_point_of(graph.tensors[op.outputs[0]]) if graph.tensors[op.outputs[0]].quantisation else 0


def _numbers(op: Op) -> tuple[int, ...]:
    assert isinstance(op.options, PlainOptions)
    return tuple(map(int, op.options.values))


def _values(graph: Graph, op: Op, operand: int) -> list[int]:
    data = graph.tensors[op.inputs[operand]].data
    assert data is not None, op.title
    return [int(value) for value in data.flat]


def _pairs(graph: Graph, op: Op, operand: int) -> list[tuple[int, int]]:
    values = _values(graph, op, operand)
    return list(zip(values[::2], values[1::2], strict=True))


def _slice(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    starts, shape = _values(graph, op, 1), graph.tensors[op.outputs[0]].shape
    return x[tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))]


def _strided_slice(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    begin_mask, end_mask, shrink_mask, *_ = _numbers(op)
    cuts: list[slice | int] = []
    for axis, (begin, end, stride) in enumerate(zip(*(_values(graph, op, n) for n in (1, 2, 3)), strict=True)):
        bounds = slice(None if begin_mask >> axis & 1 else begin, None if end_mask >> axis & 1 else end, stride)
        cuts.append(begin if shrink_mask >> axis & 1 else bounds)
    return x[tuple(cuts)]


def _transpose(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    return x.transpose(_values(graph, op, 1))


def _depth_to_space(_graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    (block,), (batch, height, width, channels) = _numbers(op), x.shape
    apart = x.reshape(batch, height, width, block, block, channels // block**2)
    return apart.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block, width * block, -1)


def _space_to_depth(_graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    (block,), (batch, height, width, channels) = _numbers(op), x.shape
    apart = x.reshape(batch, height // block, block, width // block, block, channels)
    return apart.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, -1)


def _space_to_batch(graph: Graph, op: Op, x: np.ndarray, fill: int) -> np.ndarray:
    blocks, pads = _values(graph, op, 1), _pairs(graph, op, 2)
    wide = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    sides = [part for side, block in zip(wide.shape[1:-1], blocks, strict=True) for part in (side // block, block)]
    apart = wide.reshape(len(x), *sides, wide.shape[-1])
    inner, outer = range(2, 2 * len(blocks) + 1, 2), range(1, 2 * len(blocks), 2)
    return apart.transpose(*inner, 0, *outer, apart.ndim - 1).reshape(graph.tensors[op.outputs[0]].shape)


def _batch_to_space(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    blocks, crops = _values(graph, op, 1), _pairs(graph, op, 2)
    count = len(blocks)
    apart = x.reshape(*blocks, len(x) // math.prod(blocks), *x.shape[1:])
    order = [count, *(axis for n in range(count) for axis in (count + 1 + n, n)), apart.ndim - 1]
    wide = [side * block for side, block in zip(x.shape[1:-1], blocks, strict=True)]
    joined = apart.transpose(order).reshape(-1, *wide, x.shape[-1])
    cuts = [slice(first, side - last) for side, (first, last) in zip(wide, crops, strict=True)]
    return joined[(slice(None), *cuts)]


def _mirror_pad(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    return np.pad(x, _pairs(graph, op, 1), mode="symmetric" if _numbers(op)[0] else "reflect")


def _pad(graph: Graph, op: Op, x: np.ndarray, fill: int) -> np.ndarray:
    return np.pad(x, _pairs(graph, op, 1), constant_values=fill)


def _gather(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    indices = graph.tensors[op.inputs[1]].data
    assert indices is not None
    return np.take(x, indices, axis=_numbers(op)[0])


def _tile(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    return np.tile(x, _values(graph, op, 1))


def _broadcast_to(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    return np.broadcast_to(x, _values(graph, op, 1)).copy()


def _reverse(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    return np.flip(x, tuple(_values(graph, op, 1)))


def _resize_nearest(graph: Graph, op: Op, x: np.ndarray, _fill: int) -> np.ndarray:
    rows, columns = (
        nearest(source, result, *_numbers(op))
        for source, result in zip(x.shape[1:3], graph.tensors[op.outputs[0]].shape[1:3], strict=True)
    )
    return x[:, rows][:, :, columns]


def nearest(source: int, result: int, align_corners: int, half_pixels: int) -> np.ndarray:
    """Which line each line of the result shows; in single precision, as the runtime does it."""
    aligned = align_corners and result > 1
    scale = np.float32(source - 1) / np.float32(result - 1) if aligned else np.float32(source) / np.float32(result)
    places = (np.arange(result).astype(np.float32) + np.float32(0.5 if half_pixels else 0)) * scale
    found = np.floor(places + np.float32(0.5)) if align_corners else np.floor(places)
    return np.clip(found.astype(np.int64), 0, source - 1)


MOVES: dict[str, Callable[[Graph, Op, np.ndarray, int], np.ndarray]] = {
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
    "DEPTH_TO_SPACE": _depth_to_space,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "MIRROR_PAD": _mirror_pad,
    "PADV2": _pad,
    "GATHER": _gather,
    "TILE": _tile,
    "BROADCAST_TO": _broadcast_to,
    "REVERSE_V2": _reverse,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
}
