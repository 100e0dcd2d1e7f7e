"""3x3 depthwise convolutions as calls of the fast kernel: records of weights and scaling, one per channel."""

from __future__ import annotations

import numpy as np

from stages.firmware.assembly.depthwise import RECORD_WORDS, WINDOW, DepthwiseShape, depthwise_function
from stages.firmware.c_text import c_array, c_struct
from stages.firmware.fast_scaling import Scaling, exact_scaling
from stages.firmware.kernel_calls import KernelCall
from stages.firmware.kernel_parameters import (
    PARAMETER_BYTES,
    weighted_operands,
    weights_title,
    window_members,
    zero_point_of,
)
from stages.graph.graph import ConvOptions, Graph, Op
from stages.graph.int8_reference import activation_range


def depthwise_call(graph: Graph, op: Op, name: str) -> KernelCall | None:
    """None for other windows and strides, and where the scaling would not be exact."""
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    _, height, width, outputs = weights.shape
    channels = source.shape[3]
    known = (height, width) == (WINDOW, WINDOW) and options.dilation == (1, 1) and max(options.stride) <= 2
    scaling = exact_scaling(graph, op, axis=3)
    if not known or outputs != channels or scaling is None:
        return None
    columns = (result.shape[2] - 1) * options.stride[1] + WINDOW
    records = packed_records(scaling, weights.data[0])
    shapes = _shapes(op, result.shape, (*activation_range(result, options.activation), scaling.some_unshifted))
    names = [[shape.name if shape else "0" for shape in row] for row in shapes]
    used = [shape for row in shapes for shape in row if shape]
    walk = {
        "records": f"{name}_records",
        "pitch_bytes": 4 * columns,
        "outputs": outputs,
        "row_bytes": result.shape[2] * outputs,
        "end": f"&{name}_records[{records.size}]",
    }
    params = {
        "walk": walk,
        "one_row": names[0],
        "two_rows": names[1],
        "window": window_members(source, result, (height, width), options, options.dilation),
        "columns": columns,
        "input_zero_point": zero_point_of(source),
    }
    declarations = "".join(f"fast_depthwise_function {shape.name};\n" for shape in used)
    title = f"{weights_title(weights)}, int16 with bias and scaling in records of {RECORD_WORDS} words"
    array = c_array("int32_t", f"{name}_records", records, title)
    words = columns * channels
    return KernelCall(
        kernel="fast_depthwise",
        call=f"fast_depthwise(&{name}, {{0}}, scratch.{name}.lines, scratch.{name}.padding, {{1}});",
        constants=declarations + array + c_struct("fast_depthwise", name, params),
        constant_bytes=records.nbytes + 2 * PARAMETER_BYTES,
        header="kernels/fast_depthwise.h",
        scratch=f"struct {{ int32_t lines[{2 * words}]; int8_t padding[{channels}]; }} {name};",
        scratch_bytes=8 * words + channels + -channels % 4,
        activations=(op.inputs[0], op.outputs[0]),
        assembly=tuple((shape.name, depthwise_function(shape)) for shape in used),
    )


def _shapes(
    op: Op, result: tuple[int, ...], ends: tuple[int, int, bool]
) -> tuple[tuple[DepthwiseShape | None, ...], ...]:
    """The functions that a layer calls: for one row and two rows of outputs, each for one column and two."""
    assert isinstance(op.options, ConvOptions)
    vertical, horizontal = op.options.stride
    _, height, width, _ = result
    rows = {1: vertical == 2 or height % 2 == 1, 2: vertical == 1 and height > 1}
    columns = {1: width % 2 == 1, 2: width > 1}
    return tuple(
        tuple(DepthwiseShape(r, c, horizontal, *ends) if rows[r] and columns[c] else None for c in (1, 2))
        for r in (1, 2)
    )


def packed_records(scaling: Scaling, weights: np.ndarray) -> np.ndarray:
    """int32, channels x RECORD_WORDS, from weights 3 x 3 x channels, as assembly/depthwise.py reads them."""
    scaled = (weights.astype(np.int64) * scaling.factor).astype("<i2")  # rows x columns x channels
    pairs = [np.stack([scaled[row], scaled[row + 1]], axis=-1) for row in (0, 1)]  # columns x channels x 2
    words = [np.ascontiguousarray(pair.transpose(1, 0, 2)).view("<i4")[..., 0] for pair in pairs]  # channels x columns
    return np.concatenate(
        [*words, scaling.bias.astype(np.int32)[:, np.newaxis], scaling.words.astype(np.int32)], axis=1
    )
