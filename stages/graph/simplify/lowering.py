"""Operators written with fewer kinds, exactly: what the firmware compiler need not know.

  EXPAND_DIMS, SQUEEZE, and whatever moves nothing (a TRANSPOSE along axes of one element)   RESHAPE
  SPLIT, SPLIT_V, UNPACK    a SLICE for each result, UNPACK's with a RESHAPE
  PACK                      a RESHAPE of each operand, and a CONCATENATION
  CONV_2D in groups         one whole, with zeros where a filter sees nothing

Tensors keep their numbers; new ones come behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from stages.graph.arithmetic.movement import MOVES, source_positions
from stages.graph.arithmetic.windows import ungrouped
from stages.graph.graph import ConcatOptions, Graph, NoOptions, Op, PlainOptions, Tensor


def lowered(graph: Graph) -> Graph:
    """The very same object where there is nothing to do."""
    work = _Lowering(list(graph.tensors))
    ops = [made for op in graph.ops for made in work.lower(graph, op)]
    return graph if tuple(ops) == graph.ops else replace(graph, tensors=tuple(work.tensors), ops=tuple(ops))


@dataclass
class _Lowering:
    tensors: list[Tensor] = field(default_factory=list)

    def lower(self, graph: Graph, op: Op) -> Iterator[Op]:
        if op.kind in ("EXPAND_DIMS", "SQUEEZE") or _moves_nothing(graph, op):
            yield self._reshape(op.inputs[0], op.outputs[0])
        elif op.kind in ("SPLIT", "SPLIT_V", "UNPACK"):
            yield from self._parts(op)
        elif op.kind == "PACK":
            yield from self._pack(op)
        elif op.kind == "CONV_2D":
            yield self._whole(op)
        else:
            yield op

    def _reshape(self, source: int, result: int) -> Op:
        return Op("RESHAPE", self.tensors[result].name, (source,), (result,), NoOptions())

    def _parts(self, op: Op) -> Iterator[Op]:
        assert isinstance(op.options, PlainOptions)
        source = op.inputs[1 if op.kind == "SPLIT" else 0]
        shape = self.tensors[source].shape
        if op.kind == "UNPACK":
            axis = int(op.options.values[0]) % len(shape)
        else:
            axes = self.tensors[op.inputs[0 if op.kind == "SPLIT" else 2]].data
            assert axes is not None
            axis = int(axes.reshape(-1)[0]) % len(shape)
        start = 0
        for result in op.outputs:
            size = 1 if op.kind == "UNPACK" else self.tensors[result].shape[axis]
            sizes = [size if number == axis else side for number, side in enumerate(shape)]
            starts = [start if number == axis else 0 for number in range(len(shape))]
            start += size
            target = result
            if op.kind == "UNPACK":
                target = self._new(replace(self.tensors[result], shape=tuple(sizes)))
            bounds = (self._integers(starts), self._integers(sizes))
            yield Op("SLICE", self.tensors[result].name, (source, *bounds), (target,), PlainOptions())
            if target != result:
                yield self._reshape(target, result)

    def _pack(self, op: Op) -> Iterator[Op]:
        assert isinstance(op.options, PlainOptions)
        rank = len(self.tensors[op.outputs[0]].shape)
        axis, parts = int(op.options.values[0]) % rank, []
        for index in op.inputs:
            part = self.tensors[index]
            shape = (*part.shape[:axis], 1, *part.shape[axis:])
            data = None if part.data is None else part.data.reshape(shape)
            parts.append(self._new(replace(part, shape=shape, data=data)))
            if part.data is None:
                yield self._reshape(index, parts[-1])
        yield Op("CONCATENATION", op.name, tuple(parts), op.outputs, ConcatOptions(axis))

    def _whole(self, op: Op) -> Op:
        weights, channels = self.tensors[op.inputs[1]], self.tensors[op.inputs[0]].shape[3]
        if weights.data is None or weights.shape[3] == channels:
            return op
        data = ungrouped(weights.data, channels)
        return replace(
            op, inputs=(op.inputs[0], self._new(replace(weights, shape=data.shape, data=data)), *op.inputs[2:])
        )

    def _integers(self, values: list[int]) -> int:
        return self._new(Tensor("integers", (len(values),), "int32", data=np.array(values, np.int32)))

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1


def _moves_nothing(graph: Graph, op: Op) -> bool:
    source, result = graph.tensors[op.inputs[0]] if op.inputs else None, graph.tensors[op.outputs[0]]
    if op.kind not in MOVES or source is None or source.elements != result.elements:
        return False
    return bool(np.array_equal(source_positions(graph, op).reshape(-1), np.arange(source.elements)))
