"""Layers that the fast kernels can run, as calls of them: weights as int16 pairs, scaling folded, assembly chosen.

A layer for which the fast arithmetic would not be exact, or whose shape it does not know, is left to the portable
kernels: sums that might leave 31 bits, weights that outgrow int16 when scaled, dilation.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from stages.firmware.assembly.dot import CHANNELS, LARGEST_STORE_OFFSET
from stages.firmware.fast.add import add_call
from stages.firmware.fast.buffers import line_buffer, run_of
from stages.firmware.fast.depthwise import depthwise_call
from stages.firmware.fast.dot import Dot, Place, Weights
from stages.firmware.fast.scaling import exact_scaling
from stages.firmware.fast.small import small_call
from stages.firmware.fast.small_depthwise import small_depthwise_call
from stages.firmware.kernels.c_text import c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import PARAMETER_BYTES, weighted_operands, window_members
from stages.graph.arithmetic.int8_pointwise import zero_point_of
from stages.graph.graph import ConvOptions, Graph, Op


def fast_call(
    graph: Graph,
    op: Op,
    name: str,
    stored: Weights,
    rows: Collection[int] | None = None,
    *,
    is_lean: bool = False,
) -> KernelCall | None:
    """The operator on a fast kernel, or None where it has to take the portable one.

    `rows`: in a fused chain (stages/graph/memory/fusion.py), the numbers of rows that it is asked for at a time. With
    `is_lean`, its buffers are as small as they can be.
    """
    if stored == "small" and op.kind in ("CONV_2D", "FULLY_CONNECTED"):
        small = small_call(graph, op, name, rows, is_lean=is_lean)
        if small is not None:
            return small
    if op.kind == "CONV_2D":
        return _convolution(graph, op, name, rows, is_lean=is_lean)
    if op.kind in ("ADD", "SUB"):
        return add_call(graph, op, name)
    if op.kind == "DEPTHWISE_CONV_2D":
        if stored == "small":
            return small_depthwise_call(graph, op, name, stored, rows)
        return depthwise_call(graph, op, name, rows) or small_depthwise_call(graph, op, name, stored, rows)
    if op.kind == "FULLY_CONNECTED":
        _, weights, _ = weighted_operands(graph, op)
        outputs, depth = weights.shape
        assert weights.data is not None
        pixels = graph.tensors[op.inputs[0]].elements // depth
        return _matrix(graph, op, name, weights.data.reshape(outputs, depth), {pixels}, is_lean=is_lean)
    return None


def _matrix(
    graph: Graph, op: Op, name: str, weights: np.ndarray, counts: Collection[int], *, is_lean: bool
) -> KernelCall | None:
    """`counts`: of pixels that are asked for at a time."""
    outputs, depth = weights.shape
    pixels = max(counts)
    scaling = exact_scaling(graph, op, axis=0)
    if scaling is None:
        return None
    pixel_elements = depth + depth % 2
    run = run_of(pixels, pixel_elements, is_lean=is_lean)
    runs = {min(run, count) for count in counts} | {count % run for count in counts} - {0}
    place = Place(frozenset(runs), 0, 2 * pixel_elements)
    dot = Dot(graph, op, name, scaling, weights.reshape(outputs, 1, depth), place)
    if dot.is_vector:
        return _dot_call(op, "fast_vector", dot, {"depth": depth}, dot.pixel_elements)
    params = {"depth": depth, "pixels": pixels, "run": run, "is_by_pixel": int(dot.is_by_pixel)}
    return _dot_call(op, "fast_matrix", dot, params, run * pixel_elements)


def _convolution(graph: Graph, op: Op, name: str, rows: Collection[int] | None, *, is_lean: bool) -> KernelCall | None:
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    row = result.shape[2]
    outputs, height, width, channels = weights.shape
    if (height, width) == (1, 1) and options.stride == (1, 1):
        counts = {count * row for count in rows or result.shape[1:2]}
        return _matrix(graph, op, name, weights.data.reshape(outputs, channels), counts, is_lean=is_lean)
    scaling = exact_scaling(graph, op, axis=0)
    if scaling is None or options.dilation != (1, 1):
        return None
    heights = frozenset(rows or result.shape[1:2])
    # An odd pixel at the end of each row would run alone: then two rows run together, pixel by pixel.
    in_pairs = row % 2 == 1 and max(heights) > 1 and row * outputs + CHANNELS <= LARGEST_STORE_OFFSET
    buffer = line_buffer(graph, op, at_once=2 if in_pairs else 1, is_lean=is_lean)
    line_bytes, pixel_bytes = 2 * buffer.line_elements, 2 * options.stride[1] * channels
    beside = Place(frozenset({row}), line_bytes, pixel_bytes)
    below = Place(heights, line_bytes, pixel_bytes, options.stride[0] * line_bytes, row)
    shaped = weights.data.reshape(outputs, height, width * channels)
    dot = Dot(graph, op, name, scaling, shaped, below if in_pairs else beside)
    params = {
        "window": window_members(graph, op),
        "line_elements": buffer.line_elements,
        "lines": buffer.lines,
        "rows": 2 if in_pairs else 1,
        "input_zero_point": zero_point_of(source),
    }
    return _dot_call(op, "fast_conv_2d", dot, params, buffer.lines * buffer.line_elements)


def _dot_call(op: Op, kernel: str, dot: Dot, params: dict[str, object], elements: int) -> KernelCall:
    """`elements`: of the buffer for widened activations."""
    return KernelCall(
        kernel=kernel,
        call=f"{kernel}(&{dot.name}, {{0}}, scratch.{dot.name}, {{1}});",
        constants=dot.declarations() + c_struct(kernel, dot.name, {"dot": dot.members(), **params}),
        constant_bytes=dot.stored_bytes + PARAMETER_BYTES,
        header="kernels/fast_conv_2d.h",
        scratch=f"int16_t {dot.name}[{elements}];",
        scratch_bytes=2 * elements,
        activations=(op.inputs[0], op.outputs[0]),
        assembly=dot.assembly(),
    )
