"""Ops that need no class of options: each kind's rule says which numbers of a file it needs and which shapes follow.

Kernels believe the shapes, axes and counts of a file; so these are checked here, as op_check does it for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import StageError
from stages.graph.checks.quantisation_check import check_int16, check_one_scale
from stages.graph.checks.recurrent_check import check_recurrent
from stages.graph.graph import FLOAT_KINDS, Graph, Op, PlainOptions

Shape = tuple[int, ...]
RECURRENT = frozenset({"SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"})
STATEFUL = frozenset({"READ_VARIABLE", "ASSIGN_VARIABLE"})
_MOST_AXES = 5  # of the runtime's TRANSPOSE; a channel shuffle has as many
_MOST_BROADCAST_AXES = 4
_MOST_VALUES = 16


@dataclass(frozen=True)
class _Call:
    """An op's operands as its rule sees them."""

    graph: Graph
    op: Op
    options: tuple[int, ...]
    results: list[Shape]

    def shape(self, operand: int = 0) -> Shape:
        return self.graph.tensors[self.op.inputs[operand]].shape

    def values(self, operand: int) -> list[int]:
        """Axes, sizes or paddings: constants, or the shape would not be known before the run."""
        tensor = self.graph.tensors[self.op.inputs[operand]]
        if tensor.data is None or tensor.dtype not in ("int32", "int64") or tensor.elements > _MOST_VALUES:
            raise StageError(f"{self.op.title}: tensor {tensor.name}, needed constants, int32, {_MOST_VALUES} at most")
        return [int(value) for value in tensor.data.flat]

    def pairs(self, operand: int) -> Iterator[tuple[int, int]]:
        values = self.values(operand)
        return zip(values[::2], values[1::2], strict=True)


def _same(call: _Call) -> list[Shape]:
    return [call.shape()]


def _broadcast(call: _Call) -> list[Shape]:
    _require(max(len(call.shape()), len(call.shape(1))) <= _MOST_BROADCAST_AXES)
    return [np.broadcast_shapes(call.shape(), call.shape(1))]


def _transposed(call: _Call) -> list[Shape]:
    shape, axes = call.shape(), call.values(1)
    _require(sorted(axes) == list(range(len(shape))))
    return [tuple(shape[axis] for axis in axes)]


def _with_other_ones(call: _Call) -> list[Shape]:
    """SQUEEZE and EXPAND_DIMS: axes of length 1 come or go."""
    _require(len(call.options) == 0 or call.options[0] <= len(call.shape()))
    sides = [[side for side in shape if side != 1] for shape in (call.shape(), call.results[0])]
    _require(sides[0] == sides[1])
    return [call.results[0]]


def _sliced(call: _Call) -> list[Shape]:
    shape, starts, sizes = call.shape(), call.values(1), call.values(2)
    found = [side - start if size == -1 else size for side, start, size in zip(shape, starts, sizes, strict=True)]
    _require(all(0 <= start <= side - size for side, start, size in zip(shape, starts, found, strict=True)))
    return [tuple(found)]


def _strided(call: _Call) -> list[Shape]:
    begin_mask, end_mask, shrink_mask, *others = call.options
    _require(not any(others))
    result = []
    steps = zip(call.shape(), call.values(1), call.values(2), call.values(3), strict=True)
    for axis, (side, begin, end, stride) in enumerate(steps):
        if shrink_mask >> axis & 1:
            _require(-side <= begin < side and stride == 1)
            continue
        bounds = slice(None if begin_mask >> axis & 1 else begin, None if end_mask >> axis & 1 else end, stride)
        result.append(len(range(*bounds.indices(side))))
    return [tuple(result)]


