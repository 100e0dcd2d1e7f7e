"""Layers that the fast kernels can run, as calls of them: weights as int16 pairs, scaling folded, assembly chosen.

A layer for which the fast arithmetic would not be exact, or whose shape it does not know, is left to the portable
kernels: sums that might leave 31 bits, weights that outgrow int16 when scaled, fewer than four outputs, dilation.
"""

from __future__ import annotations

import numpy as np

from stages.firmware.assembly.dot import CHANNELS, HEADER_WORDS, DotShape, dot_function
from stages.firmware.c_text import c_array, c_struct
from stages.firmware.fast_add import add_call
from stages.firmware.fast_depthwise import depthwise_call
from stages.firmware.fast_scaling import Scaling, exact_scaling
from stages.firmware.kernel_calls import KernelCall
from stages.firmware.kernel_parameters import (
    PARAMETER_BYTES,
    weighted_operands,
    weights_title,
    window_members,
    zero_point_of,
)
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op
from stages.graph.int8_reference import activation_range

_BUFFER_BYTES = 4096  # wanted for widened activations; a window that needs more gets it


def fast_call(graph: Graph, op: Op, name: str) -> KernelCall | None:
    """The operator on a fast kernel, or None where it has to take the portable one."""
    if op.kind == "CONV_2D":
        return _convolution(graph, op, name)
    if op.kind == "ADD":
        return add_call(graph, op, name)
    if op.kind == "DEPTHWISE_CONV_2D":
        return depthwise_call(graph, op, name)
    if op.kind == "FULLY_CONNECTED":
        source, weights, _ = weighted_operands(graph, op)
        outputs, depth = weights.shape
        assert weights.data is not None
        return _matrix(graph, op, name, weights.data.reshape(outputs, depth), source.elements // depth)
    return None


def _matrix(graph: Graph, op: Op, name: str, weights: np.ndarray, pixels: int) -> KernelCall | None:
    outputs, depth = weights.shape
    scaling = exact_scaling(graph, op, axis=0)
    if scaling is None or outputs < CHANNELS:
        return None
    pixel_elements = depth + depth % 2
    run = min(pixels, max(2, _BUFFER_BYTES // (2 * pixel_elements) // 2 * 2))
    dot = _Dot(graph, op, name, scaling, weights.reshape(outputs, 1, depth), (0, 2 * pixel_elements))
    struct = {"dot": dot.members(pixels, run), "depth": depth, "pixels": pixels, "run": run}
    return KernelCall(
        kernel="fast_matrix",
        call=f"fast_matrix(&{name}, {{0}}, scratch.{name}, {{1}});",
        constants=dot.declarations(pixels, run) + c_struct("fast_matrix", name, struct),
        constant_bytes=dot.blocks.nbytes + PARAMETER_BYTES,
        header="kernels/fast_conv_2d.h",
        scratch=f"int16_t {name}[{run * pixel_elements}];",
        scratch_bytes=2 * run * pixel_elements,
        activations=(op.inputs[0], op.outputs[0]),
        assembly=dot.assembly(pixels, run),
    )


def _convolution(graph: Graph, op: Op, name: str) -> KernelCall | None:
    options = op.options
    assert isinstance(options, ConvOptions)
    source, weights, result = weighted_operands(graph, op)
    assert weights.data is not None
    outputs, height, width, channels = weights.shape
    if (height, width) == (1, 1) and options.stride == (1, 1):
        return _matrix(graph, op, name, weights.data.reshape(outputs, channels), source.elements // channels)
    scaling = exact_scaling(graph, op, axis=0)
    if scaling is None or outputs < CHANNELS or options.dilation != (1, 1):
        return None
    window = window_members(source, result, (height, width), options, options.dilation)
    taps = width * channels + width * channels % 2
    pixel_elements = options.stride[1] * channels
    line_elements = (result.shape[2] - 1) * pixel_elements + taps
    line_elements += line_elements % 2
    padded_lines = (result.shape[1] - 1) * options.stride[0] + height
    lines = max(height, min(padded_lines, _BUFFER_BYTES // (2 * line_elements)))
    places = (2 * line_elements, 2 * pixel_elements)
    dot = _Dot(graph, op, name, scaling, weights.data.reshape(outputs, height, width * channels), places)
    row = result.shape[2]
    params = {
        "dot": dot.members(row, row),
        "window": window,
        "line_elements": line_elements,
        "lines": lines,
        "input_zero_point": zero_point_of(source),
    }
    return KernelCall(
        kernel="fast_conv_2d",
        call=f"fast_conv_2d(&{name}, {{0}}, scratch.{name}, {{1}});",
        constants=dot.declarations(row, row) + c_struct("fast_conv_2d", name, params),
        constant_bytes=dot.blocks.nbytes + PARAMETER_BYTES,
        header="kernels/fast_conv_2d.h",
        scratch=f"int16_t {name}[{lines * line_elements}];",
        scratch_bytes=2 * lines * line_elements,
        activations=(op.inputs[0], op.outputs[0]),
        assembly=dot.assembly(row, row),
    )


class _Dot:
    """The matrix product of a layer: its packed blocks and the assembly that runs over them."""

    def __init__(
        self, graph: Graph, op: Op, name: str, scaling: Scaling, weights: np.ndarray, places: tuple[int, int]
    ) -> None:
        """`weights`: outputs x lines x taps; `places`: bytes from line to line and from pixel to pixel."""
        assert isinstance(op.options, ConvOptions | ActivationOptions)
        source, stored, result = weighted_operands(graph, op)
        lowest, highest = activation_range(result, op.options.activation)
        self.outputs, lines, taps = weights.shape
        self.title = weights_title(stored)
        self.name = name
        self.blocks = packed_blocks(scaling, weights)
        self._elements = places[1] // 2
        self._shapes = {
            pixels: DotShape(
                *(pixels, lines, (taps + 1) // 2, places[0] if lines > 1 else 0, places[1]),
                *(lowest, highest, scaling.some_unshifted),
            )
            for pixels in (1, 2)
        }

    def _used(self, pixels: int, run: int) -> list[int]:
        """One, two or both: which of the functions a layer of so many pixels, in runs of so many, calls."""
        parts = {run, pixels % run} - {0}
        return [n for n, used in ((1, any(p % 2 for p in parts)), (2, max(parts) > 1)) if used]

    def members(self, pixels: int, run: int) -> dict[str, object]:
        used = self._used(pixels, run)
        return {
            "two_pixels": self._shapes[2].name if 2 in used else "0",
            "one_pixel": self._shapes[1].name if 1 in used else "0",
            "blocks": f"{self.name}_blocks",
            "block_words": self.blocks.shape[1],
            "outputs": self.outputs,
            "pixel_elements": self._elements,
        }

    def declarations(self, pixels: int, run: int) -> str:
        functions = "".join(f"fast_dot_function {self._shapes[n].name};\n" for n in self._used(pixels, run))
        title = f"{self.title}, int16 in blocks of {CHANNELS} outputs"
        return functions + c_array("int32_t", f"{self.name}_blocks", self.blocks, title)

    def assembly(self, pixels: int, run: int) -> tuple[tuple[str, str], ...]:
        return tuple((self._shapes[n].name, dot_function(self._shapes[n])) for n in self._used(pixels, run))


def packed_blocks(scaling: Scaling, weights: np.ndarray) -> np.ndarray:
    """int32, for each four outputs their header and their weights (outputs x lines x taps); see assembly/dot.py."""
    outputs, lines, taps = weights.shape
    scaled = weights.astype(np.int64) * scaling.factor[:, np.newaxis, np.newaxis]
    padded = np.pad(scaled, ((0, 0), (0, 0), (0, taps % 2))).astype("<i2")
    words = np.ascontiguousarray(padded.reshape(outputs, -1)).view("<i4")  # outputs x pairs
    blocks = []
    for start in range(0, outputs, CHANNELS):
        first = min(start, outputs - CHANNELS)
        own = slice(first, first + CHANNELS)
        header = [scaling.bias[own].astype(np.int32), scaling.words[own].astype(np.int32).reshape(-1)]
        block = np.concatenate([*header, words[own].T.reshape(-1)])
        blocks.append(block)
    assert blocks[0].size == HEADER_WORDS + CHANNELS * words.shape[1]
    return np.stack(blocks)
