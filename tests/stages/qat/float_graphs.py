"""Float graphs with random weights that use every op there is, built by hand."""

from __future__ import annotations

import numpy as np

from stages.graph.graph import (
    Activation,
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    Graph,
    NoOptions,
    Op,
    PoolOptions,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.padding import map_size


class FloatBuilder:
    """Adds ops one by one; tensors are named by their index, ops by what they make."""

    def __init__(self, seed: int, *shape: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors = [Tensor("input", (1, *shape), "float32")]
        self.ops: list[Op] = []

    def conv(self, x: int, channels: int, kernel: int = 3, options: ConvOptions = ConvOptions()) -> int:  # noqa: B008
        shape = self.tensors[x].shape
        size = map_size(shape[1:3], (kernel, kernel), options.stride, options.dilation, options.padding)
        return self._weighted("CONV_2D", x, (channels, kernel, kernel, shape[3]), (1, *size, channels), options)

    def depthwise(self, x: int, kernel: int = 3, options: ConvOptions = ConvOptions()) -> int:  # noqa: B008
        shape = self.tensors[x].shape
        channels = shape[3] * options.depth_multiplier
        size = map_size(shape[1:3], (kernel, kernel), options.stride, options.dilation, options.padding)
        return self._weighted("DEPTHWISE_CONV_2D", x, (1, kernel, kernel, channels), (1, *size, channels), options)

    def fully_connected(self, x: int, outputs: int, activation: Activation = "none") -> int:
        inputs = self.tensors[x].elements
        return self._weighted("FULLY_CONNECTED", x, (outputs, inputs), (1, outputs), ActivationOptions(activation))

    def elementwise(self, kind: str, first: int, second: int, activation: Activation = "none") -> int:
        shape = np.broadcast_shapes(self.tensors[first].shape, self.tensors[second].shape)
        return self._op(kind, (first, second), shape, ActivationOptions(activation))

    def unary(self, kind: str, x: int) -> int:
        return self._op(kind, (x,), self.tensors[x].shape, NoOptions())

    def pool(self, kind: str, x: int, options: PoolOptions) -> int:
        shape = self.tensors[x].shape
        size = map_size(shape[1:3], options.filter, options.stride, (1, 1), options.padding)
        return self._op(kind, (x,), (1, *size, shape[3]), options)

    def mean(self, x: int, *, keeps_map: bool = False) -> int:
        axes = self._constant(np.array([1, 2], np.int32))
        channels = self.tensors[x].shape[3]
        return self._op("MEAN", (x, axes), (1, 1, 1, channels) if keeps_map else (1, channels), NoOptions())

    def pad(self, x: int, top: int, bottom: int, left: int, right: int) -> int:
        _, height, width, channels = self.tensors[x].shape
        paddings = self._constant(np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32))
        shape = (1, height + top + bottom, width + left + right, channels)
        return self._op("PAD", (x, paddings), shape, NoOptions())

    def concatenation(self, *parts: int) -> int:
        channels = sum(self.tensors[part].shape[3] for part in parts)
        shape = (*self.tensors[parts[0]].shape[:3], channels)
        return self._op("CONCATENATION", parts, shape, ConcatOptions(3))

    def reshape(self, x: int, *shape: int) -> int:
        target = self._constant(np.array([1, *shape], np.int32))
        return self._op("RESHAPE", (x, target), (1, *shape), NoOptions())

    def graph(self, logits: int, *, softmax: bool = True) -> Graph:
        result = self._op("SOFTMAX", (logits,), self.tensors[logits].shape, SoftmaxOptions()) if softmax else logits
        return Graph(tuple(self.tensors), tuple(self.ops), (0,), (result,))

    def _weighted(self, kind: str, x: int, filters: tuple[int, ...], shape: tuple[int, ...], options: object) -> int:
        channels = filters[3] if kind == "DEPTHWISE_CONV_2D" else filters[0]
        taps = int(np.prod(filters)) / channels
        weight = self._constant(self.rng.normal(0, 1.5 / taps**0.5, filters).astype(np.float32))
        bias = self._constant(self.rng.normal(0, 0.3, channels).astype(np.float32))
        return self._op(kind, (x, weight, bias), shape, options)

    def _constant(self, data: np.ndarray) -> int:
        dtype = "int32" if data.dtype == np.int32 else "float32"
        self.tensors.append(Tensor(f"constant{len(self.tensors)}", data.shape, dtype, data=data))  # type: ignore[arg-type]
        return len(self.tensors) - 1

    def _op(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: object) -> int:
        self.tensors.append(Tensor(f"activation{len(self.tensors)}", tuple(shape), "float32"))
        output = len(self.tensors) - 1
        self.ops.append(Op(kind, f"activation{output}", inputs, (output,), options))  # type: ignore[arg-type]
        return output


def residual(seed: int) -> Graph:
    """Convolutions with stride, dilation and depth multiplier, a sum, all kinds of pooling."""
    b = FloatBuilder(seed, 14, 11, 2)
    stem = b.conv(0, 12, 3, ConvOptions((2, 1), activation="relu6"))
    spread = b.conv(stem, 12, 3, ConvOptions(dilation=(2, 2), activation="relu"))
    plain = b.conv(spread, 12)
    total = b.elementwise("ADD", plain, stem, "relu")
    wide = b.depthwise(total, 3, ConvOptions((1, 2), "valid", activation="relu", depth_multiplier=2))
    largest = b.pool("MAX_POOL_2D", wide, PoolOptions((2, 2), (1, 1), "same"))
    means = b.pool("AVERAGE_POOL_2D", largest, PoolOptions((3, 2), (2, 1), "same"))
    padded = b.pad(means, 1, 0, 2, 1)
    last = b.conv(padded, 16, 3, ConvOptions(padding="valid"))
    flat = b.reshape(last, b.tensors[last].elements)
    return b.graph(b.fully_connected(flat, 10))


def squeeze_and_excite(seed: int) -> Graph:
    """Inverted residuals with hard-swish, and gates that are multiplied in."""
    b = FloatBuilder(seed, 12, 12, 3)
    stem = b.unary("HARD_SWISH", b.conv(0, 16, 3, ConvOptions((2, 2))))
    deep = b.unary("HARD_SWISH", b.depthwise(stem))
    squeezed = b.conv(b.mean(deep, keeps_map=True), 4, 1, ConvOptions(activation="relu"))
    gate = b.unary("LOGISTIC", b.conv(squeezed, 16, 1))
    gated = b.elementwise("MUL", deep, gate)
    total = b.elementwise("ADD", b.conv(gated, 16, 1), stem)
    standing = b.unary("RELU6", b.unary("RELU", total))
    return b.graph(b.fully_connected(b.mean(standing), 10))


def branches(seed: int) -> Graph:
    """Concatenations, one of them fed by an op that others read too, one behind a pool."""
    b = FloatBuilder(seed, 10, 10, 3)
    stem = b.conv(0, 8, 3, ConvOptions(activation="relu"))
    small = b.conv(stem, 6, 1)
    large = b.conv(stem, 6, 3, ConvOptions(activation="relu6"))
    pooled = b.pool("MAX_POOL_2D", stem, PoolOptions((3, 3), (1, 1), "same"))
    first = b.concatenation(small, large, pooled)
    narrow = b.conv(first, 10, 1, ConvOptions(activation="relu"))
    second = b.concatenation(narrow, b.elementwise("ADD", large, small))
    top = b.pool("AVERAGE_POOL_2D", second, PoolOptions((10, 10), (10, 10)))
    return b.graph(b.fully_connected(b.reshape(top, 16), 10))


GRAPHS = {"residual": residual, "squeeze_and_excite": squeeze_and_excite, "branches": branches}
