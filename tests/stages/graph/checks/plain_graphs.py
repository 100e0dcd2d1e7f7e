"""Files with one operator of any kind between two others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stages.graph.checks.shape_rules import SHAPE_RULES
from stages.graph.graph import ActivationOptions, Op, PlainOptions, Quantisation, Tensor
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import Int8Builder


class PlainBuilder(Int8Builder):
    """Adds operators of any kind."""

    def add_op(self, kind: str, inputs: tuple[int, ...], *shapes: tuple[int, ...], **fields: Any) -> list[int]:
        """The results; `fields` are those of its options. Their grid is that of the last int8 operand."""
        grid = [t for t in (self.tensors[index] for index in inputs) if t.dtype == "int8"][-1].quantisation
        if kind == "LOG_SOFTMAX":  # the only grid that the runtime takes
            grid = Quantisation((16 / 256,), (127,))
        if kind in ("L2_NORMALIZATION", "TANH"):
            grid = Quantisation((1 / 128,), (0,))
        first = len(self.tensors)
        results = [self._add(Tensor(f"{kind}{first + n}", shape, "int8", grid)) for n, shape in enumerate(shapes)]
        rule = SHAPE_RULES.get(kind)
        values = {name[0].upper() + name[1:]: value for name, value in fields.items()}
        values["SqueezeDimsLength"] = len(fields.get("squeezeDims", ()))
        numbers = PlainOptions(tuple(values.get(field, 0) for field in rule.fields)) if rule else ActivationOptions()
        self.ops.append(Op(kind, f"{kind}{first}", inputs, tuple(results), numbers))
        return results

    def integers(self, *values: Any) -> int:
        """A constant of axes, sizes or paddings."""
        data = np.array(values[0] if len(values) == 1 else values, np.int32)
        return self._add(Tensor(f"integers{len(self.tensors)}", data.shape, "int32", data=data))

    def content(self, *outputs: int) -> bytes:
        return write_tflite(self.graph(*outputs), "test")


def one_plain(kind: str) -> bytes:
    """A RELU, the op, and a MAXIMUM of each result with itself, so that the op lies inside the network."""
    make = PlainBuilder(7)
    x = make.unary("RELU", make.input(6, 4, 8))
    same = (1, 6, 4, 8)
    ints, add = make.integers, make.add_op
    if kind in ("MAXIMUM", "MINIMUM", "SUB", "SQUARED_DIFFERENCE"):
        results = add(kind, (x, make.constant(8)), same)
    elif kind in ("ABS", "ELU", "L2_NORMALIZATION", "LOG_SOFTMAX", "TANH", "RSQRT"):
        results = add(kind, (x,), same)
    else:
        results = {
            "BATCH_TO_SPACE_ND": lambda: add(
                kind, (_batched(make, x), ints([2, 2]), ints([[1, 1], [0, 2]])), (1, 6, 4, 8)
            ),
            "ARG_MAX": lambda: _index(make, kind, x),
            "ARG_MIN": lambda: _index(make, kind, x),
            "BROADCAST_TO": lambda: add(kind, (make.flatten(x), ints([1, 3, 192])), (1, 3, 192)),
            "GATHER": lambda: add(kind, (x, ints([3, 1])), (1, 6, 4, 2), axis=3),
            "REDUCE_MAX": lambda: add(kind, (x, ints([1, 2])), (1, 8)),
            "REDUCE_MIN": lambda: add(kind, (x, ints([3])), (1, 6, 4, 1), keepDims=True),
            "REVERSE_V2": lambda: add(kind, (x, ints([1])), same),
            "SUM": lambda: add(kind, (x, ints([1, 2])), (1, 8)),
            "TILE": lambda: add(kind, (x, ints([1, 2, 1, 1])), (1, 12, 4, 8)),
            "DEPTH_TO_SPACE": lambda: add(kind, (x,), (1, 12, 8, 2), blockSize=2),
            "EXPAND_DIMS": lambda: add(kind, (make.flatten(x), ints([1])), (1, 1, 192)),
            "LEAKY_RELU": lambda: add(kind, (x,), same, alpha=0.3),
            "MIRROR_PAD": lambda: add(kind, (x, ints([[0, 0], [2, 1], [3, 0], [0, 0]])), (1, 9, 7, 8), mode=0),
            "PACK": lambda: _packed(make, make.flatten(x)),
            "PADV2": lambda: add(
                kind, (x, ints([[0, 0], [2, 1], [3, 0], [0, 0]]), _like(make, make.constant(1), x)), (1, 9, 7, 8)
            ),
            "PRELU": lambda: add(kind, (x, make.constant(1, 1, 8)), same),
            "RESIZE_BILINEAR": lambda: add(kind, (x, ints([9, 8])), (1, 9, 8, 8), halfPixelCenters=True),
            "RESIZE_NEAREST_NEIGHBOR": lambda: add(kind, (x, ints([12, 8])), (1, 12, 8, 8)),
            "SLICE": lambda: add(kind, (x, ints([0, 1, 2, 3]), ints([1, -1, 2, 4])), (1, 5, 2, 4)),
            "SPACE_TO_BATCH_ND": lambda: [_batched(make, x)],
            "SPACE_TO_DEPTH": lambda: add(kind, (x,), (1, 3, 2, 32), blockSize=2),
            "SPLIT": lambda: add(kind, (ints([3]), x), (1, 6, 4, 4), (1, 6, 4, 4), numSplits=2),
            "SPLIT_V": lambda: add(kind, (x, ints([1, 5]), ints([-3])), (1, 1, 4, 8), (1, 5, 4, 8), numSplits=2),
            "SQUEEZE": lambda: add(kind, (x,), (6, 4, 8), squeezeDims=[0]),
            "STRIDED_SLICE": lambda: add(
                kind,
                (x, ints([0, 1, -1, 2]), ints([1, 6, -5, 3]), ints([1, 2, -1, 1])),
                (1, 3, 4),
                beginMask=1,
                shrinkAxisMask=8,
            ),
            "TRANSPOSE": lambda: add(kind, (x, ints([0, 3, 1, 2])), (1, 8, 6, 4)),
            "UNPACK": lambda: add(kind, (x,), *[(1, 6, 8)] * 4, axis=2, num=4),
        }[kind]()
    if kind in ("ARG_MAX", "ARG_MIN"):
        return make.content(*results)
    ends = [make.add_op("MAXIMUM", (result, result), make.tensors[result].shape)[0] for result in results]
    return make.content(*ends)


def _batched(make: PlainBuilder, x: int) -> int:
    operands = x, make.integers([2, 2]), make.integers([[1, 1], [0, 2]])
    return make.add_op("SPACE_TO_BATCH_ND", operands, (4, 4, 3, 8))[0]


def _index(make: PlainBuilder, kind: str, x: int) -> list[int]:
    (result,) = make.add_op(kind, (x, make.integers([3])), (1, 6, 4))
    make.tensors[result] = replace(make.tensors[result], dtype="int32", quantisation=None)
    return [result]


def _packed(make: PlainBuilder, x: int) -> list[int]:
    return make.add_op("PACK", (x, x, make.constant(1, 192)), (1, 3, 192), axis=-2, valuesCount=3)


def _like(make: PlainBuilder, index: int, x: int) -> int:
    make.tensors[index] = replace(make.tensors[index], quantisation=make.tensors[x].quantisation)
    return index
