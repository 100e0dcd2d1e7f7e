"""Random int8 networks for the firmware compiler: every operator, odd shapes, branches, extreme scales and zero points.

A network grows op by op from a pool of tensors; what does not reach the output is cut off at the end. Scales follow the
data most of the time (outputs that are all saturated would hide a wrong scaling); sometimes an output's grid is much
finer, so that factors exceed 1 and shifts go to the left, or much coarser. A third of the networks begin somewhere
between the smallest and the largest scale that TensorFlow Lite Micro takes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.fused import can_be_fused
from stages.firmware.model_source import compile_model
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, PoolOptions, Quantisation
from stages.graph.memory.fusion import Chain, Links
from stages.graph.padding import map_size
from stages.graph.simplify.lowering import lowered
from tests.stages.firmware.coverage.builder import Builder
from tests.stages.firmware.random_more import More
from tests.stages.firmware.random_others import Others

_ACTIVATIONS = ("none", "relu", "relu6")
_MOST_ELEMENTS = 6000  # of a tensor
_MOST_WEIGHTS = 20_000
_EXTREME_ZERO_POINTS = (-128, -127, 0, 126, 127)
# Of activations. Below 2.8e-9 the runtime refuses a ReLU6, whose 6 would leave int32; the product of two numbers on the
# largest scale still comes back to it by less than 2^30, as far as a multiplier shifts to the left.
_SCALES = (4e-9, 1e9)
_SMALLEST_SOFTMAX = 2.0**-25  # the runtime refuses an input scale below 2^-26
# Of an input: from 2^31 * 128 * 3 / 2^15 on the runtime shifts an int by 31 bits and more, which means nothing in C.
_LARGEST_HARD_SWISH = 2e7
_LARGEST_RATIO = 2.0**29
_LARGEST_OUTPUT = 8000.0  # that the firmware can print
_FINER = (5, 7, 13)  # an output scale smaller by these powers of two: left shifts, none, and mixtures


class NetworkGrower:
    """One random network."""

    def __init__(self, seed: int) -> None:
        self.builder = Builder(seed)
        self.rng = self.builder.rng
        self.others, self.more = Others(self.builder), More(self.builder)
        shape = (self._between(1, 13), self._between(1, 13), int(self.rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 33])))
        self.pool = [self.builder.input(*shape)]  # four axes each
        if self._chance(0.33):
            scale = math.exp(self.rng.uniform(*map(math.log, _SCALES)))
            self.builder.set_grid(self.pool[0], scale, self._between(-128, 128))
        self._zero_point(self.pool[0])

    def _ends(self) -> None:
        """Sometimes a second input, sometimes uint8 at the edge."""
        if self._chance(0.25):
            self.pool.append(self.builder.input(*self._shape(self.pool[0])[1:]))
        if self._chance(0.25):
            self.pool[0] = self.others.as_uint8(self.pool[0])

    def _other(self) -> int | None:
        return self.others.draw(self._source(), self.pool)

    def _rare(self) -> int | None:
        return self.more.draw(self._source(), self.pool)

    def grow(self, steps: int, *, only_rows: bool = False, joined: bool = False) -> Graph:
        """`only_rows`: of layers with windows, which can be fused; `joined`: and what can be fused between them."""
        moves = (self._conv, self._pointwise, self._depthwise, self._pool, self._elementwise)
        if only_rows:
            moves += (self._pointwise, self._depthwise, self._pointwise, self._depthwise)
            moves += (self._unary, self._concatenate, self._enlarged) if joined else ()
        else:
            moves += (self._gate, self._unary, self._concatenate, self._pad, self._reshape, self._conv)
            moves += (self._depthwise, self._mean, *(self._other,) * 8, *(self._rare,) * 8)
            self._ends()
        while len(self.builder.ops) < steps:
            made = moves[self._between(0, len(moves))]()
            if made is not None:
                self.pool.append(made)
        result = self.pool[-1]
        if self._chance(0.4):
            result = self._classifier(result)
        if self._scale(result) > _LARGEST_OUTPUT:
            result = self.builder.unary("QUANTIZE", result)
            self.builder.set_grid(result, _LARGEST_OUTPUT, self._between(-128, 128))
        if only_rows:
            return _alive(self.builder.graph(result))
        if self._chance(0.2):
            result = self.builder.quantise(result, "uint8", self._scale(result), self._between(0, 256))
        made = {index for op in self.builder.ops for index in op.outputs if op.kind != "ASSIGN_VARIABLE"}
        further = [index for index in self.pool if index in made and index != result and self._chance(0.15)]
        return _alive(self.builder.graph(result, *dict.fromkeys([*further, *self.more.indices])))

    def _source(self) -> int:
        """Mostly the newest tensor: a network is deep rather than wide."""
        return self.pool[-1] if self._chance(0.7) else self.pool[self._between(0, len(self.pool))]

    def _conv(self) -> int | None:
        x = self._source()
        _, height, width, channels = self._shape(x)
        kernel = (self._between(1, 6), self._between(1, 6))
        options = self._window(kernel, (height, width))
        outputs = self._between(1, 24)
        if options is None or math.prod(kernel) * channels * outputs > _MOST_WEIGHTS:
            return None
        return self._weighted(self.builder.conv(x, outputs, kernel, options, per_channel=self._chance(0.7)))

    def _enlarged(self) -> int | None:
        """Two or three times as high, by repeated lines."""
        x = self._source()
        _, height, width, channels = self._shape(x)
        larger = (1, height * self._between(2, 4), width * self._between(1, 4), channels)
        if math.prod(larger) > _MOST_ELEMENTS:
            return None
        size = self.builder.integers(list(larger[1:3]))
        return self.builder.plain("RESIZE_NEAREST_NEIGHBOR", (x, size), larger, options=(0, self._between(0, 2)))

    def _pointwise(self) -> int | None:
        x = self._source()
        outputs = int(self.rng.choice([1, 3, 4, 5, 8, 17, 31, 40]))
        if self.builder.tensors[x].elements // self._shape(x)[3] * outputs > _MOST_ELEMENTS:
            return None
        options = ConvOptions(activation=self._activation())
        return self._weighted(self.builder.conv(x, outputs, (1, 1), options, per_channel=self._chance(0.7)))

    def _depthwise(self) -> int | None:
        x = self._source()
        _, height, width, channels = self._shape(x)
        square = int(self.rng.choice([3, 3, 3, 5, 7]))
        kernel = (square, square) if self._chance(0.7) else (self._between(1, 6), self._between(1, 6))
        options = self._window(kernel, (height, width))
        if options is None:
            return None
        options = replace(options, depth_multiplier=1 if self._chance(0.75) else self._between(2, 4))
        if channels * options.depth_multiplier > 64:
            return None
        return self._weighted(self.builder.depthwise(x, kernel, options, per_channel=self._chance(0.7)))

    def _window(self, kernel: tuple[int, int], size: tuple[int, int]) -> ConvOptions | None:
        dilated = self._chance(0.2)
        dilation = (self._between(1, 4), self._between(1, 4)) if dilated else (1, 1)
        stride = (1, 1) if dilated else (int(self.rng.choice([1, 1, 2, 3])), int(self.rng.choice([1, 1, 2, 3])))
        padding = "same" if self._chance(0.6) else "valid"
        if min(map_size(size, kernel, stride, dilation, padding)) < 1:
            return None
        return ConvOptions(stride, padding, dilation, self._activation())

    def _pool(self) -> int | None:
        x = self._source()
        _, height, width, _ = self._shape(x)
        window = (self._between(1, min(height, 5) + 1), self._between(1, min(width, 5) + 1))
        stride = (self._between(1, 4), self._between(1, 4))
        kind = "AVERAGE_POOL_2D" if self._chance(0.5) else "MAX_POOL_2D"
        padding = "same" if self._chance(0.5) else "valid"
        return self.builder.pool(kind, x, PoolOptions(window, stride, padding, self._activation()))

    def _elementwise(self) -> int:
        """ADD or MUL with another tensor of the same shape, itself, or a constant that may be repeated."""
        x = self._source()
        partners = [index for index in self.pool if self._shape(index) == self._shape(x)]
        kind = "ADD" if self._chance(0.6) else "MUL"
        if self._chance(0.6):
            other = partners[self._between(0, len(partners))]
        else:
            shape = tuple(side if self._chance(0.5) else 1 for side in self._shape(x))
            other = self.builder.constant(*(shape if self._chance(0.7) else shape[3:]))
        first, second = (x, other) if self._chance(0.5) else (other, x)
        result = self.builder.elementwise(kind, first, second, ActivationOptions(self._activation()))
        return self._regrid(result)

    def _gate(self) -> int:
        """Squeeze and excitation: the mean of each channel, through a curve, times the map."""
        x = self._source()
        squeezed = self._in_range(self.builder.mean(x, (1, 2), keep=True))
        kind = self._curve(("LOGISTIC", "HARD_SWISH", "RELU"), squeezed)
        return self._in_range(
            self.builder.elementwise("MUL", x, self.builder.unary(kind, squeezed), ActivationOptions())
        )

    def _unary(self) -> int:
        x = self._source()
        kind = self._curve(("RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "QUANTIZE"), x)
        result = self.builder.unary(kind, x)
        if kind == "RELU6":  # the runtime clamps on the input's grid and does not rescale
            grid = self.builder.tensors[x].quantisation
            self.builder.tensors[result] = replace(self.builder.tensors[result], quantisation=grid)
        elif kind != "LOGISTIC":
            factor = float(self.rng.uniform(0.3, 3))
            self.builder.set_grid(result, self._scale(x) * factor, self._between(-128, 128))
            self._in_range(result)
        return result

    def _curve(self, kinds: tuple[str, ...], x: int) -> str:
        """One of them that the runtime defines for the scale of `x`."""
        kind = kinds[self._between(0, len(kinds))]
        return "RELU" if kind == "HARD_SWISH" and self._scale(x) > _LARGEST_HARD_SWISH else kind

    def _concatenate(self) -> int | None:
        x = self._source()
        axis = self._between(1, 4)
        rest = [side for number, side in enumerate(self._shape(x)) if number != axis]
        fitting = [i for i in self.pool if [s for n, s in enumerate(self._shape(i)) if n != axis] == rest]
        fitting = [i for i in fitting if self._scale(i) / self._scale(x) < _LARGEST_RATIO]  # beyond it: refused
        parts = [x, *(fitting[self._between(0, len(fitting))] for _ in range(self._between(1, 3)))]
        if sum(self.builder.tensors[part].elements for part in parts) > _MOST_ELEMENTS:
            return None
        return self.builder.concatenate(axis, *(self._on_grid_of(part, x) for part in parts))

    def _on_grid_of(self, part: int, x: int) -> int:
        grid = self.builder.tensors[x].quantisation
        assert grid
        if self.builder.tensors[part].quantisation == grid:
            return part
        moved = self.builder.unary("QUANTIZE", part)
        self.builder.set_grid(moved, grid.scale[0], grid.zero_point[0])
        return moved

    def _pad(self) -> int | None:
        x = self._source()
        amounts = [(self._between(0, 3), self._between(0, 3)) if self._chance(0.6) else (0, 0) for _ in range(3)]
        sides = [side + sum(pair) for side, pair in zip(self._shape(x)[1:], amounts, strict=True)]
        return self.builder.pad(x, *amounts) if math.prod(sides) <= _MOST_ELEMENTS else None

    def _reshape(self) -> int:
        x = self._source()
        _, height, width, channels = self._shape(x)
        shapes = [(width, height, channels), (1, height * width, channels), (height, width * channels, 1)]
        return self.builder.reshape(x, (1, *shapes[self._between(0, 3)]))

    def _mean(self) -> int:
        axes = ((1, 2), (1,), (2,), (3,), (2, 1), (-1, 1))[self._between(0, 6)]
        return self._in_range(self.builder.mean(self._source(), axes, keep=True, same_grid=self._chance(0.2)))

    def _classifier(self, x: int) -> int:
        if self.builder.tensors[x].elements > 1500:
            x = self._in_range(self.builder.mean(x, (1, 2), keep=False))
        else:
            x = self.builder.flatten(x)
        options = ActivationOptions(self._activation())
        x = self._weighted(
            self.builder.fully_connected(x, self._between(1, 20), options, per_channel=self._chance(0.4))
        )
        return self.builder.softmax(x) if self._chance(0.6) and self._scale(x) >= _SMALLEST_SOFTMAX else x

    def _weighted(self, result: int) -> int:
        """Bias with its scale, zero points at the ends, and sometimes a much finer or coarser output."""
        op = self.builder.ops[-1]
        if self._chance(0.25):
            power = _FINER[self._between(0, len(_FINER))]
            for index in op.inputs[1:]:
                data = self.builder.tensors[index].data
                assert data is not None
                smaller = (data / 2.0 ** min(power, 6)).astype(data.dtype)
                self.builder.tensors[index] = replace(self.builder.tensors[index], data=smaller)
            self.builder.set_grid(result, self._scale(result) * 2.0**-power, self._between(-128, 128))
        elif self._chance(0.1):
            self.builder.set_grid(result, self._scale(result) * 40, self._between(-128, 128))
        if self._chance(0.1):  # a filter of zeros: its output is constant
            weights = self.builder.tensors[op.inputs[1]]
            assert weights.data is not None
            silent = self._between(0, weights.shape[3 if op.kind == "DEPTHWISE_CONV_2D" else 0])
            weights.data[(..., silent) if op.kind == "DEPTHWISE_CONV_2D" else silent] = 0
        self._in_range(result)
        self._zero_point(result)
        self._bias_scale(op)
        return result

    def _in_range(self, result: int) -> int:
        scale = self._scale(result)
        if not _SCALES[0] <= scale <= _SCALES[1]:
            grid = self.builder.tensors[result].quantisation
            assert grid
            self.builder.set_grid(result, min(max(scale, _SCALES[0]), _SCALES[1]), grid.zero_point[0])
        return result

    def _bias_scale(self, op: Op) -> None:
        """TensorFlow Lite Micro compares the bias's scale with the factors' before it accepts a large one."""
        weights, bias = (self.builder.tensors[index] for index in op.inputs[1:])
        assert weights.quantisation
        source = self._scale(op.inputs[0])
        scales = tuple(float(np.float32(source * scale)) for scale in weights.quantisation.scale)
        grid = Quantisation(scales, (0,) * len(scales))
        self.builder.tensors[op.inputs[2]] = replace(bias, quantisation=grid)

    def _regrid(self, result: int) -> int:
        if self._chance(0.2):
            power = float(self.rng.choice([-12, -6, 3, 8]))
            self.builder.set_grid(result, self._scale(result) * 2.0**power, self._between(-128, 128))
        return self._in_range(result)

    def _zero_point(self, index: int) -> None:
        if self._chance(0.25):
            self.builder.set_grid(index, self._scale(index), int(self.rng.choice(_EXTREME_ZERO_POINTS)))

    def _activation(self) -> str:
        return _ACTIVATIONS[self._between(0, 3)]

    def _shape(self, index: int) -> tuple[int, ...]:
        return self.builder.tensors[index].shape

    def _scale(self, index: int) -> float:
        grid = self.builder.tensors[index].quantisation
        assert grid
        return grid.scale[0]

    def _between(self, low: int, end: int) -> int:
        return int(self.rng.integers(low, end))

    def _chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)


def random_network(seed: int) -> Graph:
    """3 to 10 operators."""
    grower = NetworkGrower(seed)
    return grower.grow(3 + seed % 8)


def random_column(seed: int) -> Graph:
    """3 to 10 layers of the kinds that can be fused."""
    return NetworkGrower(seed).grow(3 + seed % 8, only_rows=True, joined=True)


def random_chains(graph: Graph, weights: Weights | None, seed: int) -> list[Chain]:
    """Ops that are fused, wherever they can, in bands of any height; whether it pays or not."""
    rng = np.random.default_rng(seed)
    graph = lowered(graph)
    calls = compile_model(graph, weights=weights).calls
    links = Links(graph, {n for n, call in enumerate(calls) if can_be_fused(graph, n, call)})
    order, found, position = range(len(graph.ops)), [], 0
    while position < len(order):
        starting = list(links.starting_at(order, position))
        if starting and rng.random() < 0.9:
            chosen = starting[int(rng.integers(len(starting)))]
            found.append(replace(chosen, band=int(rng.integers(1, chosen.passes[-1].rows + 1))))
            position += len(chosen.ops)
        else:
            position += 1
    return found


def _alive(graph: Graph) -> Graph:
    """Without ops whose results nobody uses."""
    needed, kept = set(graph.outputs), []
    for op in reversed(graph.ops):
        if needed.intersection(op.outputs) or op.kind == "ASSIGN_VARIABLE":
            needed.update(op.inputs)
            kept.append(op)
    used = tuple(index for index in graph.inputs if index in needed)
    return replace(graph, ops=tuple(reversed(kept)), inputs=used or graph.inputs[:1])
