"""Moves of a random network that draw from the operators of other people's files: see random_networks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stages.graph.graph import ConvOptions, Op, Quantisation, Tensor
from tests.stages.firmware.coverage.builder import Builder

_SCALES = (1e-5, 1e3)  # of operands here: beyond them the runtime refuses one or the other
_MOST_ELEMENTS = 6000
_MOVES = ("TRANSPOSE", "STRIDED_SLICE", "MIRROR_PAD", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "GATHER", "REVERSE_V2")


class Others:
    """Each move gives the tensor it made, of four axes, or None where it cannot be made."""

    def __init__(self, builder: Builder) -> None:
        self.make = builder
        self.rng = builder.rng

    def draw(self, x: int, pool: list[int]) -> int | None:
        """One of them."""
        tensor = self.make.tensors[x]
        if tensor.dtype != "int8" or not _SCALES[0] < self.make._scale_of(x) < _SCALES[1]:
            return None
        moves = (self._move, self._move, self._pair, self._pair, self._curve, self._split, self._reduce, self._state)
        moves += (self._resize, self._upwards)
        return moves[int(self.rng.integers(len(moves)))](x, pool)

    def _integers(self, *values: object) -> int:
        return self.make.integers(*values)

    def _move(self, x: int, _pool: list[int]) -> int | None:
        shape = self.make.tensors[x].shape
        _, height, width, channels = shape
        kind = str(
            self.rng.choice(
                ["TRANSPOSE", "STRIDED_SLICE", "MIRROR_PAD", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "GATHER", "REVERSE_V2"]
            )
        )
        if kind == "TRANSPOSE":
            axes = [0, *(int(axis) + 1 for axis in self.rng.permutation(3))]
            return self.make.plain(kind, (x, self._integers(axes)), tuple(shape[axis] for axis in axes))
        if kind == "STRIDED_SLICE":
            begins = [int(self.rng.integers(side)) for side in shape]
            steps = [1, *(int(self.rng.integers(1, 4)) for _ in range(3))]
            sizes = tuple(len(range(begin, side, step)) for begin, side, step in zip(begins, shape, steps, strict=True))
            bounds = (self._integers(begins), self._integers(list(shape)), self._integers(steps))
            return self.make.plain(kind, (x, *bounds), sizes, options=(0, 0, 0, 0, 0, 0))
        if kind == "MIRROR_PAD":
            pads = [
                [0, 0],
                *([int(self.rng.integers(min(side, 3))), int(self.rng.integers(min(side, 3)))] for side in shape[1:]),
            ]
            sizes = tuple(side + sum(pair) for side, pair in zip(shape, pads, strict=True))
            return (
                self.make.plain(kind, (x, self._integers(pads)), sizes, options=(0,))
                if math.prod(sizes) <= _MOST_ELEMENTS
                else None
            )
        if kind == "DEPTH_TO_SPACE":
            return (
                self.make.plain(kind, (x,), (1, 2 * height, 2 * width, channels // 4), options=(2,))
                if channels % 4 == 0
                else None
            )
        if kind == "SPACE_TO_DEPTH":
            fits = height % 2 == 0 and width % 2 == 0
            return (
                self.make.plain(kind, (x,), (1, height // 2, width // 2, 4 * channels), options=(2,)) if fits else None
            )
        if kind == "GATHER":
            axis = int(self.rng.integers(1, 4))
            indices = [int(self.rng.integers(shape[axis])) for _ in range(int(self.rng.integers(1, 6)))]
            return self.make.plain(
                kind, (x, self._integers(indices)), (*shape[:axis], len(indices), *shape[axis + 1 :]), options=(axis, 0)
            )
        return self.make.plain(kind, (x, self._integers([int(self.rng.integers(1, 4))])), shape)

    def _pair(self, x: int, pool: list[int]) -> int | None:
        shape = self.make.tensors[x].shape
        partners = [i for i in pool if self.make.tensors[i].shape == shape and self.make.tensors[i].dtype == "int8"]
        other = (
            partners[int(self.rng.integers(len(partners)))] if self.rng.random() < 0.6 else self.make.constant(shape[3])
        )
        if not _SCALES[0] < self.make._scale_of(other) < _SCALES[1]:
            return None
        kind = str(self.rng.choice(["SUB", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"]))
        if kind == "SUB":
            return self.make.pair(
                "SUB", x, other, float(self.rng.uniform(0.5, 2)), str(self.rng.choice(["none", "relu"]))
            )
        if kind == "PRELU":
            return self.make.plain(kind, (x, self.make.constant(1, 1, shape[3])), shape)
        grid = self.make.tensors[x].quantisation
        if kind == "SQUARED_DIFFERENCE":
            largest = max(self.make._scale_of(x), self.make._scale_of(other))
            grid = Quantisation((float(np.float32(50 * largest**2)),), (int(self.rng.integers(-128, 128)),))
            if not _SCALES[0] < grid.scale[0] < _SCALES[1]:
                return None
        return self.make.plain(kind, (x, other), shape, grid=grid)

    def _curve(self, x: int, _pool: list[int]) -> int | None:
        shape, scale = self.make.tensors[x].shape, self.make._scale_of(x)
        kind = str(self.rng.choice(["TANH", "LEAKY_RELU", "ABS"]))
        if kind == "TANH":
            return self.make.plain(kind, (x,), shape, grid=Quantisation((1 / 128,), (0,)))
        grid = Quantisation(
            (float(np.float32(scale * self.rng.uniform(0.5, 2))),), (int(self.rng.integers(-128, 128)),)
        )
        return self.make.plain(kind, (x,), shape, options=(0.2,) if kind == "LEAKY_RELU" else (), grid=grid)

    def _split(self, x: int, pool: list[int]) -> int | None:
        shape = self.make.tensors[x].shape
        if shape[3] % 2:
            return None
        half = (*shape[:3], shape[3] // 2)
        first = self.make.plain("SPLIT", (self._integers([3]), x), half, half, options=(2,))
        pool.append(first + 1)
        return first

    def _reduce(self, x: int, _pool: list[int]) -> int | None:
        shape, axis = self.make.tensors[x].shape, int(self.rng.integers(1, 4))
        result = tuple(1 if number == axis else side for number, side in enumerate(shape))
        kind = str(self.rng.choice(["REDUCE_MAX", "SUM"]))
        grid = self.make.tensors[x].quantisation
        if kind == "SUM":
            grid = Quantisation((float(np.float32(self.make._scale_of(x) * 3)),), (int(self.rng.integers(-128, 128)),))
        return self.make.plain(kind, (x, self._integers([axis])), result, options=(1,), grid=grid)

    def _state(self, x: int, _pool: list[int]) -> int:
        """The larger of now and the last time."""
        tensor = self.make.tensors[x]
        state = self.make.state(x, self.rng.integers(-128, 128, tensor.shape).astype(np.int8))
        larger = self.make.plain("MAXIMUM", (self.make.read(state), x), tensor.shape)
        self.make.assign(state, x)
        return larger

    def _resize(self, x: int, _pool: list[int]) -> int | None:
        _, height, width, channels = self.make.tensors[x].shape
        size = (int(self.rng.integers(1, 2 * height + 2)), int(self.rng.integers(1, 2 * width + 2)))
        if math.prod(size) * channels > _MOST_ELEMENTS:
            return None
        kind = str(self.rng.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"]))
        corners = ((0, 0), (0, 1), (1, 0))[int(self.rng.integers(3))]
        return self.make.plain(kind, (x, self._integers(list(size))), (1, *size, channels), options=corners)

    def _upwards(self, x: int, _pool: list[int]) -> int | None:
        _, height, width, channels = self.make.tensors[x].shape
        kernel, stride, outputs = (
            int(self.rng.integers(1, 5)),
            int(self.rng.integers(1, 4)),
            int(self.rng.integers(1, 6)),
        )
        size = (height * stride, width * stride)
        if math.prod(size) * outputs > _MOST_ELEMENTS or channels > 40:
            return None
        shape = (outputs, kernel, kernel, channels)
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        weights = self.make._add(
            Tensor("weights", shape, "int8", Quantisation((0.01,) * outputs, (0,) * outputs), data)
        )
        bias = self.make._add(
            Tensor("bias", (outputs,), "int32", None, self.rng.integers(-500, 500, outputs).astype(np.int32))
        )
        scale = float(np.float32(self.make._scale_of(x) * 0.01 * math.sqrt(kernel * kernel * channels) * 100))
        result = self.make._add(Tensor("upwards", (1, *size, outputs), "int8", Quantisation((scale,), (1,))))
        target = self._integers([1, *size, outputs])
        options = ConvOptions((stride, stride), "same")
        self.make.ops.append(Op("TRANSPOSE_CONV", f"upwards{result}", (x, weights, bias, target), (result,), options))
        return result

    def as_uint8(self, x: int) -> int:
        """An input that arrives as uint8, and behind it the int8 one."""
        grid = self.make.tensors[x].quantisation
        assert grid
        outer = replace(
            self.make.tensors[x], dtype="uint8", quantisation=Quantisation(grid.scale, (grid.zero_point[0] + 128,))
        )
        self.make.tensors[x] = outer
        return self.make.quantise(x, "int8", grid.scale[0], grid.zero_point[0])
