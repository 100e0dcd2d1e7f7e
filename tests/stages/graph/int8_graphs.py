"""Random int8 graphs for tests: each op's output scale is chosen so that its values spread over the int8 range."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
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
from stages.graph.padding import map_size

# Models of others, to try things on; they are not part of the project.
THIRD_PARTY_MODELS = sorted((Path(__file__).parents[4] / "shared" / "models").glob("*.tflite"))
NO_MODELS = "no third-party models here; to enable, put .tflite files into shared/models beside the checkout"


class Int8Builder:
    """Adds ops one by one; tensors are named by their index."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.inputs: list[int] = []

    def input(self, *shape: int) -> int:
        self.inputs.append(self._activation((1, *shape), self._scale(0.001, 0.5)))
        return self.inputs[-1]

    def conv(
        self, x: int, channels: int, kernel: tuple[int, int], options: ConvOptions, *, per_channel: bool = True
    ) -> int:
        depth = self.tensors[x].shape[3]
        return self._weighted("CONV_2D", x, (channels, *kernel, depth), 0 if per_channel else None, options)

    def depthwise(self, x: int, kernel: tuple[int, int], options: ConvOptions, *, per_channel: bool = True) -> int:
        depth = self.tensors[x].shape[3] * options.depth_multiplier
        return self._weighted("DEPTHWISE_CONV_2D", x, (1, *kernel, depth), 3 if per_channel else None, options)

    def fully_connected(self, x: int, outputs: int, options: ActivationOptions, *, per_channel: bool = False) -> int:
        depth = self.tensors[x].shape[-1]
        return self._weighted("FULLY_CONNECTED", x, (outputs, depth), 0 if per_channel else None, options)

    def elementwise(self, kind: str, first: int, second: int, options: ActivationOptions) -> int:
        shape = np.broadcast_shapes(self.tensors[first].shape, self.tensors[second].shape)
        scales = [self._scale_of(index) for index in (first, second)]
        spread = max(scales) * 1.5 if kind == "ADD" else scales[0] * scales[1] * 90
        return self._emit(kind, (first, second), shape, spread, options)

    def pool(self, kind: str, x: int, options: PoolOptions) -> int:
        source = self.tensors[x].shape
        size = map_size(source[1:3], options.filter, options.stride, (1, 1), options.padding)
        result = self._emit(kind, (x,), (1, *size, source[3]), 1.0, options)
        return self._like(result, x)

    def flatten(self, x: int) -> int:
        return self.reshape(x, (1, self.tensors[x].elements))

    def reshape(self, x: int, shape: tuple[int, ...]) -> int:
        target = self._add(Tensor(f"shape{len(self.tensors)}", (len(shape),), "int32", data=np.array(shape, np.int32)))
        return self._like(self._emit("RESHAPE", (x, target), shape, 1.0, NoOptions()), x)

    def softmax(self, x: int, beta: float = 1.0) -> int:
        result = self._emit("SOFTMAX", (x,), self.tensors[x].shape, 1 / 256, SoftmaxOptions(beta))
        self.tensors[result] = replace(self.tensors[result], quantisation=Quantisation((1 / 256,), (-128,)))
        return result

    def pad(self, x: int, *paddings: tuple[int, int]) -> int:
        amounts = np.array(((0, 0), *paddings), np.int32)
        shape = tuple(
            side + before + after for side, (before, after) in zip(self.tensors[x].shape, amounts, strict=True)
        )
        target = self._add(Tensor(f"paddings{len(self.tensors)}", amounts.shape, "int32", data=amounts))
        return self._like(self._emit("PAD", (x, target), tuple(map(int, shape)), 1.0, NoOptions()), x)

    def constant(self, *shape: int) -> int:
        """Random int8 values on a grid of their own."""
        index = self._activation(shape, self._scale(0.001, 0.5))
        values = self.rng.integers(-128, 128, shape, dtype=np.int8)
        self.tensors[index] = replace(self.tensors[index], name=f"constant{index}", data=values)
        return index

    def concatenate(self, axis: int, *parts: int) -> int:
        """Puts all parts on the grid of the first."""
        shape = list(self.tensors[parts[0]].shape)
        shape[axis] = sum(self.tensors[part].shape[axis] for part in parts)
        for part in parts:
            self._like(part, parts[0])
        return self._like(self._emit("CONCATENATION", parts, tuple(shape), 1.0, ConcatOptions(axis)), parts[0])

    def mean(self, x: int, axes: tuple[int, ...], *, keep: bool, same_grid: bool = False) -> int:
        source = self.tensors[x].shape
        over = {axis % len(source) for axis in axes}
        kept = tuple(1 if axis in over else side for axis, side in enumerate(source))
        shape = kept if keep else tuple(side for axis, side in enumerate(source) if axis not in over)
        target = self._add(Tensor(f"axes{len(self.tensors)}", (len(axes),), "int32", data=np.array(axes, np.int32)))
        result = self._emit("MEAN", (x, target), shape, self._scale_of(x) * self._scale(0.1, 3), NoOptions())
        return self._like(result, x) if same_grid else result

    def unary(self, kind: str, x: int, scale: float | None = None) -> int:
        """RELU, RELU6, LOGISTIC, HARD_SWISH, QUANTIZE, DEQUANTIZE."""
        result = self._emit(kind, (x,), self.tensors[x].shape, scale or self._scale_of(x), NoOptions())
        if kind == "LOGISTIC":
            self.tensors[result] = replace(self.tensors[result], quantisation=Quantisation((1 / 256,), (-128,)))
        if kind == "DEQUANTIZE":
            self.tensors[result] = replace(self.tensors[result], dtype="float32", quantisation=None)
        return result

    def float_input(self, *shape: int) -> int:
        self.inputs.append(self._add(Tensor(f"input{len(self.tensors)}", (1, *shape), "float32")))
        return self.inputs[-1]

    def set_grid(self, index: int, scale: float, zero_point: int) -> None:
        grid = Quantisation((float(np.float32(scale)),), (zero_point,))
        self.tensors[index] = replace(self.tensors[index], quantisation=grid)

    def graph(self, *outputs: int) -> Graph:
        return Graph(tuple(self.tensors), tuple(self.ops), tuple(self.inputs), outputs)

    def _weighted(self, kind: str, x: int, shape: tuple[int, ...], axis: int | None, options: Options) -> int:
        outputs = shape[3] if kind == "DEPTHWISE_CONV_2D" else shape[0]
        taps = math.prod(shape) // outputs
        count = 1 if axis is None else shape[axis]
        scales = tuple(self._scale(0.002, 0.02) for _ in range(count))
        step = self._scale_of(x) * float(np.mean(scales))
        weights = self.rng.integers(-127, 128, shape, dtype=np.int8)
        bias = self.rng.integers(-2000, 2001, outputs).astype(np.int32)
        constants = (
            self._add(
                Tensor(
                    f"weights{len(self.tensors)}", shape, "int8", Quantisation(scales, (0,) * count, axis or 0), weights
                )
            ),
            self._add(Tensor(f"bias{len(self.tensors) + 1}", (outputs,), "int32", None, bias)),
        )
        source = self.tensors[x].shape
        result: tuple[int, ...] = (1, outputs)
        if isinstance(options, ConvOptions):
            size = map_size(source[1:3], shape[1:3], options.stride, options.dilation, options.padding)
            result = (1, *size, outputs)
        # Products of uniform int8 values have a standard deviation of about 75 * 73; aim at one of 50 steps.
        return self._emit(kind, (x, *constants), result, step * math.sqrt(taps) * 75 * 73 / 50, options)

    def _emit(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], scale: float, options: Options) -> int:
        result = self._activation(shape, scale)
        self.ops.append(Op(kind, self.tensors[result].name, inputs, (result,), options))
        return result

    def _activation(self, shape: tuple[int, ...], scale: float) -> int:
        grid = Quantisation((float(np.float32(scale)),), (int(self.rng.integers(-128, 128)),))
        return self._add(Tensor(f"activation{len(self.tensors)}", shape, "int8", grid))

    def _like(self, result: int, x: int) -> int:
        self.tensors[result] = replace(self.tensors[result], quantisation=self.tensors[x].quantisation)
        return result

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _scale(self, lowest: float, highest: float) -> float:
        return float(np.float32(math.exp(self.rng.uniform(math.log(lowest), math.log(highest)))))

    def _scale_of(self, index: int) -> float:
        grid = self.tensors[index].quantisation
        assert grid is not None
        return grid.scale[0]


