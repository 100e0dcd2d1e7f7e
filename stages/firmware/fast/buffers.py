"""How many activations of a layer are widened to int16 at a time: runs of pixels, or lines of the padded image."""

from __future__ import annotations

from dataclasses import dataclass

from stages.firmware.kernels.parameters import weighted_operands
from stages.graph.graph import ConvOptions, Graph, Op

_BUFFER_BYTES = 4096  # wanted for widened activations; two pixels or a window that need more get it


@dataclass(frozen=True)
class LineBuffer:
    """Lines that the outputs of a row see, and as many more as there is room for."""

    lines: int
    line_elements: int  # even


def run_of(pixels: int, taps: int, *, is_lean: bool = False) -> int:
    """Pixels of so many taps that fit the buffer; lean: two."""
    return min(pixels, max(2, 0 if is_lean else _BUFFER_BYTES // (2 * taps) // 2 * 2))


def line_buffer(graph: Graph, op: Op, at_once: int = 1, *, is_lean: bool = False) -> LineBuffer:
    """Of a convolution that makes so many rows at once; lean: no more lines than these see."""
    assert isinstance(op.options, ConvOptions)
    _, weights, result = weighted_operands(graph, op)
    _, height, width, channels = weights.shape
    _, rows, columns, _ = result.shape
    vertical, horizontal = op.options.stride
    taps = width * channels + width * channels % 2
    line_elements = (columns - 1) * horizontal * channels + taps
    line_elements += line_elements % 2
    padded_lines = (rows - 1) * vertical + height
    least = min(padded_lines, height + (at_once - 1) * vertical)
    wanted = 0 if is_lean else _BUFFER_BYTES // (2 * line_elements)
    return LineBuffer(max(least, min(padded_lines, wanted)), line_elements)
