"""Networks of int16 activations with int8 weights (16x8), as audio networks have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stages.graph.graph import (
    ActivationOptions,
    ConvOptions,
    PoolOptions,
    Quantisation,
)
from tests.stages.firmware.coverage.builder import Builder

_UNIT = Quantisation((2.0**-15,), (0,))


def widened(make: Builder, index: int, factor: float = 1 / 256) -> int:
    """The tensor as int16 of the same range."""
    grid = Quantisation((float(np.float32(make._scale_of(index) * factor)),), (0,))
    make.tensors[index] = replace(make.tensors[index], dtype="int16", quantisation=grid)
    return index


def wide_input(make: Builder, *shape: int) -> int:
    return widened(make, make.input(*shape))


def weighted(make: Builder, result: int, bias: str | None = "int64") -> int:
    """The newest layer with int16 on both sides and biases of this type."""
    widened(make, result)
    op = make.ops[-1]
    if bias is None:
        make.ops[-1] = replace(op, inputs=op.inputs[:2])
    else:
        tensor = make.tensors[op.inputs[2]]
        assert tensor.data is not None
        data = (tensor.data * (256 if bias == "int64" else 1)).astype(bias)
        scales = make.tensors[op.inputs[1]].quantisation.scale  # type: ignore[union-attr]
        products = tuple(float(np.float32(make._scale_of(op.inputs[0]) * scale)) for scale in scales)
        grid = Quantisation(products, (0,) * len(products))
        make.tensors[op.inputs[2]] = replace(tensor, dtype=bias, data=data, quantisation=grid)  # type: ignore[arg-type]
    return result


def _conv(make: Builder, bias: str | None = "int64") -> list[int]:
    x = wide_input(make, 7, 6, 5)
    x = weighted(make, make.conv(x, 6, (3, 3), ConvOptions(stride=(2, 1), activation="relu")), bias)
    return [weighted(make, make.conv(x, 4, (1, 1), ConvOptions()), bias)]


def _dilated(make: Builder) -> list[int]:
    x = wide_input(make, 9, 8, 4)
    x = weighted(make, make.conv(x, 5, (3, 2), ConvOptions(dilation=(2, 3), activation="relu6")))
    return [weighted(make, make.depthwise(x, (3, 3), ConvOptions(dilation=(1, 2))))]


def _depthwise(make: Builder) -> list[int]:
    x = wide_input(make, 8, 7, 4)
    x = weighted(make, make.depthwise(x, (3, 3), ConvOptions(stride=(2, 2), depth_multiplier=2)))
    return [weighted(make, make.depthwise(x, (2, 4), ConvOptions(padding="valid", activation="relu")), None)]


def _dense(make: Builder, bias: str | None = "int64") -> list[int]:
    x = wide_input(make, 60)
    x = weighted(make, make.fully_connected(x, 20, ActivationOptions("relu")), bias)
    return [weighted(make, make.fully_connected(x, 7, ActivationOptions()), bias)]


def _long_sums(make: Builder) -> list[int]:
    """Beyond 32 bits."""
    x = wide_input(make, 4000)
    result = weighted(make, make.fully_connected(x, 3, ActivationOptions()))
    return [widened(make, result, 8.0)]


def _pair(make: Builder, kind: str, *shape: int, activation: str = "none", factor: float = 1.0) -> list[int]:
    x, other = wide_input(make, 5, 4, 6), wide_input(make, *(shape or (5, 4, 6)))
    if kind in ("MAXIMUM", "MINIMUM"):
        return [make.plain(kind, (x, other), (1, 5, 4, 6), dtype="int16", grid=make.tensors[x].quantisation)]
    if kind == "SUB":
        result = make.pair(kind, x, other, factor, activation)
    else:
        result = make.elementwise(kind, x, other, ActivationOptions(activation))
    make.set_grid(result, make._scale_of(result) * (factor if kind == "ADD" else 256 if kind == "MUL" else 1), 0)
    make.tensors[result] = replace(make.tensors[result], dtype="int16")
    return [result]


def _constant_sum(make: Builder) -> list[int]:
    x, other = wide_input(make, 5, 4, 6), make.constant(6)
    widened(make, other)
    data = make.rng.integers(-32768, 32768, 6).astype(np.int16)
    make.tensors[other] = replace(make.tensors[other], data=data)
    return [widened(make, make.elementwise("ADD", other, x, ActivationOptions("relu6")), 1.0)]


def _pools(make: Builder) -> list[int]:
    x = wide_input(make, 9, 7, 5)
    found = []
    for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        pooled = make.pool(kind, x, PoolOptions((3, 2), (2, 2), "same", "relu"))
        make.tensors[pooled] = replace(make.tensors[pooled], dtype="int16")
        found.append(pooled)
    return found


def _curve(make: Builder, kind: str, scale: float, *options: float, grid: Quantisation | None = None) -> list[int]:
    x = wide_input(make, 8, 8, 16)
    make.set_grid(x, scale, 0)
    if kind in ("TANH", "LEAKY_RELU"):
        return [make.plain(kind, (x,), (1, 8, 8, 16), options=options, dtype="int16", grid=grid)]
    result = make.unary(kind, x)
    make.tensors[result] = replace(
        make.tensors[result], dtype="int16", quantisation=grid or make.tensors[x].quantisation
    )
    return [result]


def _softmax(make: Builder, scale: float, depth: int) -> list[int]:
    x = wide_input(make, 6, depth)
    make.set_grid(x, scale, 0)
    result = make.softmax(x)
    make.tensors[result] = replace(make.tensors[result], dtype="int16", quantisation=_UNIT)
    return [result]


def _mean(make: Builder, axes: tuple[int, ...], keep: bool) -> list[int]:
    return [widened(make, make.mean(wide_input(make, 6, 5, 7), axes, keep=keep), 1.0)]


def _moves(make: Builder) -> list[int]:
    """PAD, CONCATENATION, STRIDED_SLICE, TRANSPOSE, SPLIT, RESHAPE, as int16."""
    x = wide_input(make, 6, 5, 8)
    grid = make.tensors[x].quantisation

    def plain(kind: str, inputs: tuple[int, ...], *shapes: tuple[int, ...], options: tuple[float, ...] = ()) -> int:
        return make.plain(kind, inputs, *shapes, options=options, dtype="int16", grid=grid)

    padded = make.pad(x, (1, 2), (0, 1), (2, 0))
    make.tensors[padded] = replace(make.tensors[padded], dtype="int16")
    bounds = make.integers([0, 8, 1, 0]), make.integers([1, 0, 6, 10]), make.integers([1, -2, 1, 3])
    cut = plain("STRIDED_SLICE", (padded, *bounds), (1, 4, 5, 4), options=(0, 0, 0, 0, 0, 0))
    turned = plain("TRANSPOSE", (cut, make.integers([0, 3, 2, 1])), (1, 4, 5, 4))
    first = plain("SPLIT", (make.integers([3]), turned), (1, 4, 5, 2), (1, 4, 5, 2), options=(2,))
    joined = make.concatenate(1, first + 1, first)
    make.tensors[joined] = replace(make.tensors[joined], dtype="int16")
    flat = make.reshape(joined, (1, 80))
    make.tensors[flat] = replace(make.tensors[flat], dtype="int16")
    return [flat, plain("RESIZE_NEAREST_NEIGHBOR", (x, make.integers([12, 7])), (1, 12, 7, 8), options=(0, 0))]


def _between_types(make: Builder) -> list[int]:
    """int8 in, int16 inside, int8 out."""
    x = make.input(6, 5, 4)
    wide = make.quantise(x, "int16", make._scale_of(x) / 200, 0)
    wide = weighted(make, make.conv(wide, 6, (3, 3), ConvOptions()))
    narrower = make.quantise(wide, "int16", make._scale_of(wide) * 1.7, 0)
    return [make.quantise(narrower, "int8", make._scale_of(wide) * 300, -9), narrower]


def _audio(make: Builder) -> list[int]:
    """A small network as a noise suppressor has it: frames, gates, a dense layer."""
    x = wide_input(make, 10, 1, 12)
    y = weighted(make, make.conv(x, 16, (3, 1), ConvOptions(activation="relu")))
    gate = weighted(make, make.conv(y, 16, (1, 1), ConvOptions()))
    make.set_grid(gate, 8 / 32768, 0)
    open_gate = make.unary("LOGISTIC", gate)
    make.tensors[open_gate] = replace(make.tensors[open_gate], dtype="int16", quantisation=_UNIT)
    gated = make.elementwise("MUL", y, open_gate, ActivationOptions())
    make.set_grid(gated, make._scale_of(y), 0)
    make.tensors[gated] = replace(make.tensors[gated], dtype="int16")
    flat = make.reshape(gated, (1, 160))
    make.tensors[flat] = replace(make.tensors[flat], dtype="int16")
    return [weighted(make, make.fully_connected(flat, 5, ActivationOptions()))]


def _stream(make: Builder) -> list[int]:
    """A state of int16."""
    x = wide_input(make, 6)
    state = make.state(x, make.rng.integers(-3000, 3000, (1, 6)).astype(np.int16))
    old = make.read(state)
    total = widened(make, make.elementwise("ADD", x, old, ActivationOptions()), 1.0)
    make.assign(state, x)
    return [total]


WIDE_NETWORKS: dict[str, Callable[[Builder], list[int]]] = {
    "int16 CONV_2D": _conv,
    "int16 CONV_2D, int32 biases": lambda make: _conv(make, "int32"),
    "int16 CONV_2D, no biases": lambda make: _conv(make, None),
    "int16 dilation": _dilated,
    "int16 DEPTHWISE_CONV_2D": _depthwise,
    "int16 FULLY_CONNECTED": _dense,
    "int16 FULLY_CONNECTED, int32 biases": lambda make: _dense(make, "int32"),
    "int16 long sums": _long_sums,
    "int16 ADD": lambda make: _pair(make, "ADD", factor=1.3),
    "int16 ADD, repeated": lambda make: _pair(make, "ADD", 1, 4, 1, activation="relu"),
    "int16 ADD of a constant": _constant_sum,
    "int16 SUB": lambda make: _pair(make, "SUB", factor=1.1),
    "int16 MUL": lambda make: _pair(make, "MUL"),
    "int16 MUL, repeated": lambda make: _pair(make, "MUL", 5, 1, 6, activation="relu6"),
    "int16 MAXIMUM": lambda make: _pair(make, "MAXIMUM"),
    "int16 MINIMUM": lambda make: _pair(make, "MINIMUM"),
    "int16 pools": _pools,
    "int16 RELU": lambda make: _curve(make, "RELU", 0.001, grid=Quantisation((0.0007,), (0,))),
    "int16 RELU6": lambda make: _curve(make, "RELU6", 0.0004),
    "int16 LEAKY_RELU": lambda make: _curve(make, "LEAKY_RELU", 0.001, 0.2, grid=Quantisation((0.0013,), (0,))),
    "int16 LOGISTIC": lambda make: _curve(make, "LOGISTIC", 0.0003, grid=_UNIT),
    "int16 LOGISTIC, power of two": lambda make: _curve(make, "LOGISTIC", 2.0**-12, grid=_UNIT),
    "int16 TANH": lambda make: _curve(make, "TANH", 0.00017, grid=_UNIT),
    "int16 TANH, power of two": lambda make: _curve(make, "TANH", 2.0**-13, grid=_UNIT),
    "int16 SOFTMAX": lambda make: _softmax(make, 0.0001, 12),
    "int16 SOFTMAX, wide": lambda make: _softmax(make, 0.01, 40),
    "int16 MEAN": lambda make: _mean(make, (1, 2), False),
    "int16 MEAN of channels": lambda make: _mean(make, (-1,), True),
    "int16 movement": _moves,
    "int16 inside of int8": _between_types,
    "int16 audio": _audio,
    "int16 stream": _stream,
}
