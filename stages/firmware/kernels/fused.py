"""Row-wise (depth-first) fusion: a chain of operators (stages/graph/memory/fusion.py) as one generated C function.

Each kernel runs on a copy of its parameters that says how many rows to make. The arithmetic of the schedule stands in
the function as numbers; it is that of `fusion.Chain.steps`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stages.firmware.kernels.calls import KernelCall
from stages.graph.graph import Graph
from stages.graph.memory.fusion import Chain, RowPass

# The structure of each kernel that can make some of its rows; those that have a window find it under this name.
_WINDOWED = {
    "fast_conv_2d": "fast_conv_2d",
    "small_conv_2d": "small_conv_2d",
    "fast_depthwise": "fast_depthwise",
    "small_depthwise": "small_depthwise",
    "conv_2d": "conv_2d",
    "depthwise_conv_2d": "depthwise_conv_2d",
    "average_pool_2d": "pool_2d",
    "max_pool_2d": "pool_2d",
}
_PRODUCTS = ("fast_matrix", "small_matrix")  # find their number of pixels in their structure
_SUMS = ("fast_add", "add")  # likewise, of elements
# Told in their call for how many pixels, values or lines: the number behind what they read from.
_COUNTED = {"matrix_multiply": "pixels", "lookup": "values", "copy_rows": "pixels"}
_BY_LINE = "move"  # line by line, with the structure of a single one


def can_be_fused(graph: Graph, number: int, call: KernelCall) -> bool:
    """Whether an op's kernel can make a few rows of its output; fast products take no pixel alone after others."""
    if call.kernel in _PRODUCTS:
        shape = graph.tensors[graph.ops[number].outputs[0]].shape
        return len(shape) == 4 and shape[2] > 1
    if call.kernel == _BY_LINE:
        return graph.ops[number].kind == "RESIZE_NEAREST_NEIGHBOR"
    return call.kernel in (*_WINDOWED, *_COUNTED, *_SUMS)


def fused_call(graph: Graph, chain: Chain, parts: Sequence[KernelCall]) -> KernelCall:
    """`graph` is the one of which the chain is a part, `parts` are the calls of its ops."""
    between = [graph.ops[number].outputs[0] for number in chain.ops[:-1]]
    outside = dict.fromkeys(t for call in parts for t in call.activations[:-1] if t not in between)
    activations = (*outside, *between, parts[-1].activations[-1])
    name = f"fused_{chain.ops[0]}"
    return KernelCall(
        kernel=f"fused {'+'.join(call.kernel for call in parts)}",
        call=f"{name}({', '.join(f'{{{place}}}' for place in range(len(activations)))});",
        constants="".join(call.constants for call in parts),
        constant_bytes=sum(call.constant_bytes for call in parts),
        header="kernels/band.h",
        scratch="\n    ".join(call.scratch for call in parts if call.scratch),
        scratch_bytes=max(call.scratch_bytes for call in parts),
        activations=activations,
        assembly=tuple(dict(function for call in parts for function in call.assembly).items()),
        function="\n".join(_function(graph, chain, parts, name, activations)),
        parts=tuple(parts),
    )


