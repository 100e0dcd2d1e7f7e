"""Generated assembly and C, pinned: a digest of every piece, beside figures that a person can read.

A changed generator shows here within seconds, also where the results stay right and only cycles are lost. Where the
change is wanted, write the files anew, look at the diff and let the tests on the twin judge:

    python -m tests.stages.firmware.pinned_text
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stages.firmware.assembly.depthwise import DepthwiseShape, depthwise_function
from stages.firmware.assembly.dot import DotShape, Requantisation, VectorShape, dot_function, vector_function
from stages.firmware.assembly.dot_loop import LoopShape, dot_loop_function
from stages.firmware.assembly.elementwise import (
    add_function,
    interleave_function,
    pair_rows_function,
    widen_function,
    widen_in_order_function,
    widen_pixels_function,
)
from stages.firmware.assembly.small_depthwise import SmallDepthwiseShape, small_depthwise_function
from stages.firmware.fast.calls import fast_call
from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.access_order import overlap_distance
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.fused import can_be_fused, fused_call
from stages.firmware.kernels.portable import kernel_call
from stages.firmware.model_source import CompiledModel, model_header, model_source
from stages.firmware.placement import Placement, Spill
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.memory.arena_layout import ArenaLayout
from stages.graph.memory.fusion import Links
from tests.stages.graph.int8_graphs import Int8Builder, residual_network

FOLDER = Path(__file__).parent / "pinned"
_LIMITS = ((-128, 127), (-128, 10), (-20, 127))
Row = tuple[str, ...]


def assembly_rows() -> Iterator[Row]:
    """Function, lines, digest."""
    texts = [widen_pixels_function(depth) for depth in (1, 2, 7, 63)]
    texts += [widen_function(), widen_in_order_function(), interleave_function(), pair_rows_function()]
    texts += [add_function(right, limits) for right, limits in zip((1, 9, 22), _LIMITS, strict=True)]
    # Lines, pairs, bytes from line to line, from pixel to pixel: straight, in parts, in lines, both; far offsets.
    sizes = [(1, 1, 0, 4), (3, 5, 40, 12), (2, 163, 700, 16), (3, 3, 2048, 16), (1, 81, 0, 324), (3, 40, 400, 8)]
    sizes.append((1, 80, 0, 4084))
    texts += [dot_function(DotShape(n, *size, n * size[3], 9, 9 * n)) for n in (1, 2) for size in sizes]
    kinds = ((False,), (True,), (True, True), (False, False, 12))
    ends = [Requantisation(*limits, *kind) for limits in _LIMITS for kind in kinds]
    texts += [dot_function(DotShape(2, 1, 3, 0, 12, 24, 5, 10, 4, end)) for end in ends]
    texts += [dot_function(DotShape(2, 2, 3, 60, 120, 12, 35, 5, stored)) for stored in (1, 3)]
    texts += [vector_function(VectorShape(*shape)) for shape in ((2,), (64, 3), (320,), (162, 4, ends[2]))]
    for pixels, unshifted in ((1, False), (2, True), (1, True), (2, False)):
        texts.append(dot_loop_function(LoopShape(pixels, *_LIMITS[1 + unshifted], unshifted)))
    # Window, outputs at a time, stride, depth multiplier, range, whether a channel has no right shift.
    windows = [(1, 1, 1, 1, 1), (1, 2, 2, 2, 1), (3, 3, 1, 2, 2), (2, 3, 1, 2, 1), (8, 1, 1, 1, 1), (7, 2, 2, 1, 1)]
    windows += [(4, 1, 2, 2, 1), (3, 1, 1, 1, 3, 2), (3, 3, 2, 2, 1), (3, 2, 1, 2, 1, 4, -20, 10, True)]
    texts += [small_depthwise_function(SmallDepthwiseShape(*window)) for window in windows]
    # Window, strides, outputs at a time; bytes from column to column and line to line; outputs to the next row, column.
    rows = [(3, 3, 1, 1, 2, 5, 64, 0, 80, 16), (3, 3, 2, 2, 2, 7, 40, 0, 90, 10), (1, 1, 1, 1, 1, 1, 4, 0, 1, 1)]
    rows += [
        (9, 1, 1, 1, 2, 3, 40, 120, 30, 10),
        (2, 4, 3, 1, 1, 7, 12, 0, 42, 3),
        (3, 3, 1, 1, 2, 6, 400, 0, 5000, 100),
    ]
    texts += [depthwise_function(DepthwiseShape(*one)) for one in rows]
    texts += [depthwise_function(DepthwiseShape(*rows[0], 2, end)) for end in (ends[0], ends[5])]
    for text in texts:
        name = next(line.removesuffix(":") for line in text.splitlines() if line.endswith(":"))
        yield name, str(text.count("\n")), _digest(text)


def call_rows(weights: Weights | None) -> Iterator[Row]:
    """Network, operator, kernel, how far the input lies behind the output; bytes of constants, of scratch; digest."""
    for title, graph in networks():
        for number, op in enumerate(graph.ops):
            call = fast_call(graph, op, f"op_{number}", weights) if weights else kernel_call(graph, number)
            if call is None:
                yield title, f"{number} {op.kind}", "portable"
            else:
                behind = str(overlap_distance(graph, op, call))
                yield title, f"{number} {op.kind}", call.kernel, behind, *_figures(call)


def model_rows() -> Iterator[Row]:
    """File, bytes of code at most, digest: with an arena in one part and in two, with and without marks, fused."""
    graph, column = residual_network(0), _column()
    for weights in (None, "fast", "small"):
        for one, first in ((graph, 1), (column, 0)):
            calls = _calls(one, weights)
            may = {number for number, call in enumerate(calls) if can_be_fused(one, number, call)}
            chain = list(Links(one, may).starting_at(range(len(one.ops)), first))[-1]
            for band in (1, 2):
                fused = fused_call(one, replace(chain, band=band), calls[first : first + len(chain.ops)])
                yield f"{fused.kernel}, {band} rows", str(len(fused.function)), _digest(fused.function + fused.call)
        calls = _calls(graph, weights)
        places = {op.outputs[0]: 600 * n for n, op in enumerate(graph.ops)} | {graph.inputs[0]: 6000}
        places |= {op.outputs[0]: places[op.inputs[0]] for op in graph.ops if op.kind == "RESHAPE"}
        offsets = tuple(places.get(tensor, -1) for tensor in range(len(graph.tensors)))
        layout = ArenaLayout(offsets=offsets, arena_bytes=6500, lower_bound_bytes=0, proven_optimal=True, live_bytes=())
        model = CompiledModel(graph=graph, layout=layout, calls=tuple(calls), network=graph)
        first = {tensor: at for tensor, at in places.items() if at < 1000}
        second = {tensor: at - 1000 for tensor, at in places.items() if at >= 1000}
        spill = Spill(region="b", macro="BULK", first_bytes=1000, second_bytes=5600, first=first, second=second)
        for title, placement in (
            ("one part", Placement(region="a", macro="FAST", ram_weights=frozenset({0, 2}))),
            ("two parts", Placement(region="a", macro="FAST", scratch_macro="OTHER", spill=spill)),
        ):
            code = str(model.most_code_bytes)
            yield f"model.c, {weights}, {title}", code, _digest(model_source(model, placement))
            yield f"model.h, {weights}, {title}", code, _digest(model_header(model, "net", "mfcc", placement))
            yield f"bare model.c, {weights}, {title}", code, _digest(model_source(model, placement, marks=False))


def _calls(graph: Graph, weights: Weights | None) -> list[KernelCall]:
    portable = [kernel_call(graph, number) for number in range(len(graph.ops))]
    if weights is None:
        return portable
    return [fast_call(graph, op, f"op_{n}", weights) or portable[n] for n, op in enumerate(graph.ops)]


def _column() -> Graph:
    builder = Int8Builder(5)
    x = builder.conv(builder.input(12, 9, 3), 4, (3, 3), ConvOptions(stride=(2, 1)))
    x = builder.depthwise(x, (3, 3), ConvOptions())
    x = builder.pool("MAX_POOL_2D", x, PoolOptions((2, 3), (2, 3)))
    return builder.graph(builder.conv(x, 6, (1, 1), ConvOptions()))


def _figures(call: KernelCall) -> Row:
    text = [call.call, call.constants, call.header, call.scratch, call.function, *dict(call.assembly)]
    return str(call.constant_bytes), str(call.scratch_bytes), _digest("\n".join([*text, str(call.activations)]))


def networks() -> Iterator[tuple[str, Graph]]:
    """Operators side by side, in every way in which they are stored."""
    builder = Int8Builder(0)
    _products(builder)
    yield "products", builder.graph(*range(len(builder.tensors)))
    builder = Int8Builder(1)
    _windows(builder)
    yield "windows", builder.graph(*range(len(builder.tensors)))
    builder = Int8Builder(2)
    _others(builder)
    yield "others", builder.graph(*range(len(builder.tensors)))


def _products(builder: Int8Builder) -> None:
    """1x1 convolutions and FULLY_CONNECTED: one pixel, odd numbers, several runs, finer outputs, few outputs."""
    for pixels, depth, outputs, finer in (
        *((1, 6, 5, 1), (1, 70, 90, 1), (5, 8, 6, 1), (6, 5, 4, 2.0**7), (4, 900, 4, 1), (7, 4, 8, 2.0**13)),
        *((3, 4, 3, 1), (1, 8, 3, 1), (2, 700, 4, 1), (3, 3, 4, 2.0**16)),
    ):
        x = builder.conv(builder.input(1, pixels, depth), outputs, (1, 1), ConvOptions(activation="relu"))
        builder.set_grid(x, _scale(builder, x) / finer, -5)
    for pixels, depth in ((1, 5), (6, 8)):  # one scale for all channels
        x = builder.input(1, pixels, depth)
        builder.conv(x, 4, (1, 1), ConvOptions(activation="relu6"), per_channel=False)
    for depth, outputs, per_channel in ((10, 4, True), (33, 7, False), (9, 2, False), (80, 60, True)):
        x = builder.flatten(builder.input(1, 1, depth))
        builder.fully_connected(x, outputs, ActivationOptions("relu6"), per_channel=per_channel)


def _windows(builder: Int8Builder) -> None:
    """Convolutions, depthwise too, and pooling: strides, padding, dilation, images wider than the buffers."""
    image, odd, wide, widest = (builder.input(*s) for s in ((9, 7, 4), (8, 6, 3), (40, 30, 8), (5, 300, 8)))
    for x, outputs, kernel, options in (
        (image, 8, (3, 3), ConvOptions(stride=(2, 2), activation="relu")),
        (image, 5, (2, 5), ConvOptions(padding="valid")),
        (image, 4, (1, 1), ConvOptions(stride=(2, 1))),
        (image, 4, (3, 2), ConvOptions(dilation=(2, 1))),
        (odd, 6, (3, 3), ConvOptions(stride=(1, 2), activation="relu6")),
        (odd, 3, (3, 3), ConvOptions()),
        (wide, 4, (3, 3), ConvOptions()),
        (widest, 4, (3, 1), ConvOptions(stride=(2, 1))),
    ):
        builder.conv(x, outputs, kernel, options)
    many = builder.input(4, 4, 45)
    for x, kernel, options in (
        (image, (3, 3), ConvOptions()),
        (image, (3, 3), ConvOptions(stride=(2, 2), activation="relu")),
        (image, (2, 4), ConvOptions(padding="valid", depth_multiplier=2)),
        (odd, (4, 1), ConvOptions(stride=(1, 2))),
        (odd, (7, 1), ConvOptions(dilation=(1, 1))),
        (odd, (3, 3), ConvOptions(dilation=(1, 2))),
        (odd, (3, 3), ConvOptions(stride=(3, 1))),
        (many, (3, 2), ConvOptions(activation="relu6")),
        (widest, (3, 3), ConvOptions(stride=(2, 2))),
    ):
        finer = builder.depthwise(x, kernel, options)
    builder.set_grid(finer, _scale(builder, finer) / 2.0**7, 3)
    builder.pool("AVERAGE_POOL_2D", image, PoolOptions((3, 2), (2, 2), padding="same", activation="relu"))
    builder.pool("MAX_POOL_2D", odd, PoolOptions((2, 2), (2, 1), padding="valid"))


def _others(builder: Int8Builder) -> None:
    """ADD and MUL with constants and repeated operands; what changes shapes; functions of one value."""
    first, second, row = builder.input(5, 4, 3), builder.input(5, 4, 3), builder.input(1, 4, 1)
    for kind in ("ADD", "MUL"):
        builder.elementwise(kind, first, second, ActivationOptions("relu"))
        builder.elementwise(kind, first, row, ActivationOptions())
        builder.elementwise(kind, builder.constant(1, 5, 4, 3), first, ActivationOptions("relu6"))
        finer = builder.elementwise(kind, first, second, ActivationOptions())
        builder.set_grid(finer, _scale(builder, finer) / 2.0**25, -100)
    for axes, keep in (((1, 2), True), ((3,), False), ((1, 3), True), ((-1, 2, 1), False)):
        builder.mean(first, axes, keep=keep)
    finer = builder.mean(first, (1,), keep=True)
    builder.set_grid(finer, _scale(builder, first) / 2.0**9, 0)
    builder.pad(first, (1, 2), (0, 1), (2, 0))
    builder.pad(builder.flatten(first), (3, 1))
    builder.concatenate(3, builder.input(5, 4, 3), builder.constant(1, 5, 4, 2), builder.input(5, 4, 1))
    builder.concatenate(1, builder.input(2, 4, 3), builder.input(2, 4, 3))
    for beta in (1.0, 0.1):
        builder.softmax(second, beta)
    for kind in ("RELU", "RELU6", "LOGISTIC", "HARD_SWISH"):
        builder.unary(kind, first)
    builder.unary("QUANTIZE", first, 0.7)


def _scale(builder: Int8Builder, index: int) -> float:
    quantisation = builder.tensors[index].quantisation
    assert quantisation is not None
    return quantisation.scale[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pinned(name: str) -> list[Row]:
    with (FOLDER / f"{name}.csv").open(newline="") as stream:
        return [tuple(row) for row in csv.reader(stream)]


def main() -> None:
    rows = {"assembly": assembly_rows(), "portable": call_rows(None), "fast": call_rows("fast")}
    rows |= {"small": call_rows("small"), "model": model_rows()}
    for name, own in rows.items():
        with (FOLDER / f"{name}.csv").open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(own)


if __name__ == "__main__":
    main()
