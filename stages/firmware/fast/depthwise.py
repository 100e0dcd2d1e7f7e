"""Depthwise convolutions as calls of the fast kernel: records of weights and scaling, assembly for their sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from stages.firmware.assembly.depthwise import (
    MOST_BASES,
    DepthwiseShape,
    depthwise_function,
    is_possible,
    most_columns,
    record_words,
)
from stages.firmware.assembly.dot import Requantisation
from stages.firmware.assembly.elementwise import PAIR_ROWS_NAME, pair_rows_function
from stages.firmware.assembly.row_pairs import weight_words
from stages.firmware.fast.scaling import Scaling, commonly_shifted, exact_scaling, requantisation
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import weighted_operands, weights_title, window_members
from stages.graph.arithmetic.int8_pointwise import zero_point_of
from stages.graph.graph import ConvOptions, Graph, Op

_MOST_TAPS = 64  # their code is straight: 5 KB for 7x7
_BUFFER_BYTES = 8192  # wanted for lines; a whole row may take half as much again
_STRIP_ROWS = 4  # of outputs, after which the next tile has its turn
_STRUCT_BYTES = 64  # sizeof(struct fast_depthwise)
_MOST = 2**16 - 1  # of what it counts in 16 bits
_CYCLES_A_CHANNEL, _CYCLES_OF_AN_ODD_COLUMN, _CYCLES_A_CALL = 5, 3, 50  # about, beside those of the products


@dataclass(frozen=True)
class _Buffer:
    """Lines of a tile, and how many rows of outputs are made at once."""

    at_once: int
    tile: int  # columns of outputs
    part: int  # of them at a time
    lines: int
    is_ring: bool
    strip: int  # rows of outputs


def depthwise_call(graph: Graph, op: Op, name: str, asked: Collection[int] | None) -> KernelCall | None:
    """None for dilation, large windows, and where the scaling would not be exact.

    `asked`: numbers of rows that are computed at a time, if not all of them.
    """
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    _, height, width, outputs = weights.shape
    channels = source.shape[3]
    scaling = exact_scaling(graph, op, axis=3)
    longest = max(outputs, _columns(result.shape[2], options.stride[1], width))
    if scaling is None or options.dilation != (1, 1) or height * width > _MOST_TAPS or longest > _MOST:
        return None
    heights = asked or result.shape[1:2]
    scaling = commonly_shifted(graph, op, scaling, axis=3)
    ends = requantisation(graph, op, scaling)
    row_outputs = result.shape[2] * outputs

    def shape(at_once: int, buffer: _Buffer) -> DepthwiseShape:
        line_bytes = 0 if buffer.is_ring else 4 * channels * _columns(buffer.tile, options.stride[1], width)
        window = (height, width, *options.stride, at_once, buffer.part)
        return DepthwiseShape(*window, 4 * channels, line_bytes, row_outputs, outputs, outputs // channels, ends)

    for buffer in _buffers(options.stride, (height, width), (channels, outputs), result.shape[2], heights):
        rows = {1} if buffer.at_once == 1 else {1 + (h > 1) for h in heights} | {1 for h in heights if h % 2}
        shapes = {at_once: shape(at_once, buffer) for at_once in sorted(rows)}
        if all(is_possible(each) for each in shapes.values()):
            break
    else:
        return None
    columns = _columns(buffer.tile, options.stride[1], width)
    records = packed_records(scaling, weights.data[0], outputs // channels, ends)
    title = f"{weights_title(weights)}, int16 with bias and scaling in records of {records.shape[1]} words"
    params = {
        "records": f"{name}_records",
        "one_row": shapes[1].name if 1 in shapes else "0",
        "two_rows": shapes[2].name if 2 in shapes else "0",
        "pair": PAIR_ROWS_NAME,
        "window": window_members(graph, op),
        "record_words": records.shape[1],
        "depth_multiplier": outputs // channels,
        "lines": buffer.lines,
        "is_ring": int(buffer.is_ring),
        "columns": columns,
        "tile": buffer.tile,
        "part": buffer.part,
        "strip": buffer.strip,
        "input_zero_point": zero_point_of(source),
    }
    declarations = f"fast_depthwise_pair {PAIR_ROWS_NAME};\n"
    declarations += "".join(f"fast_depthwise_function {each.name};\n" for each in shapes.values())
    words = buffer.lines * columns * channels
    array = c_array("int32_t", f"{name}_records", records, title)
    return KernelCall(
        kernel="fast_depthwise",
        call=f"fast_depthwise(&{name}, {{0}}, scratch.{name}, {{1}});",
        constants=declarations + array + c_struct("fast_depthwise", name, params),
        constant_bytes=records.nbytes + _STRUCT_BYTES,
        header="kernels/fast_depthwise.h",
        scratch=f"int32_t {name}[{words}];",
        scratch_bytes=4 * words,
        activations=(op.inputs[0], op.outputs[0]),
        assembly=(
            (PAIR_ROWS_NAME, pair_rows_function()),
            *((each.name, depthwise_function(each)) for each in shapes.values()),
        ),
    )


def _columns(tile: int, stride: int, width: int) -> int:
    """Of a padded line."""
    return (tile - 1) * stride + width


def _buffers(
    stride: tuple[int, int], window: tuple[int, int], depths: tuple[int, int], width: int, heights: Collection[int]
) -> Iterator[_Buffer]:
    """Two rows at once and all columns, if there is room; else one by one, where the stride is even; else tiles."""
    channels, outputs = depths
    rows = max(heights)
    every = ((rows - 1) * stride[0] + window[0] + 1) // 2

    def buffer(at_once: int, tile: int, strip: int) -> _Buffer:
        least = ((at_once - 1) * stride[0] + window[0] + 1) // 2
        is_ring = least <= MOST_BASES
        wanted = _BUFFER_BYTES // (4 * channels * _columns(tile, stride[1], window[1]))
        lines = least if is_ring else max(least, min(every, wanted))
        return _Buffer(
            at_once, tile, part_of(tile, window, stride[1], at_once, channels, outputs), lines, is_ring, strip
        )

    whole = rows + rows % 2
    for at_once in (min(rows, 2), *([1] if stride[0] % 2 == 0 and rows > 1 else [])):
        found = buffer(at_once, width, whole)
        if 4 * found.lines * channels * _columns(width, stride[1], window[1]) <= 3 * _BUFFER_BYTES // 2:
            yield found
    parts, tile = 1, width
    while tile > 1:
        parts += 1
        tile = -(-width // parts)
        found = buffer(min(rows, 2), tile, min(whole, _STRIP_ROWS))
        if tile <= 2 or 4 * found.lines * channels * _columns(tile, stride[1], window[1]) <= _BUFFER_BYTES:
            yield found
    yield buffer(min(rows, 2), width, whole)


def part_of(tile: int, window: tuple[int, int], stride_x: int, rows: int, channels: int, outputs: int) -> int:
    """Columns of a tile to make at a time, in the fewest cycles, about: products, which fill the time, and the rest."""
    height, width = window
    column = rows * ((height + 2) // 2 * width + 2)

    def cycles(part: int) -> float:
        own = part * column + _CYCLES_A_CHANNEL + part % 2 * _CYCLES_OF_AN_ODD_COLUMN + _CYCLES_A_CALL / channels
        return -(-tile // part) * own

    most = min(tile, most_columns(height, width, stride_x, 4 * channels, outputs))
    return min(range(1, most + 1), key=lambda part: (cycles(part), part))


def packed_records(scaling: Scaling, weights: np.ndarray, multiples: int, ends: Requantisation) -> np.ndarray:
    """int32 records of all outputs 0 of the channels, then of all outputs 1 ..., as assembly/depthwise.py reads them.

    `weights`: height x width x outputs.
    """
    height, width, outputs = weights.shape
    words = weight_words((weights.astype(np.int64) * scaling.factor).astype("<i2"))
    fields = [scaling.bias, scaling.multiplier, scaling.addend, *([] if ends.right else [scaling.right])]
    fields += [scaling.mask] if ends.is_masked else []
    records = np.concatenate([words, np.stack(fields, axis=1)], axis=1).astype(np.int32)
    assert records.shape[1] == record_words(height, width, ends)
    return records.reshape(-1, multiples, records.shape[1]).transpose(1, 0, 2).reshape(outputs, -1)
