"""How far the input of a layer must begin behind its output so that no byte is overwritten before it is read.

Every kernel walks through its input and its output from front to back. Whenever it has written the output up to byte w
(excluded) and the lowest byte of the input that it has still to read is r, the input must begin at least w - r bytes
behind the output; the largest of these differences is the layer's distance, and one byte less would lose a value. What
follows is, for each kernel of boards/firmware/kernels, the list of its moments (w, r). A negative distance means that
the input may begin before the output; -WHOLE, that the kernel has read everything before it writes anything.

A fused chain (row-wise, depth-first) reads rows of its input and then writes rows of its output, step by step; what
lies between has places of its own.

`small_depthwise` goes over the image once for each block of channels. What one block writes must be nothing that a
later one reads: so its input begins a whole number of pixels behind its output, or they do not overlap. A layout knows
nothing of pixels; `laid_out` asks for another one where this went wrong, without overlap there.

The lists repeat what the C code does, so tests trace that code, load by load and store by store, and want the same
distances from it. A kernel that is not listed here gets a place of its own for its output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import window_members
from stages.graph.graph import Graph, Op
from stages.graph.memory.arena_layout import Distances
from stages.graph.memory.fusion import FusedOptions

WHOLE = 1 << 40  # more bytes than any tensor has
Moment = tuple[int, int]  # written up to, lowest byte still to be read
_Laid = TypeVar("_Laid")


def laid_out(
    graph: Graph,
    calls: Sequence[KernelCall],
    lay_out: Callable[[Distances], _Laid],
    offsets: Callable[[_Laid], Mapping[int, int]],
) -> _Laid:
    """What `lay_out` makes of the distances, in which no kernel loses a byte; `offsets` of it by tensor."""
    apart: set[int] = set()
    while True:
        found = lay_out(distances(graph, calls, apart))
        torn = torn_blocks(graph, calls, offsets(found))
        if not torn:
            return found
        assert not torn & apart
        apart |= torn


def torn_blocks(graph: Graph, calls: Sequence[KernelCall], offsets: Mapping[int, int]) -> set[int]:
    """Ops of which a block of channels would write over what a later block reads."""
    found = set()
    for number, (op, call) in enumerate(zip(graph.ops, calls, strict=True)):
        if call.kernel != "small_depthwise" or not _has_blocks(graph, op, call):
            continue
        source, result = op.inputs[0], op.outputs[0]
        behind = offsets.get(source, 0) - offsets.get(result, WHOLE)
        overlaps = -graph.tensors[source].nbytes < behind < graph.tensors[result].nbytes
        if overlaps and behind % graph.tensors[source].shape[3]:
            found.add(number)
    return found


def _has_blocks(graph: Graph, op: Op, call: KernelCall) -> bool:
    return _member(call, "block", WHOLE) < graph.tensors[op.inputs[0]].shape[3]


def distances(graph: Graph, calls: Sequence[KernelCall], apart: Collection[int] = ()) -> Distances:
    """For every op whose kernel is known here and every operand that it computes from, but for those in `apart`."""
    found: dict[tuple[int, int], int] = {}
    for number, (op, call) in enumerate(zip(graph.ops, calls, strict=True)):
        if number in apart:
            continue
        if isinstance(op.options, FusedOptions):
            joined = {i for part in op.options.ops if part.kind == "CONCATENATION" for i in part.inputs}
            alone = [tensor for tensor in graph.activations_of(op) if tensor not in joined]
            found.update({(number, tensor): _fused(graph, op, tensor) for tensor in alone})
            continue
        distance = overlap_distance(graph, op, call)
        if distance is not None:
            found.update({(number, tensor): distance for tensor in graph.activations_of(op)})
    return found


def overlap_distance(graph: Graph, op: Op, call: KernelCall) -> int | None:
    """Bytes by which any operand of `op` must begin behind its output; None: they must not overlap."""
    moments = _KERNELS.get(call.kernel)
    result = graph.tensors[op.outputs[0]].shape
    if moments is None or (
        moments is _element_by_element and any(graph.tensors[i].shape != result for i in graph.activations_of(op))
    ):
        return None  # an operand that is broadcast is read again and again
    is_in_blocks = call.kernel == "small_depthwise" and _has_blocks(graph, op, call)
    if is_in_blocks and graph.tensors[op.inputs[0]].shape[3] != result[3]:
        return None  # pixels of two sizes: no block keeps to its own bytes
    return max((written - unread for written, unread in moments(graph, op, call)), default=-WHOLE)


def _fused(graph: Graph, op: Op, tensor: int) -> int:
    """Of an operand of a fused chain; the last op, if it reads it, does so at the pace at which it writes."""
    assert isinstance(op.options, FusedOptions)
    chain, parts = op.options.chain, op.options.ops
    row_bytes = [graph.tensors[t].elements // graph.tensors[t].shape[1] for t in (op.outputs[0], tensor)]
    found = [0] if tensor in parts[-1].inputs else [-WHOLE]
    if tensor in parts[0].inputs:
        found += [written * row_bytes[0] - line * row_bytes[1] for written, line in chain.moments()]
    return max(found)


def _fast_matrix(graph: Graph, op: Op, call: KernelCall) -> Iterator[Moment]:
    """A run of pixels is widened into the buffer, then multiplied."""
    depth, outputs, pixels = _matrix_sizes(graph, op)
    run = _member(call, "run", pixels)
    return ((done * outputs, done * depth) for done in range(run, pixels, run))


def _matrix_multiply(graph: Graph, op: Op, _call: KernelCall) -> Iterator[Moment]:
    depth, outputs, pixels = _matrix_sizes(graph, op)
    return _products(depth, outputs, pixels)


def _products(depth: int, outputs: int, pixels: int) -> Iterator[Moment]:
    """Two pixels by two outputs: both pixels are read again for every pair of outputs, an odd last one by one."""
    for first in range(0, pixels - 1, 2):
        paired = outputs // 2 * 2
        before_last = paired if outputs % 2 else paired - 2
        if before_last > 0:
            yield (first + 1) * outputs + before_last, first * depth
        if outputs % 2:
            yield (first + 1) * outputs + paired if paired else first * outputs + 1, (first + 1) * depth
        if first + 2 < pixels:
            yield (first + 2) * outputs, (first + 2) * depth
    if pixels % 2 and outputs > 1:
        yield pixels * outputs - 1, (pixels - 1) * depth


def _matrix_sizes(graph: Graph, op: Op) -> tuple[int, int, int]:
    outputs, depth = graph.tensors[op.inputs[1]].shape[0], graph.tensors[op.inputs[1]].shape[-1]
    return depth, outputs, graph.tensors[op.inputs[0]].elements // depth


def _fast_vector(_graph: Graph, _op: Op, _call: KernelCall) -> Iterator[Moment]:
    """The pixel is widened into the buffer before anything is written."""
    return iter(())


def _fast_conv_2d(graph: Graph, op: Op, call: KernelCall) -> Iterator[Moment]:
    """The lines below a row of outputs, or below two, are widened into the buffer, then they are computed."""
    window = window_members(graph, op)
    row_bytes = window["output_width"] * graph.tensors[op.outputs[0]].shape[3]
    rows = _member(call, "rows", 1)
    for done in range(rows, window["output_height"], rows):
        held = (done - 1) * window["stride_y"] + window["height"]  # padded lines that were in the buffer
        line = max(held, done * window["stride_y"]) - window["padding_top"]
        if line < window["input_height"]:
            yield done * row_bytes, max(line, 0) * _line_bytes(window)


def _fast_depthwise(graph: Graph, op: Op, call: KernelCall) -> Iterator[Moment]:
    """Two lines of the padded image at a time go into the buffer; a step is one row or two, a strip some steps."""
    window = window_members(graph, op)
    outputs = graph.tensors[op.outputs[0]].shape[3]
    width, height, stride = window["output_width"], window["output_height"], window["stride_y"]
    tile, strip = _member(call, "tile", width), _member(call, "strip", height)
    at_once = 1 if ".two_rows = 0," in call.constants else 2
    starts = [min(start, width - tile) for start in range(0, width, tile)]

    def byte(line: int, start: int) -> list[int]:
        """The first of the image that a tile sees from this line on; none where nothing is left."""
        row = max(0, 2 * line - window["padding_top"])
        column = max(0, start * window["stride_x"] - window["padding_left"])
        inside = row < window["input_height"] and column < window["input_width"]
        return [(row * window["input_width"] + column) * window["channels"]] if inside else []

    for first in range(0, height, strip):
        end = min(first + strip, height)
        for number, start in enumerate(starts):
            later = byte(end * stride // 2, 0) if end < height else []
            later += [place for each in starts[number + 1 :] for place in byte(first * stride // 2, each)]
            if len(starts) == 1 and end == height:
                later = []
            for y in range(first, end, at_once):
                done = min(y + at_once, end)
                seen = ((done - y - 1) * stride + window["height"] + 1) // 2
                held = max(y * stride // 2 + seen, done * stride // 2)
                found = [*later, *(byte(held, start) if done < end else [])]
                if found:
                    yield ((done - 1) * width + start + tile) * outputs, min(found)


def _small_depthwise(graph: Graph, op: Op, call: KernelCall) -> Iterator[Moment]:
    """Two lines of the padded image at a time are interleaved into the buffer; a step is two rows with stride 1."""
    window = window_members(graph, op)
    row_bytes = window["output_width"] * graph.tensors[op.outputs[0]].shape[3]
    rows = 2 if window["stride_y"] == 1 else 1
    held = _member(call, "lines", 2)
    for step, done in enumerate(range(rows, window["output_height"], rows)):
        line = 2 * (step + held) - window["padding_top"]
        if line < window["input_height"]:
            yield done * row_bytes, max(line, 0) * _line_bytes(window)


def _conv_2d(graph: Graph, op: Op, _call: KernelCall) -> Iterator[Moment]:
    """Two pixels are gathered, then multiplied."""
    window = window_members(graph, op)
    outputs = graph.tensors[op.outputs[0]].shape[3]
    starts = _window_starts(window)
    later = np.minimum.accumulate(starts[::-1])[::-1]
    for done in range(2, len(starts), 2):
        if later[done] < WHOLE:
            yield done * outputs, int(later[done])


def _depthwise_conv_2d(graph: Graph, op: Op, _call: KernelCall) -> Iterator[Moment]:
    """Pixel by pixel, four channels at a time or one, straight from the image."""
    window = window_members(graph, op)
    outputs = graph.tensors[op.outputs[0]].shape[3]
    multiplier = outputs // window["channels"]
    steps = outputs if multiplier > 1 else outputs // 4 + outputs % 4
    return _by_pixel(window, outputs, multiplier, steps)


def _pool_2d(graph: Graph, op: Op, _call: KernelCall) -> Iterator[Moment]:
    """Pixel by pixel and channel by channel; on the Cortex-M7 four channels at a time, which can only be later."""
    window = window_members(graph, op)
    return _by_pixel(window, window["channels"], 1, window["channels"])


def _by_pixel(window: dict[str, int], outputs: int, multiplier: int, steps: int) -> Iterator[Moment]:
    starts = _window_starts(window)
    later = np.append(np.minimum.accumulate(starts[::-1])[::-1], WHOLE)
    for pixel, start in enumerate(starts.tolist()):
        if steps > 1 and start < WHOLE:  # before the last channel; without a multiplier any other is as tight
            last = outputs - 1 if multiplier > 1 else 0
            yield pixel * outputs + last, min(start + last // multiplier, int(later[pixel + 1]))
        if later[pixel + 1] < WHOLE:
            yield (pixel + 1) * outputs, int(later[pixel + 1])


def _element_by_element(graph: Graph, op: Op, _call: KernelCall) -> Iterator[Moment]:
    elements = graph.tensors[op.outputs[0]].elements
    if elements > 1:
        yield 0, 0


def _member(call: KernelCall, name: str, default: int) -> int:
    """A number of the kernel's parameters, from where they stand: the generated C."""
    found = re.search(rf"\.{name} = (\d+),", call.constants)
    return int(found.group(1)) if found else default


