"""Depthwise convolutions as calls of the fast kernel: records of weights and scaling, assembly for their sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from stages.firmware.assembly.depthwise import (
    DepthwiseShape,
    column_words,
    depthwise_function,
    is_possible,
    record_words,
)
from stages.firmware.assembly.elementwise import PAIR_ROWS_NAME, pair_rows_function
from stages.firmware.fast.scaling import Scaling, exact_scaling, requantisation
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import weighted_operands, weights_title, window_members
from stages.graph.arithmetic.int8_pointwise import zero_point_of
from stages.graph.graph import ConvOptions, Graph, Op

_MOST_TAPS = 64  # their code is straight: 5 KB for 7x7
_BUFFER_BYTES = 8192  # wanted for lines
_MOST_BUFFER_BYTES = 12288  # where all channels at once need more: cheaper than blocks
_STRIP_ROWS = 4  # of outputs, after which the next block of channels has its turn
_STRUCT_BYTES = 60  # sizeof(struct fast_depthwise)
_MOST = 2**16 - 1  # of what it counts in 16 bits


@dataclass(frozen=True)
class _Buffer:
    """Lines of so many channels at a time."""

    block: int
    lines: int
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
    columns = (result.shape[2] - 1) * options.stride[1] + width
    if scaling is None or options.dilation != (1, 1) or height * width > _MOST_TAPS or max(outputs, columns) > _MOST:
        return None
    heights = asked or result.shape[1:2]
    rows = {1: any(h % 2 for h in heights), 2: max(heights) > 1}
    ends = requantisation(graph, op, scaling)

    def shape(at_once: int, buffer: _Buffer) -> DepthwiseShape:
        pixel_bytes = 4 * buffer.block
        window = (height, width, *options.stride, at_once, result.shape[2])
        return DepthwiseShape(*window, pixel_bytes, columns * pixel_bytes, outputs, outputs // channels, ends)

    for buffer in _buffers(options.stride[0], height, 4 * columns, channels, heights):
        shapes = {at_once: shape(at_once, buffer) for at_once in rows if rows[at_once]}
        if all(is_possible(each) for each in shapes.values()):
            break
    else:
        return None
    records = packed_records(scaling, weights.data[0], outputs // channels, ends.is_masked)
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
        "columns": columns,
        "block": buffer.block,
        "strip": buffer.strip,
        "input_zero_point": zero_point_of(source),
    }
    declarations = f"fast_depthwise_pair {PAIR_ROWS_NAME};\n"
    declarations += "".join(f"fast_depthwise_function {each.name};\n" for each in shapes.values())
    words = buffer.lines * columns * buffer.block
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


def _buffers(stride: int, height: int, column_bytes: int, channels: int, heights: Collection[int]) -> Iterator[_Buffer]:
    """All channels at once, if there is room; else blocks, the larger the better. `column_bytes`: of one channel."""
    rows = max(heights)
    least = ((min(rows, 2) - 1) * stride + height + 1) // 2
    every = ((rows - 1) * stride + height + 1) // 2
    whole = rows + rows % 2

    def lines(block: int, most: int) -> int:
        return max(least, min(most, _BUFFER_BYTES // (block * column_bytes)))

    if least * channels * column_bytes <= _MOST_BUFFER_BYTES:
        yield _Buffer(channels, lines(channels, every), whole)
    strip = min(whole, _STRIP_ROWS)
    needed = ((strip - 1) * stride + height + 1) // 2
    largest = max(1, _BUFFER_BYTES // (min(needed, every) * column_bytes))
    block = min(channels, largest)
    while block >= 1:
        parts = -(-channels // block)
        even = -(-channels // parts)
        yield _Buffer(even, lines(even, min(needed, every)), strip)
        block //= 2


def packed_records(scaling: Scaling, weights: np.ndarray, multiples: int, is_masked: bool) -> np.ndarray:
    """int32 records of all outputs 0 of the channels, then of all outputs 1 ..., as assembly/depthwise.py reads them.

    `weights`: height x width x outputs.
    """
    height, width, outputs = weights.shape
    scaled = (weights.astype(np.int64) * scaling.factor).astype("<i2")
    if height == 1:
        scaled = np.concatenate([scaled, np.zeros_like(scaled)])
    pairs = np.stack([scaled[:-1], scaled[1:]], axis=-1)  # pairs of rows x columns x outputs x 2
    words = np.ascontiguousarray(pairs.transpose(2, 1, 0, 3)).view("<i4").reshape(outputs, width * column_words(height))
    ends = [scaling.bias, scaling.multiplier, scaling.addend, scaling.right, *([scaling.mask] if is_masked else [])]
    records = np.concatenate([words, np.stack(ends, axis=1)], axis=1).astype(np.int32)
    assert records.shape[1] == record_words(height, width, is_masked)
    return records.reshape(-1, multiples, records.shape[1]).transpose(1, 0, 2).reshape(outputs, -1)
