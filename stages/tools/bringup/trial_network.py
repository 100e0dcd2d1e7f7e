"""A small int8 network with drawn weights, one operator of each usual kernel: for boards, not for accuracy."""

from __future__ import annotations

import math

import numpy as np

from stages.graph.graph import (
    ActivationOptions,
    ConvOptions,
    Graph,
    NoOptions,
    Op,
    Options,
    PoolOptions,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)

_INPUT = (1, 12, 10, 3)
_SCALE = 0.02
_WEIGHT_SCALE = 0.01


class _Builder:
    """Ops one behind the other; every output lies on a grid that spreads its values."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = [Tensor("input", _INPUT, "int8", Quantisation((float(np.float32(_SCALE)),), (3,)))]
        self.ops: list[Op] = []

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def emit(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], grid: Quantisation, how: Options) -> int:
        result = self._add(Tensor(f"{kind.lower()}_{len(self.ops)}", shape, "int8", grid))
        self.ops.append(Op(kind, f"{kind.lower()}_{len(self.ops)}", inputs, (result,), how))
        return result

    def weighted(self, kind: str, x: int, weights: tuple[int, ...], shape: tuple[int, ...], how: Options) -> int:
        """`shape` of the output; scales per channel of it, as converters write them."""
        channels, axis = shape[-1], 3 if kind == "DEPTHWISE_CONV_2D" else 0
        source = self.tensors[x].quantisation
        assert source is not None
        count = 1 if kind == "FULLY_CONNECTED" else channels
        scales = tuple(_single(_WEIGHT_SCALE * (1 + index % 5) / 3) for index in range(count))
        drawn = self.rng.integers(-127, 128, weights, dtype=np.int8)
        filters = self._add(Tensor(f"weights_{x}", weights, "int8", Quantisation(scales, (0,) * count, axis), drawn))
        biases = self.rng.integers(-2000, 2001, channels, dtype=np.int32)
        bias = self._add(Tensor(f"bias_{x}", (channels,), "int32", None, biases))
        taps = math.prod(weights) // channels
        # Products of uniform int8 values have a standard deviation of 75 * 73; aim at one of 50 steps.
        spread = source.scale[0] * float(np.mean(scales)) * math.sqrt(taps) * 75 * 73 / 50
        return self.emit(kind, (x, filters, bias), shape, Quantisation((_single(spread),), (-5,)), how)


def _single(value: float) -> float:
    """As a .tflite holds it."""
    return float(np.float32(value))


def trial_network(seed: int = 0, channels: int = 16) -> Graph:
    """Convolution, depthwise, pointwise, residual sum, pooling, fully connected, softmax."""
    build = _Builder(seed)
    rows, columns = 6, 5
    shape = (1, rows, columns, channels)
    stem = build.weighted(
        "CONV_2D", 0, (channels, 3, 3, _INPUT[3]), shape, ConvOptions(stride=(2, 2), activation="relu")
    )
    inner = build.weighted("DEPTHWISE_CONV_2D", stem, (1, 3, 3, channels), shape, ConvOptions(activation="relu"))
    outer = build.weighted("CONV_2D", inner, (channels, 1, 1, channels), shape, ConvOptions())
    grid = build.tensors[outer].quantisation
    assert grid is not None
    total = build.emit(
        "ADD", (stem, outer), shape, Quantisation((_single(grid.scale[0] * 1.5),), (2,)), ActivationOptions()
    )
    pooled_grid = build.tensors[total].quantisation
    assert pooled_grid is not None
    window = PoolOptions((rows, columns), (rows, columns))
    pooled = build.emit("AVERAGE_POOL_2D", (total,), (1, 1, 1, channels), pooled_grid, window)
    target = build._add(Tensor("shape", (2,), "int32", data=np.array((1, channels), np.int32)))
    flat = build.emit("RESHAPE", (pooled, target), (1, channels), pooled_grid, NoOptions())
    logits = build.weighted("FULLY_CONNECTED", flat, (10, channels), (1, 10), ActivationOptions())
    softmax = build.emit("SOFTMAX", (logits,), (1, 10), Quantisation((1 / 256,), (-128,)), SoftmaxOptions(1.0))
    return Graph(tuple(build.tensors), tuple(build.ops), (0,), (softmax,))


def streaming_network(seed: int, width: int) -> Graph:
    """Fully connected layers whose weights do not fit a cache: their time is that of lines from flash."""
    build = _Builder(seed)
    grid = build.tensors[0].quantisation
    assert grid is not None
    values = math.prod(_INPUT)
    target = build._add(Tensor("shape", (2,), "int32", data=np.array((1, values), np.int32)))
    x, before = build.emit("RESHAPE", (0, target), (1, values), grid, NoOptions()), values
    for size in (width, width, 10):
        x, before = build.weighted("FULLY_CONNECTED", x, (size, before), (1, size), ActivationOptions()), size
    return Graph(tuple(build.tensors), tuple(build.ops), (0,), (x,))


def trial_inputs(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (count, *_INPUT[1:]), dtype=np.int8)
