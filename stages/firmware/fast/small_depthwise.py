"""Depthwise convolutions of `weights: small`, on code that layers share: records of weights and scaling."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from stages.firmware.assembly.elementwise import INTERLEAVE_NAME, INTERLEAVED_CHANNELS, interleave_function
from stages.firmware.assembly.row_pairs import weight_words
from stages.firmware.assembly.small_depthwise import (
    MOST_LINES,
    MOST_LINES_OF_TWO_COLUMNS,
    SmallDepthwiseShape,
    is_possible,
    record_words,
    small_depthwise_function,
)
from stages.firmware.fast.dot import Weights
from stages.firmware.fast.packed_channels import PackedChannels, packed_channels
from stages.firmware.fast.scaling import Scaling, exact_scaling
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import weighted_operands, weights_title, window_members
from stages.graph.arithmetic.int8_pointwise import activation_range, zero_point_of
from stages.graph.graph import ConvOptions, Graph, Op, Tensor

_MOST_TAPS = 64  # their code is straight: 5 KB for 7x7
_BUFFER_BYTES = 8192  # wanted for lines; a wide image needs more for its fewest channels
_PACKED_BLOCK = 32  # channels whose records are made at a time: 1.1 KB with a 3x3 window
_STRUCT_BYTES = 88  # sizeof(struct small_depthwise)
_MOST = 2**16 - 1  # of what it counts in 16 bits


def small_depthwise_call(
    graph: Graph, op: Op, name: str, stored: Weights, asked: Collection[int] | None
) -> KernelCall | None:
    """None for dilation, high windows and strides, and where the scaling would not be exact.

    `asked`: numbers of rows that are computed at a time, if not all of them.
    """
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    _, height, width, outputs = weights.shape
    channels = source.shape[3]
    lines = (height + 2 if options.stride[0] == 1 else height + 1) // 2
    known = options.dilation == (1, 1) and options.stride[0] <= 2 and lines <= MOST_LINES
    scaling = exact_scaling(graph, op, axis=3)
    columns = (result.shape[2] - 1) * options.stride[1] + width
    if not known or height * width > _MOST_TAPS or scaling is None or max(outputs, columns) > _MOST:
        return None
    packable = stored == "small" and channels == outputs and not scaling.some_unshifted
    packed = packed_channels(graph, op, scaling) if packable else None
    words = record_words(height, width, scaling.some_unshifted)
    block = min(channels, _PACKED_BLOCK if packed else _largest_block(4 * lines * columns))
    ends = (*activation_range(result, options.activation), scaling.some_unshifted)
    shapes = _shapes(op, weights.shape, asked or result.shape[1:2], result.shape[2], lines, ends, stored)
    names = [[shape.name if shape else "0" for shape in row] for row in shapes]
    used = [shape for row in shapes for shape in row if shape]
    if not all(is_possible(shape) for shape in used):
        return None
    arrays, members, stored_bytes = (
        _packed(name, weights, packed) if packed else _recorded(name, weights, scaling, outputs // channels)
    )
    params = {
        **members,
        "record_words": words,
        "zero": scaling.zero,
        "depth_multiplier": outputs // channels,
        "one_row": names[0],
        "two_rows": names[1],
        "interleave": INTERLEAVE_NAME,
        "window": window_members(graph, op),
        "lines": lines,
        "columns": columns,
        "block": block,
        "input_zero_point": zero_point_of(source),
    }
    declarations = f"small_depthwise_interleave {INTERLEAVE_NAME};\n"
    declarations += "".join(f"small_depthwise_function {shape.name};\n" for shape in used)
    line_words, made_words = lines * columns * block, words * block if packed else 0
    members_of_scratch = [f"int32_t lines[{line_words}];", f"int8_t padding[{block}];"]
    members_of_scratch += [f"int32_t records[{made_words}];"] if packed else []
    made = f"scratch.{name}.records" if packed else "0"
    return KernelCall(
        kernel="small_depthwise",
        call=f"small_depthwise(&{name}, {{0}}, scratch.{name}.lines, {made}, scratch.{name}.padding, {{1}});",
        constants=declarations + arrays + c_struct("small_depthwise", name, params),
        constant_bytes=stored_bytes + _STRUCT_BYTES,
        header="kernels/small_depthwise.h",
        scratch=f"struct {{ {' '.join(members_of_scratch)} }} {name};",
        scratch_bytes=4 * (line_words + made_words) + block + -block % 4,
        activations=(op.inputs[0], op.outputs[0]),
        assembly=(
            (INTERLEAVE_NAME, interleave_function()),
            *((shape.name, small_depthwise_function(shape)) for shape in used),
        ),
    )


def _largest_block(bytes_a_channel: int) -> int:
    """Channels whose lines fit the buffer, a whole number of rounds of the interleaving if possible."""
    return max(INTERLEAVED_CHANNELS, _BUFFER_BYTES // bytes_a_channel // INTERLEAVED_CHANNELS * INTERLEAVED_CHANNELS)


def _recorded(name: str, weights: Tensor, scaling: Scaling, multiples: int) -> tuple[str, dict[str, object], int]:
    """Records ready for the assembly: arrays, members of struct small_depthwise, bytes."""
    assert weights.data is not None
    records = packed_records(scaling, weights.data[0], multiples)
    title = f"{weights_title(weights)}, int16 with bias and scaling in records of {records.shape[1]} words"
    return c_array("int32_t", f"{name}_records", records, title), {"records": f"{name}_records"}, records.nbytes


def _packed(name: str, weights: Tensor, channels: PackedChannels) -> tuple[str, dict[str, object], int]:
    """int8 weights, from which the kernel makes records block by block."""
    assert weights.data is not None
    arrays = c_array("int8_t", f"{name}_weights", weights.data, weights_title(weights)) + channels.declaration(name)
    members = {"weights": f"{name}_weights", "channels": channels.members(name)}
    return arrays, {"packed": members}, weights.nbytes + channels.codes.nbytes


def _shapes(
    op: Op,
    window: tuple[int, ...],
    heights: Collection[int],
    width: int,
    lines: int,
    ends: tuple[int, int, bool],
    stored: Weights,
) -> tuple[tuple[SmallDepthwiseShape | None, ...], ...]:
    """The functions that a layer calls: for one row and two rows of outputs, each for one column and two."""
    assert isinstance(op.options, ConvOptions)
    vertical, horizontal = op.options.stride
    rows = {1: vertical == 2 or any(h % 2 == 1 for h in heights), 2: vertical == 1 and max(heights) > 1}
    step = op.options.depth_multiplier

    def shape(r: int, c: int) -> SmallDepthwiseShape:
        return SmallDepthwiseShape(window[1], window[2], r, c, horizontal, step, *ends)

    in_twos = (
        width > 1 and lines <= MOST_LINES_OF_TWO_COLUMNS and all(is_possible(shape(r, 2)) for r in rows if rows[r])
    )
    columns = {1: (width % 2 == 1 and stored == "fast") or not in_twos, 2: in_twos}
    return tuple(tuple(shape(r, c) if rows[r] and columns[c] else None for c in (1, 2)) for r in (1, 2))


def packed_records(scaling: Scaling, weights: np.ndarray, multiples: int) -> np.ndarray:
    """int32 records of all outputs 0 of the channels, then of all outputs 1 ..., as the assembly reads them.

    `weights`: height x width x outputs.
    """
    height, width, outputs = weights.shape
    words = weight_words((weights.astype(np.int64) * scaling.factor).astype("<i2"))
    ends = scaling.words if scaling.some_unshifted else np.stack([scaling.multiplier, scaling.right - 1], axis=1)
    records = np.concatenate([words, scaling.bias[:, np.newaxis], ends], axis=1).astype(np.int32)
    assert records.shape[1] == record_words(height, width, scaling.some_unshifted)
    return records.reshape(-1, multiples, records.shape[1]).transpose(1, 0, 2).reshape(outputs, -1)
