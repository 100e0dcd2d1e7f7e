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
        like = next(self.tensors[i] for i in inputs if self.tensors[i].dtype == "int8")
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
