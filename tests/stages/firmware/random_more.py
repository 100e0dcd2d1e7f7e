"""Further moves of a random network: rarer operators, batches, recurrent layers, stretches of int16."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stages.graph.graph import FLOAT_KINDS, ActivationOptions, ConvOptions, PoolOptions, Quantisation
from tests.stages.firmware.coverage.builder import Builder, lstm, svdf
from tests.stages.firmware.coverage.wide import weighted

_SCALES = (1e-4, 1e2)  # of operands here
_MOST_ELEMENTS = 6000
_UNIT = Quantisation((1 / 128,), (0,))
_WIDE_UNIT = Quantisation((2.0**-15,), (0,))


class More:
    """Each move gives the int8 tensor it made, of four axes, or None where it cannot be made."""

    def __init__(self, builder: Builder) -> None:
        self.make = builder
        self.rng = builder.rng
        self.indices: list[int] = []  # results of ARG_MAX, which can only be outputs

    def draw(self, x: int, pool: list[int]) -> int | None:
        """One of them."""
        tensor = self.make.tensors[x]
        if tensor.dtype != "int8" or not _SCALES[0] < self.make._scale_of(x) < _SCALES[1]:
            return None
        moves = (
            *(self._wide, self._wide, self._wide, self._product, self._normalised, self._quotient, self._root),
            *(self._slice, self._apart, self._pictures, self._repeated, self._padded, self._groups, self._smallest),
            *(self._index, self._sequence, self._filtered, self._elu),
        )
        return moves[self._between(0, len(moves))](x)

    def _between(self, low: int, end: int) -> int:
        return int(self.rng.integers(low, end))

    def _shape(self, x: int) -> tuple[int, ...]:
        return self.make.tensors[x].shape

    def _grid(self, scale: float) -> Quantisation:
        return Quantisation((float(np.float32(scale)),), (self._between(-128, 128),))

    def _product(self, x: int) -> int | None:
        """Of the lines of a map with each other."""
        _, height, width, channels = self._shape(x)
        if height * width * width > _MOST_ELEMENTS:
            return None
        grid = self._grid(self.make._scale_of(x) ** 2 * 90 * math.sqrt(channels))
        return self.make.plain("BATCH_MATMUL", (x, x), (1, height, width, width), options=(0, 1), grid=grid)

    def _normalised(self, x: int) -> int:
        return self.make.plain("L2_NORMALIZATION", (x,), self._shape(x), grid=_UNIT)

    def _quotient(self, x: int) -> int:
        divisor = self.make.constant(self._shape(x)[3])
        values = self.make.tensors[divisor].data
        assert values is not None
        grid = Quantisation((self.make._scale_of(divisor),), (-128,))
        self.make.tensors[divisor] = replace(
            self.make.tensors[divisor], quantisation=grid, data=np.maximum(values, -90)
        )
        result = self.make.pair("DIV", x, divisor, 1.0)
        self.make.set_grid(result, self.make._scale_of(x) / (60 * grid.scale[0]), self._between(-128, 128))
        return result

    def _root(self, x: int) -> int:
        above = self.make.quantise(x, "int8", self.make._scale_of(x), -128)
        grid = Quantisation((float(np.float32(0.02 / math.sqrt(self.make._scale_of(x)))),), (-128,))
        return self.make.plain("RSQRT", (above,), self._shape(x), grid=grid)

    def _elu(self, x: int) -> int:
        """In int8, or in float like the others that are left there."""
        near = self.make.quantise(x, "int8", 0.03, self._between(-128, 128))
        kind = str(self.rng.choice(["ELU", *FLOAT_KINDS]))
        return self.make.plain(kind, (near,), self._shape(x), grid=Quantisation((0.02,), (self._between(-100, 20),)))

    def _slice(self, x: int) -> int:
        shape = self._shape(x)
        starts = [self._between(0, side) for side in shape]
        sizes = [self._between(1, side - start + 1) for side, start in zip(shape, starts, strict=True)]
        return self.make.plain("SLICE", (x, self.make.integers(starts), self.make.integers(sizes)), tuple(sizes))

    def _apart(self, x: int) -> int | None:
        """The lines of a map one by one, and two of them together again."""
        _, height, width, channels = self._shape(x)
        if not 2 <= height <= 8:
            return None
        first = self.make.plain("UNPACK", (x,), *[(1, width, channels)] * height, options=(1, height))
        return self.make.plain("PACK", (first, first + height - 1), (1, 2, width, channels), options=(1, 2))

    def _pictures(self, x: int) -> int | None:
        """A batch of four, a layer on each, and back."""
        _, height, width, _ = self._shape(x)
        if height % 2 or width % 2:
            return None
        none, blocks = self.make.integers([[0, 0], [0, 0]]), self.make.integers([2, 2])
        small = (4, height // 2, width // 2)
        apart = self.make.plain("SPACE_TO_BATCH_ND", (x, blocks, none), (*small, self._shape(x)[3]))
        kind = "MAX_POOL_2D" if self.rng.random() < 0.3 else "CONV_2D"
        if kind == "CONV_2D":
            result = self.make.conv(apart, 5, (2, 2), ConvOptions(activation="relu"))
        else:
            result = self.make.pool(kind, apart, PoolOptions((1, 2), (1, 1), "same"))
        channels = self._shape(result)[3]
        self.make.tensors[result] = replace(self.make.tensors[result], shape=(*small, channels))
        return self.make.plain("BATCH_TO_SPACE_ND", (result, blocks, none), (1, height, width, channels))

    def _repeated(self, x: int) -> int | None:
        _, height, width, channels = self._shape(x)
        if height != 1 or 3 * width * channels > _MOST_ELEMENTS:
            return None
        target = (1, 3, width, channels)
        return self.make.plain("BROADCAST_TO", (x, self.make.integers(list(target))), target)

    def _padded(self, x: int) -> int | None:
        pads = [[0, 0], *([self._between(0, 3), self._between(0, 3)] for _ in range(3))]
        sizes = tuple(side + sum(pair) for side, pair in zip(self._shape(x), pads, strict=True))
        if math.prod(sizes) > _MOST_ELEMENTS:
            return None
        value = self.make.constant(1)
        self.make.tensors[value] = replace(self.make.tensors[value], quantisation=self.make.tensors[x].quantisation)
        return self.make.plain("PADV2", (x, self.make.integers(pads), value), sizes)

    def _groups(self, x: int) -> int | None:
        channels = self._shape(x)[3]
        groups = next((count for count in (2, 3, 5) if channels % count == 0), None)
        if groups is None:
            return None
        result = self.make.conv(x, 2 * groups, (3, 3), ConvOptions(activation="relu_n1_to_1"))
        place = self.make.ops[-1].inputs[1]
        weights = self.make.tensors[place]
        assert weights.data is not None
        own = weights.data[..., : channels // groups].copy()
        self.make.tensors[place] = replace(weights, shape=own.shape, data=own)
        return result

    def _smallest(self, x: int) -> int:
        shape, axis = self._shape(x), self._between(1, 4)
        result = tuple(1 if number == axis else side for number, side in enumerate(shape))
        return self.make.plain("REDUCE_MIN", (x, self.make.integers([axis])), result, options=(1,))

    def _index(self, x: int) -> None:
        shape, axis = self._shape(x), self._between(1, 4)
        kind = ("ARG_MAX", "ARG_MIN")[self._between(0, 2)]
        result = (*shape[:axis], *shape[axis + 1 :])
        self.indices.append(self.make.plain(kind, (x, self.make.integers([axis])), result, dtype="int32"))

    def _sequence(self, x: int) -> int | None:
        """An LSTM over the pixels."""
        _, height, width, channels = self._shape(x)
        if height * width > 20 or channels > 20:
            return None
        flat = self.make.reshape(self.make.quantise(x, "int8", 0.02, -5), (1, height * width, channels))
        made = lstm(self.make, flat, units=self._between(1, 7), name=f"lstm{flat}")
        return self.make.reshape(made, (1, height * width, 1, self._shape(made)[2]))

    def _filtered(self, x: int) -> int | None:
        """An SVDF of all values."""
        elements = self.make.tensors[x].elements
        if elements > 300:
            return None
        made = svdf(self.make, self.make.reshape(x, (1, elements)), name=f"svdf{x}")
        return self.make.reshape(made, (1, 1, 1, self._shape(made)[1]))

    def _wide(self, x: int) -> int:
        """One to three operators of int16, between two QUANTIZE."""
        wide = self.make.quantise(x, "int16", self.make._scale_of(x) / self.rng.uniform(100, 256), 0)
        for _ in range(self._between(1, 4)):
            wide = self._wide_step(wide)
        scale = self.make._scale_of(wide) * float(self.rng.uniform(100, 300))
        return self.make.quantise(wide, "int8", scale, self._between(-128, 128))

    def _wide_step(self, x: int) -> int:
        make, shape = self.make, self._shape(x)
        kinds = ("conv", "depthwise", "ADD", "MUL", "SUB", "MAXIMUM", "pool", "LOGISTIC", "TANH", "RELU", "LEAKY_RELU")
        kind = str(self.rng.choice([*kinds, "SOFTMAX", "MEAN", "TRANSPOSE", "PAD"]))
        if kind == "conv":
            bias = (None, "int32", "int64")[self._between(0, 3)]
            return weighted(make, make.conv(x, self._between(1, 9), (2, 3), ConvOptions(activation="relu")), bias)
        if kind == "depthwise":
            return weighted(make, make.depthwise(x, (3, 2), ConvOptions(stride=(2, 1))))
        if kind in ("ADD", "MUL"):
            made = make.elementwise(kind, x, x, ActivationOptions())
            return self._as_wide(made, make._scale_of(made) * (256 if kind == "MUL" else 1))
        if kind == "SUB":
            half = make.quantise(x, "int16", make._scale_of(x) * 1.9, 0)
            made = make.pair("SUB", x, half, 1.0)
            return self._as_wide(made, make._scale_of(made))
        if kind == "MAXIMUM":
            return make.plain(kind, (x, make.quantise(x, "int16", make._scale_of(x) * 0.7, 0)), shape, dtype="int16")
        if kind == "pool":
            name = ("AVERAGE_POOL_2D", "MAX_POOL_2D")[self._between(0, 2)]
            made = make.pool(name, x, PoolOptions((min(2, shape[1]), 1), (2, 1), "same"))
            return self._as_wide(made, make._scale_of(x))
        if kind in ("LOGISTIC", "SOFTMAX"):
            near = make.quantise(x, "int16", 8 / 32768, 0)
            made = make.unary(kind, near) if kind == "LOGISTIC" else make.softmax(near)
            return self._as_wide(made, _WIDE_UNIT.scale[0])
        if kind == "TANH":
            near = make.quantise(x, "int16", 0.0002, 0)
            return make.plain(kind, (near,), shape, dtype="int16", grid=_WIDE_UNIT)
        if kind == "RELU":
            return self._as_wide(make.unary(kind, x), make._scale_of(x) * 0.6)
        if kind == "LEAKY_RELU":
            return make.plain(kind, (x,), shape, dtype="int16", options=(0.3,))
        if kind == "MEAN":
            made = make.mean(x, (1, 2), keep=True)
            return self._as_wide(made, make._scale_of(made))
        if kind == "TRANSPOSE":
            turned = tuple(shape[axis] for axis in (0, 2, 1, 3))
            return make.plain(kind, (x, make.integers([0, 2, 1, 3])), turned, dtype="int16")
        return self._as_wide(make.pad(x, (1, 0), (0, 2), (1, 1)), make._scale_of(x))

    def _as_wide(self, index: int, scale: float) -> int:
        self.make.set_grid(index, scale, 0)
        self.make.tensors[index] = replace(self.make.tensors[index], dtype="int16")
        return index