def _line_bytes(window: dict[str, int]) -> int:
    return window["input_width"] * window["channels"]


def _window_starts(window: dict[str, int]) -> np.ndarray:
    """The first byte that each output pixel reads; WHOLE where its window lies outside of the image."""
    lines = _first_inside(window, "y", "height", "top")
    columns = _first_inside(window, "x", "width", "left")
    starts = lines[:, np.newaxis] * _line_bytes(window) + columns[np.newaxis, :] * window["channels"]
    outside = (lines >= WHOLE)[:, np.newaxis] | (columns >= WHOLE)[np.newaxis, :]
    return np.where(outside, WHOLE, starts).reshape(-1)


def _first_inside(window: dict[str, int], axis: str, extent: str, side: str) -> np.ndarray:
    """Per output row or column, the lowest line or column of the image that it sees."""
    taps = np.arange(window[extent]) * window[f"dilation_{axis}"] - window[f"padding_{side}"]
    seen = np.arange(window[f"output_{extent}"])[:, np.newaxis] * window[f"stride_{axis}"] + taps
    inside = (seen >= 0) & (seen < window[f"input_{extent}"])
    return np.where(inside, seen, WHOLE).min(axis=1)


_KERNELS: dict[str, Callable[[Graph, Op, KernelCall], Iterator[Moment]]] = {
    "fast_matrix": _fast_matrix,
    "fast_vector": _fast_vector,
    "fast_conv_2d": _fast_conv_2d,
    "fast_depthwise": _fast_depthwise,
    "small_depthwise": _small_depthwise,
    "small_matrix": _fast_matrix,
    "small_conv_2d": _fast_conv_2d,
    "fast_add": _element_by_element,
    "matrix_multiply": _matrix_multiply,
    "conv_2d": _conv_2d,
    "depthwise_conv_2d": _depthwise_conv_2d,
    "average_pool_2d": _pool_2d,
    "max_pool_2d": _pool_2d,
    "add": _element_by_element,
    "softmax": _element_by_element,
}
