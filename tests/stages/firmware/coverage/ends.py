"""Networks whose ends are special: other types, several of them, shapes that are computed, states that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stages.graph.graph import (
    ActivationOptions,
    ConvOptions,
    NoOptions,
    Op,
    PoolOptions,
    Quantisation,
)
from tests.stages.firmware.coverage.builder import Builder


def map_of(make: Builder, *shape: int) -> int:
    """An input whose values an op has touched already."""
    return make.conv(make.input(*shape), shape[-1], (1, 1), ConvOptions())


def regrid(make: Builder, x: int, scale: float, zero_point: int = 3) -> int:
    return make.quantise(x, "int8", scale, zero_point)


def uint8_edges(make: Builder, *, ends: str = "both", zero_point: int = 128) -> list[int]:
    """As Edge Impulse and OpenMV export: QUANTIZE from uint8 in front, to uint8 behind."""
    x = make.input(6, 5, 3)
    if ends in ("both", "in"):
        make.tensors[x] = replace(
            make.tensors[x], dtype="uint8", quantisation=Quantisation((make._scale_of(x),), (zero_point,))
        )
        x = make.quantise(x, "int8", make._scale_of(x) * (1 if zero_point == 128 else 1.7), zero_point - 128)
    x = make.conv(x, 8, (3, 3), ConvOptions(stride=(2, 2), activation="relu6"))
    x = make.softmax(make.fully_connected(make.flatten(x), 4, ActivationOptions()))
    return [make.quantise(x, "uint8", 1 / 256, 0)] if ends in ("both", "out") else [x]


def static_shape(make: Builder) -> list[int]:
    """SHAPE, STRIDED_SLICE, PACK, RESHAPE: how Keras asks for the batch."""
    x = map_of(make, 4, 3, 8)
    shape = make.shape_of(x)
    bounds = make.integers([0]), make.integers([1]), make.integers([1])
    batch = make.integer_op("STRIDED_SLICE", (shape, *bounds), (), 0, 0, 1, 0, 0, 0)
    target = make.integer_op("PACK", (batch, make.integers(96)), (2,), 0, 2)
    index = make._add(replace(make.tensors[x], name="reshaped", shape=(1, 96)))
    make.ops.append(Op("RESHAPE", "reshaped", (x, target), (index,), NoOptions()))
    return [make.fully_connected(index, 5, ActivationOptions())]


def product_of_sides(make: Builder) -> list[int]:
    """A flattened length that is computed: SHAPE, STRIDED_SLICE, MUL, PACK."""
    x = map_of(make, 4, 3, 8)
    shape, sides = make.shape_of(x), []
    for axis in range(1, 4):
        bounds = make.integers([axis]), make.integers([axis + 1]), make.integers([1])
        sides.append(make.integer_op("STRIDED_SLICE", (shape, *bounds), (), 0, 0, 1, 0, 0, 0))
    length = make.integer_op("MUL", (make.integer_op("MUL", (sides[0], sides[1]), ()), sides[2]), ())
    target = make.integer_op("PACK", (make.integers(1), length), (2,), 0, 2)
    index = make._add(replace(make.tensors[x], name="reshaped", shape=(1, 96)))
    make.ops.append(Op("RESHAPE", "reshaped", (x, target), (index,), NoOptions()))
    return [make.fully_connected(index, 5, ActivationOptions())]


def conv_1d(make: Builder) -> list[int]:
    """Conv1D of Keras: EXPAND_DIMS, CONV_2D, RESHAPE by SQUEEZE."""
    x = make.input(20, 6)
    wide = make.plain("EXPAND_DIMS", (x, make.integers([1])), (1, 1, 20, 6))
    y = make.conv(wide, 9, (1, 5), ConvOptions(activation="relu"))
    narrow = make.plain("SQUEEZE", (y,), (1, 20, 9), options=(1,))
    wide = make.plain("EXPAND_DIMS", (narrow, make.integers([-3])), (1, 1, 20, 9))
    pooled = make.pool("MAX_POOL_2D", wide, PoolOptions((1, 2), (1, 2)))
    return [make.plain("SQUEEZE", (pooled,), (1, 10, 9), options=(1,))]


def strided(
    make: Builder, begin: list[int], end: list[int], step: list[int], shape: tuple[int, ...], *masks: int
) -> list[int]:
    x = map_of(make, 6, 5, 8)
    bounds = (make.integers(begin), make.integers(end), make.integers(step))
    return [make.plain("STRIDED_SLICE", (x, *bounds), shape, options=(*masks, *(0,) * (6 - len(masks))))]


def transposed(make: Builder, *axes: int) -> list[int]:
    x = map_of(make, 6, 5, 8)
    shape = tuple(make.tensors[x].shape[axis] for axis in axes)
    return [make.plain("TRANSPOSE", (x, make.integers(list(axes))), shape)]


def shuffle(make: Builder) -> list[int]:
    """A channel shuffle: five axes."""
    x = make.reshape(map_of(make, 4, 3, 8), (1, 4, 3, 2, 4))
    turned = make.plain("TRANSPOSE", (x, make.integers([0, 1, 2, 4, 3])), (1, 4, 3, 4, 2))
    return [make.conv(make.reshape(turned, (1, 4, 3, 8)), 5, (1, 1), ConvOptions())]


def heads(make: Builder) -> list[int]:
    """Two inputs, three outputs of several sizes, one of them also read on: as YOLO has heads."""
    x, other = make.input(8, 8, 3), make.input(8, 8, 3)
    stem = make.conv(make.elementwise("ADD", x, other, ActivationOptions()), 8, (3, 3), ConvOptions(stride=(2, 2)))
    deep = make.conv(stem, 12, (3, 3), ConvOptions(stride=(2, 2), activation="relu"))
    return [
        stem,
        make.conv(deep, 6, (1, 1), ConvOptions()),
        make.fully_connected(make.flatten(deep), 3, ActivationOptions()),
    ]


def mixed_ends(make: Builder) -> list[int]:
    """A picture of uint8 and a vector of int8; outputs of both types."""
    x, other = make.input(6, 6, 2), make.input(7)
    make.tensors[x] = replace(make.tensors[x], dtype="uint8", quantisation=Quantisation((make._scale_of(x),), (128,)))
    inner = make.conv(make.quantise(x, "int8", make._scale_of(x), 0), 4, (3, 3), ConvOptions())
    flat = make.fully_connected(make.flatten(inner), 7, ActivationOptions())
    total = make.elementwise("ADD", flat, other, ActivationOptions())
    return [make.quantise(total, "uint8", make._scale_of(total), 128), flat]


def passed_on(make: Builder) -> list[int]:
    """An input that is an output, too, beside a computed one."""
    x = make.input(4, 4, 2)
    return [make.conv(x, 3, (3, 3), ConvOptions()), make.reshape(x, (1, 32))]


def resized(make: Builder, kind: str, size: tuple[int, int], *corners: int) -> list[int]:
    x = map_of(make, 5, 4, 3)
    return [make.plain(kind, (x, make.integers(list(size))), (1, *size, 3), options=corners)]


def stream(make: Builder, *, first: int | None = None) -> list[int]:
    """A streaming convolution, as microWakeWord has them: old frames, the new one, the window moves on."""
    frame = make.input(1, 1, 6)
    rng = np.random.default_rng(3)
    zero_point = make.tensors[frame].quantisation.zero_point[0]  # type: ignore[union-attr]
    shape = (1, 3, 1, 6)
    start = np.full(shape, zero_point, np.int8) if first is None else rng.integers(-128, 128, shape).astype(np.int8)
    state = make.state(frame, start)
    make.tensors[state] = replace(make.tensors[state], shape=shape)
    held = make.concatenate(1, make.read(state), frame)
    moved = make.plain("STRIDED_SLICE", (held, *tail(make)), shape, options=(0, 0, 0, 0, 0, 0))
    make.assign(state, moved)
    y = make.conv(held, 8, (4, 1), ConvOptions(padding="valid", activation="relu"))
    return [make.fully_connected(make.flatten(y), 3, ActivationOptions())]


def tail(make: Builder) -> Iterator[int]:
    for values in ([0, 1, 0, 0], [1, 4, 1, 6], [1, 1, 1, 1]):
        yield make.integers(values)


def two_streams(make: Builder) -> list[int]:
    """Two states; one is read again after it was assigned, and sees the new values."""
    x = make.input(5)
    sums, last = make.state(x, np.full((1, 5), -7, np.int8)), make.state(x, np.arange(5, dtype=np.int8)[None])
    total = make.elementwise("ADD", x, make.read(sums), ActivationOptions())
    total = make.quantise(total, "int8", make._scale_of(x), make.tensors[x].quantisation.zero_point[0])  # type: ignore[union-attr]
    make.assign(sums, total)
    old = make.read(last)
    make.assign(last, make.plain("MAXIMUM", (make.read(sums), old), (1, 5)))
    return [make.read(last), make.read(sums)]
