"""Small networks, at least one for every operator and combination that files of others have; written directly.

Each is the graph that a file holds. What a test does with it: write it, let TensorFlow Lite Micro run it, read it back,
compile it, and want the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stages.graph.graph import (
    FLOAT_KINDS,
    ActivationOptions,
    ConvOptions,
    Graph,
    Op,
    Quantisation,
    Tensor,
)
from tests.stages.firmware.coverage.builder import Builder, lstm_network, svdf_network
from tests.stages.firmware.coverage.ends import (
    conv_1d,
    heads,
    map_of,
    mixed_ends,
    passed_on,
    product_of_sides,
    regrid,
    resized,
    shuffle,
    static_shape,
    stream,
    strided,
    transposed,
    two_streams,
    uint8_edges,
)
from tests.stages.firmware.coverage.wide import WIDE_NETWORKS

_UNIT = Quantisation((1 / 128,), (0,))


def _curve(
    make: Builder, kind: str, scale: float, *options: float, grid: Quantisation | None = None, zero_point: int = -11
) -> list[int]:
    x = regrid(make, make.input(8, 8, 4), scale, zero_point)
    return [make.plain(kind, (x,), (1, 8, 8, 4), options=options, **({"grid": grid} if grid else {}))]


def _with(make: Builder, kind: str, *shape: int, factor: float = 1.0, activation: str = "none") -> list[int]:
    """SUB, DIV with another tensor or a constant."""
    x = map_of(make, 5, 4, 6)
    other = make.constant(*shape) if shape else make.conv(x, 6, (1, 1), ConvOptions())
    if kind == "DIV":  # nothing is divided by nothing
        values = make.tensors[other].data
        assert values is not None
        grid = Quantisation((make._scale_of(other),), (-128,))
        make.tensors[other] = replace(make.tensors[other], quantisation=grid, data=np.maximum(values, -120))
    return [make.pair(kind, x, other, factor, activation)]


def _extreme(make: Builder, kind: str, *shape: int) -> list[int]:
    x = map_of(make, 5, 4, 6)
    other = make.constant(*shape) if shape else make.conv(x, 6, (1, 1), ConvOptions())
    return [make.plain(kind, (x, other), (1, 5, 4, 6))]


def _squared(make: Builder) -> list[int]:
    x = map_of(make, 5, 4, 6)
    other = make.conv(x, 6, (1, 1), ConvOptions())
    scale = 60 * max(make._scale_of(x), make._scale_of(other)) ** 2
    return [make.plain("SQUARED_DIFFERENCE", (x, other), (1, 5, 4, 6), grid=Quantisation((scale,), (-100,)))]


def _prelu(make: Builder) -> list[int]:
    x = map_of(make, 5, 4, 6)
    return [make.plain("PRELU", (x, make.constant(1, 1, 6)), (1, 5, 4, 6))]


def _split(make: Builder, kind: str) -> list[int]:
    x = map_of(make, 6, 4, 8)
    if kind == "SPLIT":
        first = make.plain("SPLIT", (make.integers([3]), x), (1, 6, 4, 4), (1, 6, 4, 4), options=(2,))
    elif kind == "SPLIT_V":
        first = make.plain(
            "SPLIT_V", (x, make.integers([1, 5]), make.integers([-3])), (1, 1, 4, 8), (1, 5, 4, 8), options=(2,)
        )
    else:
        first = make.plain("UNPACK", (x,), *[(1, 6, 8)] * 4, options=(2, 4))
        return [make.plain("MAXIMUM", (first, first + 3), (1, 6, 8)), first + 1]
    return [make.plain("TANH", (first,), make.tensors[first].shape, grid=_UNIT), first + 1]


def _pack(make: Builder) -> list[int]:
    x = make.reshape(map_of(make, 4, 3, 2), (1, 24))
    other = make.constant(1, 24)
    make.tensors[other] = replace(make.tensors[other], quantisation=make.tensors[x].quantisation)
    return [make.plain("PACK", (x, other, x), (1, 3, 24), options=(1, 3))]


def _padded(make: Builder, kind: str, *options: float) -> list[int]:
    x = map_of(make, 6, 4, 3)
    operands = [x, make.integers([[0, 0], [2, 1], [3, 0], [0, 0]])]
    if kind == "PADV2":
        value = make.constant(1)
        make.tensors[value] = replace(make.tensors[value], quantisation=make.tensors[x].quantisation)
        operands.append(value)
    return [make.plain(kind, tuple(operands), (1, 9, 7, 3), options=options)]


def _moved(make: Builder, kind: str, shape: tuple[int, ...], *options: float, values: Any = None) -> list[int]:
    x = map_of(make, 6, 4, 8)
    operands = (x,) if values is None else (x, *(make.integers(each) for each in values))
    return [make.plain(kind, operands, shape, options=options)]


def _null_pad(make: Builder) -> list[int]:
    return [make.pad(map_of(make, 5, 4, 3), (1, 2), (0, 1), (0, 0))]


def _silent_channel(make: Builder) -> list[int]:
    """A weight scale of 0 where all weights are 0, as in MCUNet."""
    y = make.conv(make.input(6, 5, 3), 8, (3, 3), ConvOptions(activation="relu"))
    weights, bias = (make.tensors[index] for index in make.ops[-1].inputs[1:])
    assert weights.quantisation and weights.data is not None
    weights.data[2] = 0
    scales = tuple(0.0 if n == 2 else scale for n, scale in enumerate(weights.quantisation.scale))
    make.tensors[make.ops[-1].inputs[1]] = replace(weights, quantisation=replace(weights.quantisation, scale=scales))
    make.tensors[make.ops[-1].inputs[2]] = replace(bias, quantisation=None)
    return [make.conv(y, 4, (1, 1), ConvOptions())]


def _reduced(
    make: Builder, kind: str, axes: list[int], shape: tuple[int, ...], keep: int, factor: float = 1
) -> list[int]:
    x = map_of(make, 6, 5, 8)
    grid = Quantisation((float(np.float32(make._scale_of(x) * factor)),), (9,)) if factor != 1 else None
    more = {"grid": grid} if grid else {}
    return [make.plain(kind, (x, make.integers(axes)), shape, options=(keep,), **more)]


def _index(make: Builder, kind: str, axis: int, shape: tuple[int, ...]) -> list[int]:
    x = map_of(make, 6, 5, 8)
    return [make.plain(kind, (x, make.integers([axis])), shape, dtype="int32"), make.flatten(x)]


def _transposed_conv(make: Builder, kernel: int, stride: int, padding: str, size: int) -> list[int]:
    x, seed = map_of(make, 5, 5, 3), make.rng
    shape = (4, kernel, kernel, 3)
    scales = tuple(make._scale(0.002, 0.02) for _ in range(4))
    weights = make._add(
        Tensor(
            "weights", shape, "int8", Quantisation(scales, (0,) * 4), seed.integers(-127, 128, shape).astype(np.int8)
        )
    )
    bias = make._add(Tensor("bias", (4,), "int32", None, seed.integers(-900, 900, 4).astype(np.int32)))
    target = make.integers([1, size, size, 4])
    grid = Quantisation((make._scale_of(x) * 6.0,), (4,))
    result = make._add(Tensor("upwards", (1, size, size, 4), "int8", grid))
    options = ConvOptions((stride, stride), padding)  # type: ignore[arg-type]
    make.ops.append(Op("TRANSPOSE_CONV", "upwards", (x, weights, bias, target), (result,), options))
    return [result]


def _multiplied(
    make: Builder, first: tuple[int, ...], second: tuple[int, ...], result: tuple[int, ...], *turns: int
) -> list[int]:
    x, y = make.input(*first), make.input(*second)
    scale = make._scale_of(x) * make._scale_of(y) * 500
    grid = Quantisation((float(np.float32(scale)),), (-3,))
    return [make.plain("BATCH_MATMUL", (x, y), (1, *result), options=turns, grid=grid)]


def _pictures(make: Builder) -> list[int]:
    """A convolution with dilation as older converters write it: the batch holds four pictures meanwhile."""
    x = map_of(make, 6, 4, 8)
    apart = make.plain("SPACE_TO_BATCH_ND", (x, make.integers([2, 2]), make.integers([[0, 0], [0, 0]])), (4, 3, 2, 8))
    y = make.conv(apart, 5, (2, 2), ConvOptions(padding="valid"))
    make.tensors[y] = replace(make.tensors[y], shape=(4, 2, 1, 5))
    return [make.plain("BATCH_TO_SPACE_ND", (y, make.integers([2, 2]), make.integers([[0, 0], [0, 0]])), (1, 4, 2, 5))]


def _padded_pictures(make: Builder) -> list[int]:
    """The same with padding, which belongs to the SPACE_TO_BATCH_ND: the runtime would pad with anything."""
    x = map_of(make, 5, 6, 4)
    padded = make.pad(x, (1, 2), (2, 2), (0, 0))
    none = make.integers([[0, 0], [0, 0]])
    apart = make.plain("SPACE_TO_BATCH_ND", (padded, make.integers([2, 2]), none), (4, 4, 5, 4))
    y = make.depthwise(apart, (3, 3), ConvOptions(padding="valid"))
    make.tensors[y] = replace(make.tensors[y], shape=(4, 2, 3, 4))
    return [make.plain("BATCH_TO_SPACE_ND", (y, make.integers([2, 2]), make.integers([[0, 0], [1, 0]])), (1, 4, 5, 4))]


def _grouped(make: Builder) -> list[int]:
    """A convolution whose filters see a third of the channels each, then a half."""
    x = make.input(6, 5, 6)
    for groups, outputs in ((3, 6), (2, 4)):
        result = make.conv(x, outputs, (3, 3), ConvOptions(stride=(1, 2), activation="relu"))
        place = make.ops[-1].inputs[1]
        weights = make.tensors[place]
        assert weights.data is not None
        own = weights.data[..., : weights.shape[3] // groups].copy()
        make.tensors[place] = replace(weights, shape=own.shape, data=own)
        x = result
    return [x]


def _narrow_range(make: Builder) -> list[int]:
    """Activations clipped to -1 and 1."""
    x = make.conv(make.input(6, 5, 3), 8, (3, 3), ConvOptions(activation="relu_n1_to_1"))
    make.set_grid(x, 0.02, 5)
    y = make.elementwise("ADD", x, make.constant(8), ActivationOptions("relu_n1_to_1"))
    make.set_grid(y, 0.013, -4)
    return [y, make.conv(x, 3, (1, 1), ConvOptions())]


NETWORKS: dict[str, Callable[[Builder], list[int]]] = {
    "uint8 in and out": uint8_edges,
    "uint8 in": lambda make: uint8_edges(make, ends="in"),
    "uint8 out": lambda make: uint8_edges(make, ends="out"),
    "uint8 in on another grid": lambda make: uint8_edges(make, zero_point=90),
    "static shape": static_shape,
    "computed length": product_of_sides,
    "STRIDED_SLICE": lambda make: strided(make, [0, 1, 0, 2], [1, 6, 5, 8], [1, 2, 1, 3], (1, 3, 5, 2)),
    "STRIDED_SLICE backwards, shrunk": lambda make: strided(
        make, [0, 1, -1, 2], [1, 6, -6, 3], [1, 2, -1, 1], (1, 3, 5), 1, 0, 8
    ),
    "STRIDED_SLICE of one line": lambda make: strided(
        make, [0, 2, 0, 0], [0, 3, 0, 0], [1, 1, 1, 1], (5, 8), 12, 12, 3
    ),
    "Conv1D": conv_1d,
    "SUB": lambda make: _with(make, "SUB"),
    "SUB of a constant": lambda make: _with(make, "SUB", 6, factor=1.5, activation="relu"),
    "SUB of a number": lambda make: _with(make, "SUB", 1),
    "TRANSPOSE": lambda make: transposed(make, 0, 3, 1, 2),
    "TRANSPOSE of a map": lambda make: transposed(make, 0, 2, 1, 3),
    "TRANSPOSE with the batch": lambda make: transposed(make, 2, 0, 3, 1),
    "TRANSPOSE of nothing": lambda make: [
        make.plain(
            "TRANSPOSE", (make.reshape(map_of(make, 1, 5, 8), (1, 5, 1, 8)), make.integers([0, 2, 1, 3])), (1, 1, 5, 8)
        )
    ],
    "channel shuffle": shuffle,
    "several inputs and outputs": heads,
    "ends of two types": mixed_ends,
    "input as output": passed_on,
    "RESIZE_NEAREST_NEIGHBOR": lambda make: resized(make, "RESIZE_NEAREST_NEIGHBOR", (10, 8), 0, 0),
    "RESIZE_NEAREST_NEIGHBOR half pixels": lambda make: resized(make, "RESIZE_NEAREST_NEIGHBOR", (7, 9), 0, 1),
    "RESIZE_NEAREST_NEIGHBOR corners": lambda make: resized(make, "RESIZE_NEAREST_NEIGHBOR", (8, 3), 1, 0),
    "RESIZE_BILINEAR": lambda make: resized(make, "RESIZE_BILINEAR", (10, 8), 0, 0),
    "RESIZE_BILINEAR half pixels": lambda make: resized(make, "RESIZE_BILINEAR", (10, 9), 0, 1),
    "RESIZE_BILINEAR corners": lambda make: resized(make, "RESIZE_BILINEAR", (3, 7), 1, 0),
    "stream": stream,
    "stream with first values": lambda make: stream(make, first=1),
    "two streams": two_streams,
    "MINIMUM": lambda make: _extreme(make, "MINIMUM"),
    "MINIMUM with a constant": lambda make: _extreme(make, "MINIMUM", 1),
    "MAXIMUM": lambda make: _extreme(make, "MAXIMUM"),
    "MAXIMUM with a constant": lambda make: _extreme(make, "MAXIMUM", 1, 4, 1),
    "LEAKY_RELU": lambda make: _curve(make, "LEAKY_RELU", 0.03, 0.1),
    "LEAKY_RELU on another grid": lambda make: _curve(
        make, "LEAKY_RELU", 0.03, 0.3, grid=Quantisation((0.021,), (-40,))
    ),
    "PRELU": _prelu,
    "TANH": lambda make: _curve(make, "TANH", 0.02, grid=_UNIT),
    "TANH, wide": lambda make: _curve(make, "TANH", 0.3, grid=_UNIT),
    "ABS": lambda make: _curve(make, "ABS", 0.03),
    "ABS on another grid": lambda make: _curve(make, "ABS", 0.03, grid=Quantisation((0.02,), (-128,))),
    "ELU": lambda make: _curve(make, "ELU", 0.03, grid=Quantisation((0.02,), (-80,))),
    "RSQRT": lambda make: _curve(make, "RSQRT", 0.03, grid=Quantisation((0.02,), (-128,)), zero_point=-128),
    "SPLIT": lambda make: _split(make, "SPLIT"),
    "SPLIT_V": lambda make: _split(make, "SPLIT_V"),
    "UNPACK": lambda make: _split(make, "UNPACK"),
    "PACK": _pack,
    "MIRROR_PAD reflect": lambda make: _padded(make, "MIRROR_PAD", 0),
    "MIRROR_PAD symmetric": lambda make: _padded(make, "MIRROR_PAD", 1),
    "PADV2": lambda make: _padded(make, "PADV2"),
    "PAD": _null_pad,
    "DEPTH_TO_SPACE": lambda make: _moved(make, "DEPTH_TO_SPACE", (1, 12, 8, 2), 2),
    "SPACE_TO_DEPTH": lambda make: _moved(make, "SPACE_TO_DEPTH", (1, 3, 2, 32), 2),
    "SPACE_TO_BATCH_ND": lambda make: _moved(
        make, "SPACE_TO_BATCH_ND", (4, 3, 2, 8), values=([2, 2], [[0, 0], [0, 0]])
    ),
    "GATHER": lambda make: _moved(make, "GATHER", (1, 6, 4, 3), 3, 0, values=([5, 0, 5],)),
    "GATHER of lines": lambda make: _moved(make, "GATHER", (1, 2, 4, 8), 1, 0, values=([4, 1],)),
    "SLICE": lambda make: _moved(make, "SLICE", (1, 5, 2, 4), values=([0, 1, 2, 3], [1, -1, 2, 4])),
    "BROADCAST_TO": lambda make: [
        make.plain(
            "BROADCAST_TO",
            (make.reshape(map_of(make, 1, 4, 2), (1, 4, 1, 2)), make.integers([1, 4, 3, 2])),
            (1, 4, 3, 2),
        )
    ],
    "SQUARED_DIFFERENCE": _squared,
    "REVERSE_V2": lambda make: _moved(make, "REVERSE_V2", (1, 6, 4, 8), values=([2],)),
    "DIV": lambda make: _with(make, "DIV", 6, factor=0.4),
    "DIV by much": lambda make: _with(make, "DIV", 6, factor=8.0),
    "DIV by a number": lambda make: _with(make, "DIV", 1, factor=0.5, activation="relu"),
    "SUM": lambda make: _reduced(make, "SUM", [1, 2], (1, 8), 0, 8),
    "SUM of channels": lambda make: _reduced(make, "SUM", [-1], (1, 6, 5, 1), 1, 4),
    "REDUCE_MAX": lambda make: _reduced(make, "REDUCE_MAX", [1, 2], (1, 8), 0),
    "REDUCE_MIN": lambda make: _reduced(make, "REDUCE_MIN", [2], (1, 6, 1, 8), 1),
    "ARG_MAX": lambda make: _index(make, "ARG_MAX", 3, (1, 6, 5)),
    "ARG_MIN": lambda make: _index(make, "ARG_MIN", 1, (1, 5, 8)),
    "L2_NORMALIZATION": lambda make: [
        make.plain("L2_NORMALIZATION", (map_of(make, 4, 3, 16),), (1, 4, 3, 16), grid=_UNIT)
    ],
    "TRANSPOSE_CONV": lambda make: _transposed_conv(make, 3, 2, "same", 10),
    "TRANSPOSE_CONV valid": lambda make: _transposed_conv(make, 4, 3, "valid", 16),
    "TRANSPOSE_CONV of a wide stride": lambda make: _transposed_conv(make, 2, 3, "same", 15),
    "BATCH_MATMUL": lambda make: _multiplied(make, (3, 5, 6), (3, 6, 4), (3, 5, 4), 0, 0),
    "BATCH_MATMUL turned": lambda make: _multiplied(make, (5, 6), (4, 6), (5, 4), 0, 1),
    "SVDF": svdf_network,
    "LSTM": lstm_network,
    "LSTM, clipped": lambda make: lstm_network(make, clip=0.9, power=-13),
    "batch of pictures": _pictures,
    "batch of padded pictures": _padded_pictures,
    "CONV_2D in groups": _grouped,
    "RELU_N1_TO_1": _narrow_range,
    "CONV_2D over a whole line": lambda make: [
        make.conv(make.input(1, 9, 5), 6, (1, 9), ConvOptions(padding="valid", activation="relu")),
    ],
    "silent channel": _silent_channel,
    **{
        kind: lambda make, kind=kind: _curve(make, kind, 0.04, grid=Quantisation((0.03,), (-20,)))
        for kind in FLOAT_KINDS
    },
    **{
        f"FLOAT_{kind}": lambda make, kind=kind: _curve(
            make, f"FLOAT_{kind}", 0.004, grid=Quantisation((0.1,), (-20,)), zero_point=-128
        )
        for kind in ("LOG", "RSQRT", "SQRT")  # of what is above zero
    },
    **WIDE_NETWORKS,
}


def coverage_network(name: str) -> Graph:
    """The graph of one of them."""
    make = Builder(sum(map(ord, name)))
    outputs = NETWORKS[name](make)
    return make.graph(*outputs)