def random_inputs(graph: Graph, count: int, seed: int = 0) -> np.ndarray:
    """Random inputs, then the two extreme ones."""
    shape = graph.tensors[graph.inputs[0]].shape[1:]
    if graph.tensors[graph.inputs[0]].dtype == "float32":
        return np.random.default_rng(seed).normal(0, 3, (count, *shape)).astype(np.float32)
    inside = np.random.default_rng(seed).integers(-128, 128, (count, *shape), dtype=np.int8)
    return np.concatenate([inside, np.full((1, *shape), -128, np.int8), np.full((1, *shape), 127, np.int8)])


def residual_network(seed: int) -> Graph:
    """Convolutions, a residual block whose Add can work in place, pooling, classifier, softmax."""
    builder = Int8Builder(seed)
    x = builder.input(9, 7, 3)
    stem = builder.conv(x, 8, (3, 3), ConvOptions(stride=(2, 2), activation="relu"))
    inner = builder.depthwise(stem, (3, 3), ConvOptions(activation="relu6"))
    outer = builder.conv(inner, 8, (1, 1), ConvOptions())
    total = builder.elementwise("ADD", stem, outer, ActivationOptions("relu"))
    pooled = builder.pool("AVERAGE_POOL_2D", total, PoolOptions((5, 4), (5, 4)))
    logits = builder.fully_connected(builder.flatten(pooled), 5, ActivationOptions())
    return builder.graph(builder.softmax(logits))


def random_graph(seed: int, ops: int) -> Graph:
    """A random network of ops that only matter by what they read and write; ADD and RESHAPE among them."""
    rng, grid = np.random.default_rng(seed), Quantisation((0.1,), (0,))
    tensors = [Tensor("input", (1, int(rng.integers(1, 40)) * 8), "int8", grid)]
    made: list[Op] = []
    for number in range(ops):
        first = int(rng.integers(max(0, len(tensors) - 4), len(tensors)))
        kind = str(rng.choice(["CONV_2D", "CONV_2D", "ADD", "RESHAPE", "MUL", "RELU"]))
        same = [i for i, t in enumerate(tensors) if t.shape == tensors[first].shape]
        inputs = (first, int(rng.choice(same))) if kind in ("ADD", "MUL") else (first,)
        shape = (1, int(rng.integers(1, 40)) * 8) if kind == "CONV_2D" else tensors[first].shape
        made.append(
            Op(kind, f"op{number}", inputs, (len(tensors),), ActivationOptions() if kind == "ADD" else NoOptions())
        )
        tensors.append(Tensor(f"t{number}", shape, "int8", grid))
    read = {index for op in made for index in op.inputs}
    outputs = tuple(i for i in range(1, len(tensors)) if i not in read)
    return Graph(tuple(tensors), tuple(made), (0,), outputs)