def _split(call: _Call) -> list[Shape]:
    shape, count = call.shape(1), len(call.results)
    axis = _axis(call.values(0), shape)
    _require(call.options == (count,) and shape[axis] % count == 0)
    return [_replaced(shape, axis, shape[axis] // count)] * count


def _split_by_sizes(call: _Call) -> list[Shape]:
    shape, sizes = call.shape(), call.values(1)
    axis = _axis(call.values(2), shape)
    _require(call.options == (len(sizes),) and sum(sizes) == shape[axis])
    return [_replaced(shape, axis, size) for size in sizes]


def _packed(call: _Call) -> list[Shape]:
    shapes = [call.shape(number) for number in range(len(call.op.inputs))]
    axis = _axis(call.options[:1], (*shapes[0], 1))
    _require(call.options[1] == len(shapes) and len(set(shapes)) == 1)
    return [(*shapes[0][:axis], len(shapes), *shapes[0][axis:])]


def _unpacked(call: _Call) -> list[Shape]:
    shape, count = call.shape(), len(call.results)
    axis = _axis(call.options[:1], shape)
    _require(call.options[1] == shape[axis] == count)
    return [(*shape[:axis], *shape[axis + 1 :])] * count


def _resized(call: _Call) -> list[Shape]:
    batch, _, _, channels = call.shape()
    height, width = call.values(1)
    return [(batch, height, width, channels)]


def _padded(call: _Call) -> list[Shape]:
    paddings = list(call.pairs(1))
    _require(all(min(pair) >= 0 for pair in paddings))
    return [tuple(side + sum(pair) for side, pair in zip(call.shape(), paddings, strict=True))]


def _mirrored(call: _Call) -> list[Shape]:
    mode = call.options[0]  # 0: the edge itself is not repeated
    _require(mode in (0, 1))
    _require(all(max(pair) < side + mode for side, pair in zip(call.shape(), call.pairs(1), strict=True)))
    return _padded(call)


def _depth_to_space(call: _Call) -> list[Shape]:
    (batch, height, width, channels), (block,) = call.shape(), call.options
    _require(block > 0 and channels % block**2 == 0)
    return [(batch, height * block, width * block, channels // block**2)]


def _space_to_depth(call: _Call) -> list[Shape]:
    (batch, height, width, channels), (block,) = call.shape(), call.options
    _require(block > 0 and height % block == 0 and width % block == 0)
    return [(batch, height // block, width // block, channels * block**2)]


def _space_to_batch(call: _Call) -> list[Shape]:
    return [_batched(call.shape(), call)]


def _batch_to_space(call: _Call) -> list[Shape]:
    """The inverse: what comes out has to give what went in."""
    _require(_batched(call.results[0], call) == call.shape())
    return [call.results[0]]


def _batched(shape: Shape, call: _Call) -> Shape:
    blocks, paddings = call.values(1), list(call.pairs(2))
    _require(len(shape) in (3, 4) and min(blocks) > 0 and all(min(pair) >= 0 for pair in paddings))
    wide = [side + sum(pair) for side, pair in zip(shape[1:-1], paddings, strict=True)]
    _require(all(side % block == 0 for side, block in zip(wide, blocks, strict=True)))
    inner = (side // block for side, block in zip(wide, blocks, strict=True))
    return (shape[0] * math.prod(blocks), *inner, shape[-1])


def _gathered(call: _Call) -> list[Shape]:
    shape, (axis, batches) = call.shape(), call.options
    indices = call.graph.tensors[call.op.inputs[1]]
    _require(indices.data is not None and indices.dtype == "int32" and batches == 0)
    axis = _axis([axis], shape)
    _require(all(0 <= int(value) < shape[axis] for value in indices.data.flat))
    return [(*shape[:axis], *indices.shape, *shape[axis + 1 :])]


def _tiled(call: _Call) -> list[Shape]:
    counts = call.values(1)
    _require(min(counts) > 0)
    return [tuple(side * count for side, count in zip(call.shape(), counts, strict=True))]


def _spread(call: _Call) -> list[Shape]:
    target = tuple(call.values(1))
    _require(min(target, default=1) > 0 and np.broadcast_shapes(call.shape(), target) == target)
    return [target]


def _reversed(call: _Call) -> list[Shape]:
    for axis in call.values(1):
        _axis([axis], call.shape())
    return [call.shape()]


def _reduced(call: _Call) -> list[Shape]:
    """SUM, REDUCE_MAX, REDUCE_MIN."""
    shape = call.shape()
    axes = {_axis([axis], shape) for axis in call.values(1)}
    kept = tuple(1 if axis in axes else side for axis, side in enumerate(shape))
    removed = tuple(side for axis, side in enumerate(shape) if axis not in axes)
    return [kept if call.options[0] else removed]


def _multiplied(call: _Call) -> list[Shape]:
    first, second = call.shape(), call.shape(1)
    _require(2 <= len(first) <= _MOST_AXES and 2 <= len(second) <= _MOST_AXES)
    (rows, depth), (other, columns) = (
        shape[-2:][::-1] if turned else shape[-2:] for shape, turned in zip((first, second), call.options, strict=True)
    )
    _require(depth == other)
    return [(*np.broadcast_shapes(first[:-2], second[:-2]), rows, columns)]


def _best_index(call: _Call) -> list[Shape]:
    axis = _axis(call.values(1), call.shape())
    return [(*call.shape()[:axis], *call.shape()[axis + 1 :])]


def _axis(values: Sequence[int], shape: Shape) -> int:
    _require(len(values) == 1 and -len(shape) <= values[0] < len(shape))
    return values[0] % len(shape)


def _replaced(shape: Shape, axis: int, side: int) -> Shape:
    return (*shape[:axis], side, *shape[axis + 1 :])


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError


@dataclass(frozen=True)
class ShapeRule:
    """How an op of this kind stands in a file."""

    table: str  # of its options
    shapes: Callable[[_Call], list[Shape]]  # of the results; ValueError where the operands do not fit
    operands: int | None = 1  # None: any number
    fields: tuple[str, ...] = ()  # the numbers of the table that the rule needs
    may_lack_table: bool = True
    result: str = "int8"  # its type


_STRIDES = ("BeginMask", "EndMask", "ShrinkAxisMask", "EllipsisMask", "NewAxisMask", "Offset")
_LSTM = ("FusedActivationFunction", "CellClip", "ProjClip", "TimeMajor")
_CORNERS = ("AlignCorners", "HalfPixelCenters")
SHAPE_RULES: dict[str, ShapeRule] = {
    "ABS": ShapeRule("AbsOptions", _same),
    "ARG_MAX": ShapeRule("ArgMaxOptions", _best_index, 2, result="int32"),
    "ARG_MIN": ShapeRule("ArgMinOptions", _best_index, 2, result="int32"),
    "BATCH_TO_SPACE_ND": ShapeRule("BatchToSpaceNDOptions", _batch_to_space, 3),
    "BATCH_MATMUL": ShapeRule("BatchMatMulOptions", _multiplied, 2, ("AdjX", "AdjY"), False),
    "BROADCAST_TO": ShapeRule("BroadcastToOptions", _spread, 2),
    "DEPTH_TO_SPACE": ShapeRule("DepthToSpaceOptions", _depth_to_space, 1, ("BlockSize",), False),
    "ELU": ShapeRule("NONE", _same),
    "EXPAND_DIMS": ShapeRule("ExpandDimsOptions", _with_other_ones, 2),
    "GATHER": ShapeRule("GatherOptions", _gathered, 2, ("Axis", "BatchDims"), False),
    "L2_NORMALIZATION": ShapeRule("L2NormOptions", _same, may_lack_table=False),
    "LEAKY_RELU": ShapeRule("LeakyReluOptions", _same, 1, ("Alpha",), False),
    "LOG_SOFTMAX": ShapeRule("LogSoftmaxOptions", _same),
    "MAXIMUM": ShapeRule("MaximumMinimumOptions", _broadcast, 2),
    "MINIMUM": ShapeRule("MaximumMinimumOptions", _broadcast, 2),
    "MIRROR_PAD": ShapeRule("MirrorPadOptions", _mirrored, 2, ("Mode",), False),
    "PACK": ShapeRule("PackOptions", _packed, None, ("Axis", "ValuesCount"), False),
    "PADV2": ShapeRule("PadV2Options", _padded, 3),
    "PRELU": ShapeRule("NONE", _broadcast, 2),
    "REDUCE_MAX": ShapeRule("ReducerOptions", _reduced, 2, ("KeepDims",), False),
    "REDUCE_MIN": ShapeRule("ReducerOptions", _reduced, 2, ("KeepDims",), False),
    "RESIZE_BILINEAR": ShapeRule("ResizeBilinearOptions", _resized, 2, _CORNERS, False),
    "RESIZE_NEAREST_NEIGHBOR": ShapeRule("ResizeNearestNeighborOptions", _resized, 2, _CORNERS, False),
    "REVERSE_V2": ShapeRule("ReverseV2Options", _reversed, 2),
    "RSQRT": ShapeRule("NONE", _same),
    "SLICE": ShapeRule("SliceOptions", _sliced, 3),
    "SPACE_TO_BATCH_ND": ShapeRule("SpaceToBatchNDOptions", _space_to_batch, 3),
    "SPACE_TO_DEPTH": ShapeRule("SpaceToDepthOptions", _space_to_depth, 1, ("BlockSize",), False),
    "SPLIT": ShapeRule("SplitOptions", _split, 2, ("NumSplits",), False),
    "SPLIT_V": ShapeRule("SplitVOptions", _split_by_sizes, 3, ("NumSplits",), False),
    "SQUARED_DIFFERENCE": ShapeRule("SquaredDifferenceOptions", _broadcast, 2),
    "SQUEEZE": ShapeRule("SqueezeOptions", _with_other_ones, 1, ("SqueezeDimsLength",), False),
    "STRIDED_SLICE": ShapeRule("StridedSliceOptions", _strided, 4, _STRIDES, False),
    "SVDF": ShapeRule("SVDFOptions", _same, 5, ("Rank", "FusedActivationFunction"), False),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": ShapeRule("UnidirectionalSequenceLSTMOptions", _same, 24, _LSTM, False),
    "SUM": ShapeRule("ReducerOptions", _reduced, 2, ("KeepDims",), False),
    "TANH": ShapeRule("NONE", _same),
    "TILE": ShapeRule("TileOptions", _tiled, 2),
    "TRANSPOSE": ShapeRule("TransposeOptions", _transposed, 2),
    "UNPACK": ShapeRule("UnpackOptions", _unpacked, 1, ("Axis", "Num"), False),
    **dict.fromkeys(FLOAT_KINDS, ShapeRule("NONE", _same)),
}


def shapes_by_rule(graph: Graph, op: Op, rule: ShapeRule) -> list[Shape]:
    """What the operands prescribe; ValueError where they do not fit."""
    assert isinstance(op.options, PlainOptions)
    results = [graph.tensors[index].shape for index in op.outputs]
    return rule.shapes(_Call(graph, op, tuple(map(int, op.options.values)), results))


def check_shapes(graph: Graph, op: Op) -> None:
    """Raise StageError unless operands, options and results of an op fit together."""
    assert isinstance(op.options, PlainOptions)
    if op.kind in STATEFUL:  # made by the reader, which has checked them
        check_one_scale(op, graph.tensors[op.outputs[0]])
        return
    if op.kind in RECURRENT:
        check_recurrent(graph, op)
        return
    if op.kind not in SHAPE_RULES:
        raise StageError(f"{op.title}: of computed values or of a variable, needed constants, which can be folded")
    title, known = op.title, SHAPE_RULES[op.kind]
    needed = "1 or more" if known.operands is None else str(known.operands)
    if min(op.inputs, default=-1) < 0 or len(op.inputs) != (known.operands or len(op.inputs)):
        raise StageError(f"{title}: inputs {op.inputs}, needed {needed}")
    if not any(True for _ in graph.activations_of(op)):
        raise StageError(f"{title}: all operands are constants, needed an activation")
    types: set[str] = set()
    for index in (*op.inputs, *op.outputs):
        if index in op.outputs and known.result != "int8":
            if graph.tensors[index].dtype != known.result:
                raise StageError(f"{title}: output is {graph.tensors[index].dtype}, needed {known.result}")
        elif graph.tensors[index].data is None or graph.tensors[index].dtype in ("int8", "int16"):
            check_one_scale(op, graph.tensors[index])
            types.add(graph.tensors[index].dtype)
        if len(graph.tensors[index].shape) > _MOST_AXES:
            raise StageError(f"{title}: {len(graph.tensors[index].shape)} axes, needed at most {_MOST_AXES}")
    if len(types) > 1:
        raise StageError(f"{title}: operands and results of {' and '.join(sorted(types))}, needed one type")
    if op.kind == "TANH" and types == {"int16"}:
        check_int16(graph, op)
    results = [graph.tensors[index].shape for index in op.outputs]
    try:
        expected = shapes_by_rule(graph, op, known)
    except ValueError as error:
        shapes = ", ".join(str(graph.tensors[index].shape) for index in op.inputs)
        raise StageError(f"{title}: operands of shapes {shapes}, or their values, do not fit together") from error
    if expected != results:
        raise StageError(f"{title}: outputs of shapes {results}, needed {expected}")