def _function(
    graph: Graph, chain: Chain, parts: Sequence[KernelCall], name: str, activations: Sequence[int]
) -> Iterator[str]:
    """Tensor t is in `band_t`, the copy of the parameters of op n in `part_n`."""
    rows = dict(zip((call.activations[-1] for call in parts), (each.rows for each in chain.passes), strict=True))
    last = parts[-1].activations[-1]
    yield f"static __attribute__((noinline)) void {name}({', '.join(f'int8_t *tensor_{t}' for t in activations)})"
    yield "{"
    for number, call in zip(chain.ops, parts, strict=True):
        if call.kernel not in (*_COUNTED, _BY_LINE):
            yield f"    struct {_WINDOWED.get(call.kernel, call.kernel)} part_{number} = op_{number};"
    for tensor in activations:
        _, height, width, channels = graph.tensors[tensor].shape
        end = "" if tensor in rows else f", .end = {height}"
        yield f"    struct band band_{tensor} = {{.rows = tensor_{tensor}, .row_bytes = {width * channels}{end}}};"
    yield f"    while (band_{last}.end < {rows[last]}) {{"
    yield f"        const int32_t end_{last} = band_least(band_{last}.end + {chain.band}, {rows[last]});"
    for call, behind, each in reversed(list(zip(parts[:-1], parts[1:], chain.passes[1:], strict=True))):
        tensor, end = call.activations[-1], f"end_{behind.activations[-1]}"
        yield f"        const int32_t end_{tensor} = {_needed(each, end)};"
    for position, (number, call) in enumerate(zip(chain.ops, parts, strict=True)):
        tensor = call.activations[-1]
        if tensor != last:
            after = f"band_{parts[position + 1].activations[-1]}.end"
            yield f"        band_keep(&band_{tensor}, {_lowest(chain.passes[position + 1], after)});"
        yield f"        if (band_{tensor}.end < end_{tensor}) {{"
        yield from (f"            {line}" for line in _rows_call(graph, number, call))
        yield f"            band_{tensor}.end = end_{tensor};"
        yield "        }"
    yield "    }"
    yield "}"
    yield ""


def _needed(each: RowPass, end: str) -> str:
    if each.repeats > 1:
        return f"({end} + {each.repeats - 1}) / {each.repeats}"
    if (each.stride, each.reach, each.top) == (1, 1, 0):
        return end
    return f"band_least({_linear(end, each.stride, each.reach - each.top - each.stride)}, {each.lines})"


def _lowest(each: RowPass, row: str) -> str:
    if each.repeats > 1:
        return f"{row} / {each.repeats}"
    return _linear(row, each.stride, -each.top)


def _linear(value: str, factor: int, addend: int) -> str:
    product = value if factor == 1 else f"{value} * {factor}"
    return product if addend == 0 else f"{product} {'-' if addend < 0 else '+'} {abs(addend)}"


def _rows_call(graph: Graph, number: int, call: KernelCall) -> Iterator[str]:
    """One kernel, on the rows of its output that are wanted and not yet there."""
    if call.kernel == _BY_LINE:
        yield from _lines_call(graph, number, call)
        return
    *sources, result = call.activations
    _, _, width, channels = graph.tensors[result].shape
    rows = f"(end_{result} - band_{result}.end)"
    text = call.call.replace(f"&op_{number},", f"&part_{number},")
    if call.kernel in _WINDOWED:
        window = f"&part_{number}.window, &op_{number}.window, &band_{sources[0]}, &band_{result}, end_{result}"
        yield f"band_window({window});"
        starts = [f"band_{sources[0]}.rows"]
    else:
        starts = [f"band_row(&band_{source}, band_{result}.end)" for source in sources]
    if call.kernel in _PRODUCTS:
        yield f"part_{number}.pixels = {rows} * {width};"
    elif call.kernel in _COUNTED:
        count = width if _COUNTED[call.kernel] == "pixels" else width * channels
        text = re.sub(r"(\{\d+\}), \d+,", rf"\1, {rows} * {count},", call.call)
    elif call.kernel == "fast_add":
        yield f"part_{number}.elements = {rows} * {width * channels};"
    elif call.kernel == "add":  # neighbouring axes are one
        yield f"part_{number}.broadcast.sizes[BROADCAST_AXES - 1] = {rows} * {width * channels};"
    filled = text.format(*starts, f"band_row(&band_{result}, band_{result}.end)")
    yield from (line.strip() for line in filled.splitlines())


def _lines_call(graph: Graph, number: int, call: KernelCall) -> Iterator[str]:
    """An image enlarged by repeated lines."""
    source, result = call.activations
    repeats = graph.tensors[result].shape[1] // graph.tensors[source].shape[1]
    yield f"for (int32_t row = band_{result}.end; row < end_{result}; row++) {{"
    yield f"    move(&op_{number}, band_row(&band_{source}, row / {repeats}), band_row(&band_{result}, row));"
    yield "}"
