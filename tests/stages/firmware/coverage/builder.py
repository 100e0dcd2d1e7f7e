"""Networks of any operators, added one by one: the builder of the coverage test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stages.graph.graph import ActivationOptions, NoOptions, Op, PlainOptions, Quantisation, Tensor
from tests.stages.graph.int8_graphs import Int8Builder


class Builder(Int8Builder):
    """Adds ops of any kind, with any result."""

    def plain(
        self, kind: str, inputs: tuple[int, ...], *shapes: tuple[int, ...], options: tuple[float, ...] = (), **grid: Any
    ) -> int:
        """The first of the results, which have the grid of the first int8 operand, or the given one."""
        like = next(self.tensors[i] for i in inputs if self.tensors[i].dtype in ("int8", "int16"))
        quantisation = grid.get("grid", like.quantisation)
        dtype = grid.get("dtype", "int8")
        first = len(self.tensors)
        for number, shape in enumerate(shapes):
            self._add(Tensor(f"{kind}{first + number}", shape, dtype, quantisation if dtype != "int32" else None))
        results = tuple(range(first, len(self.tensors)))
        self.ops.append(Op(kind, f"{kind}{first}", inputs, results, PlainOptions(options)))
        return first

    def integers(self, *values: Any) -> int:
        data = np.array(values[0] if len(values) == 1 else values, np.int32)
        return self._add(Tensor(f"integers{len(self.tensors)}", data.shape, "int32", data=data))

    def pair(self, kind: str, first: int, second: int, factor: float, activation: str = "none") -> int:
        """SUB and DIV; the result's scale is that of the larger operand, or of the first, times `factor`."""
        shape = np.broadcast_shapes(self.tensors[first].shape, self.tensors[second].shape)
        larger = max(self._scale_of(first), self._scale_of(second) if kind == "SUB" else 0)
        grid = Quantisation((float(np.float32(larger * factor)),), (7,))
        index = self._add(Tensor(f"{kind}{len(self.tensors)}", shape, "int8", grid))
        self.ops.append(Op(kind, f"{kind}{index}", (first, second), (index,), ActivationOptions(activation)))
        return index

    def quantise(self, x: int, dtype: str, scale: float, zero_point: int) -> int:
        grid = Quantisation((float(np.float32(scale)),), (zero_point,))
        index = self._add(Tensor(f"QUANTIZE{len(self.tensors)}", self.tensors[x].shape, dtype, grid))
        self.ops.append(Op("QUANTIZE", f"QUANTIZE{index}", (x,), (index,), NoOptions()))
        return index

    def shape_of(self, x: int) -> int:
        index = self._add(Tensor(f"SHAPE{len(self.tensors)}", (len(self.tensors[x].shape),), "int32"))
        self.ops.append(Op("SHAPE", f"SHAPE{index}", (x,), (index,), PlainOptions()))
        return index

    def integer_op(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, ...], *options: float) -> int:
        index = self._add(Tensor(f"{kind}{len(self.tensors)}", shape, "int32"))
        made = ActivationOptions() if kind == "MUL" else PlainOptions(options)
        self.ops.append(Op(kind, f"{kind}{index}", inputs, (index,), made))
        return index

    def state(self, like: int, start: np.ndarray) -> int:
        """A variable with first values."""
        tensor = self.tensors[like]
        return self._add(replace(tensor, name=f"state{len(self.tensors)}", data=start, is_state=True))

    def read(self, state: int) -> int:
        index = self._add(replace(self.tensors[state], name=f"read{len(self.tensors)}", data=None, is_state=False))
        self.ops.append(Op("READ_VARIABLE", f"read{index}", (state,), (index,), PlainOptions()))
        return index

    def assign(self, state: int, value: int) -> None:
        index = self._add(replace(self.tensors[value], name=f"assign{len(self.tensors)}"))
        self.ops.append(Op("ASSIGN_VARIABLE", f"assign{index}", (value, state), (index,), PlainOptions()))


def svdf_network(make: Builder) -> list[int]:
    return [make.fully_connected(svdf(make, make.input(7)), 3, ActivationOptions())]


def svdf(make: Builder, x: int, name: str = "svdf") -> int:
    """Two filters for each of five units, a memory of four."""
    rng, inputs = make.rng, make.tensors[x].shape[1]

    def stored(name: str, shape: tuple[int, ...], dtype: str, scale: float, most: int) -> int:
        data = rng.integers(-most, most + 1, shape).astype(dtype)
        return make._add(Tensor(name, shape, dtype, Quantisation((scale,), (0,)), data))  # type: ignore[arg-type]

    feature, time = stored("feature", (10, inputs), "int8", 0.01, 127), stored("time", (10, 4), "int16", 0.0001, 30000)
    bias = stored("bias", (5,), "int32", 1e-6, 10000)
    state = make._add(
        Tensor(
            "held",
            (1, 40),
            "int16",
            Quantisation((0.01 * make._scale_of(x),), (0,)),
            np.zeros((1, 40), np.int16),
            is_state=True,
        )
    )
    result = make._add(Tensor(name, (1, 5), "int8", Quantisation((make._scale_of(x) * 4.0,), (5,))))
    make.ops.append(Op("SVDF", name, (x, feature, time, bias, state), (result,), PlainOptions((2, 1))))
    return result


def lstm_network(make: Builder, *, clip: float = 0.0, power: int = -11) -> list[int]:
    """Six steps of four inputs."""
    x = make.input(6, 4)
    make.set_grid(x, 0.02, -5)
    result = lstm(make, x, units=5, clip=clip, power=power)
    return [make.fully_connected(make.flatten(result), 3, ActivationOptions()), result]


def lstm(make: Builder, x: int, *, units: int, clip: float = 0.0, power: int = -11, name: str = "lstm") -> int:
    """As Keras' LSTM is converted."""
    rng, (_, steps, inputs) = make.rng, make.tensors[x].shape
    operands = [-1] * 24
    operands[0] = x
    for place in (*range(1, 9), *range(12, 16)):
        shape = (units,) if place >= 12 else (units, inputs if place < 5 else units)
        most, dtype = (3000, "int32") if place >= 12 else (127, "int8")
        data = rng.integers(-most, most + 1, shape).astype(dtype)
        grid = Quantisation((0.0002 if place >= 12 else 0.01,), (0,))
        operands[place] = make._add(Tensor(f"gate{place}", shape, dtype, grid, data))  # type: ignore[arg-type]
    grid = Quantisation((1 / 127,), (3,))
    operands[18] = make._add(Tensor("hidden", (1, units), "int8", grid, np.full((1, units), 3, np.int8), is_state=True))
    cell = Quantisation((2.0**power,), (0,))
    operands[19] = make._add(Tensor("cell", (1, units), "int16", cell, np.zeros((1, units), np.int16), is_state=True))
    result = make._add(Tensor(name, (1, steps, units), "int8", grid))
    options = PlainOptions((4, clip, 0.0, 0))
    make.ops.append(Op("UNIDIRECTIONAL_SEQUENCE_LSTM", name, tuple(operands), (result,), options))
    return result
