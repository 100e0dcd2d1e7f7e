"""The shapes that operators really give, for files that leave them open.

Newer converters write a placeholder (1 along every unknown axis) into the shape of a tensor that they could not know,
and -1 into its signature. With a batch of 1 all of them follow from the operands.
"""

from __future__ import annotations

import math

from pipeline.errors import StageError
from stages.graph.checks.op_check import output_shape
from stages.graph.checks.shape_rules import SHAPE_RULES, Shape, shapes_by_rule
from stages.graph.graph import Graph, NoOptions, Op, PlainOptions


def real_shapes(graph: Graph, op: Op) -> list[Shape] | None:
    """Of the op's results; None where the operands leave them open, or do not fit (which is reported later)."""
    try:
        if op.kind == "RESHAPE":
            return [_reshaped(graph, op)]
        if op.kind == "EXPAND_DIMS":
            return [_expanded(graph, op)]
        if op.kind == "SQUEEZE":
            return [_squeezed(graph, op)]
        if op.kind == "BATCH_TO_SPACE_ND":
            return [_from_batches(graph, op)]
        if op.kind == "TRANSPOSE_CONV":  # of a picture whose height and width the converter did not know
            return [tuple(_values(graph, op, len(op.inputs) - 1))]
        if isinstance(op.options, PlainOptions):
            rule = SHAPE_RULES.get(op.kind)
            return None if rule is None else shapes_by_rule(graph, op, rule)
        if op.kind in ("QUANTIZE", "DEQUANTIZE") or not isinstance(op.options, NoOptions) or op.kind in ("MEAN", "PAD"):
            found = output_shape(graph, op, graph.tensors[op.inputs[0]])
            return None if found is None else [found]
        return [graph.tensors[op.inputs[0]].shape]
    except (StageError, ValueError, IndexError, TypeError, ZeroDivisionError, AssertionError):
        return None


def _values(graph: Graph, op: Op, operand: int) -> list[int]:
    data = graph.tensors[op.inputs[operand]].data
    if data is None:
        raise ValueError
    return [int(value) for value in data.flat]


def _reshaped(graph: Graph, op: Op) -> Shape:
    target, elements = _values(graph, op, 1), graph.tensors[op.inputs[0]].elements
    known = math.prod(side for side in target if side != -1)
    found = tuple(elements // known if side == -1 else side for side in target)
    if math.prod(found) != elements:
        raise ValueError
    return found


def _expanded(graph: Graph, op: Op) -> Shape:
    shape, (axis,) = graph.tensors[op.inputs[0]].shape, _values(graph, op, 1)
    place = axis % (len(shape) + 1)
    return (*shape[:place], 1, *shape[place:])


def _squeezed(graph: Graph, op: Op) -> Shape:
    """Of which axes is not kept here, only of how many: the batch is the last to go."""
    assert isinstance(op.options, PlainOptions)
    shape = graph.tensors[op.inputs[0]].shape
    ones = sorted((axis for axis, side in enumerate(shape) if side == 1), key=lambda axis: (axis == 0, axis))
    gone = ones[: int(op.options.values[0])] if op.options.values and op.options.values[0] else ones
    return tuple(side for axis, side in enumerate(shape) if axis not in gone)


def _from_batches(graph: Graph, op: Op) -> Shape:
    shape, blocks, crops = graph.tensors[op.inputs[0]].shape, _values(graph, op, 1), _values(graph, op, 2)
    cut = [sum(crops[2 * n : 2 * n + 2]) for n in range(len(blocks))]
    inner = (side * block - less for side, block, less in zip(shape[1:-1], blocks, cut, strict=True))
    return (shape[0] // math.prod(blocks), *inner, shape[-1])
