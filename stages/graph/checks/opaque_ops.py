"""Ops that are planned but not computed here: order, arena and layout need their shapes, not their arithmetic.

`inspect` and `optimize` take them, nothing else does: there is no kernel of ours for them. Each is a pure function of
int8 activations and constants in TensorFlow Lite Micro, and its kernel asks for no scratch buffer. Kernels believe the
shapes, axes and counts of a file; so these are checked here as op_check does it for our own ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.errors import StageError
from stages.graph.checks.quantisation_check import check_one_scale
from stages.graph.graph import Graph, Op, OpaqueOptions

Shape = tuple[int, ...]
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
        if tensor.data is None or tensor.dtype != "int32" or tensor.elements > _MOST_VALUES:
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


def _axis(values: Sequence[int], shape: Shape) -> int:
    _require(len(values) == 1 and -len(shape) <= values[0] < len(shape))
    return values[0] % len(shape)


def _replaced(shape: Shape, axis: int, side: int) -> Shape:
    return (*shape[:axis], side, *shape[axis + 1 :])


def _require(fits: bool) -> None:
    if not fits:
        raise ValueError


@dataclass(frozen=True)
class OpaqueKind:
    """How an op of this kind stands in a file."""

    table: str  # of its options
    shapes: Callable[[_Call], list[Shape]]  # of the results; ValueError where the operands do not fit
    operands: int | None = 1  # None: any number
    fields: tuple[str, ...] = ()  # the numbers of the table that the rule needs
    may_lack_table: bool = True


_STRIDES = ("BeginMask", "EndMask", "ShrinkAxisMask", "EllipsisMask", "NewAxisMask", "Offset")
OPAQUE_KINDS: dict[str, OpaqueKind] = {
    "ABS": OpaqueKind("AbsOptions", _same),
    "BATCH_TO_SPACE_ND": OpaqueKind("BatchToSpaceNDOptions", _batch_to_space, 3),
    "DEPTH_TO_SPACE": OpaqueKind("DepthToSpaceOptions", _depth_to_space, 1, ("BlockSize",), False),
    "ELU": OpaqueKind("NONE", _same),
    "EXPAND_DIMS": OpaqueKind("ExpandDimsOptions", _with_other_ones, 2),
    "L2_NORMALIZATION": OpaqueKind("L2NormOptions", _same, may_lack_table=False),
    "LEAKY_RELU": OpaqueKind("LeakyReluOptions", _same, may_lack_table=False),
    "LOG_SOFTMAX": OpaqueKind("LogSoftmaxOptions", _same),
    "MAXIMUM": OpaqueKind("MaximumMinimumOptions", _broadcast, 2),
    "MINIMUM": OpaqueKind("MaximumMinimumOptions", _broadcast, 2),
    "MIRROR_PAD": OpaqueKind("MirrorPadOptions", _mirrored, 2, ("Mode",), False),
    "PACK": OpaqueKind("PackOptions", _packed, None, ("Axis", "ValuesCount"), False),
    "PADV2": OpaqueKind("PadV2Options", _padded, 3),
    "PRELU": OpaqueKind("NONE", _broadcast, 2),
    "RESIZE_BILINEAR": OpaqueKind("ResizeBilinearOptions", _resized, 2, may_lack_table=False),
    "RESIZE_NEAREST_NEIGHBOR": OpaqueKind("ResizeNearestNeighborOptions", _resized, 2, may_lack_table=False),
    "SLICE": OpaqueKind("SliceOptions", _sliced, 3),
    "SPACE_TO_BATCH_ND": OpaqueKind("SpaceToBatchNDOptions", _space_to_batch, 3),
    "SPACE_TO_DEPTH": OpaqueKind("SpaceToDepthOptions", _space_to_depth, 1, ("BlockSize",), False),
    "SPLIT": OpaqueKind("SplitOptions", _split, 2, ("NumSplits",), False),
    "SPLIT_V": OpaqueKind("SplitVOptions", _split_by_sizes, 3, ("NumSplits",), False),
    "SQUARED_DIFFERENCE": OpaqueKind("SquaredDifferenceOptions", _broadcast, 2),
    "SQUEEZE": OpaqueKind("SqueezeOptions", _with_other_ones, 1, ("SqueezeDimsLength",), False),
    "STRIDED_SLICE": OpaqueKind("StridedSliceOptions", _strided, 4, _STRIDES, False),
    "SUB": OpaqueKind("SubOptions", _broadcast, 2, may_lack_table=False),
    "TANH": OpaqueKind("NONE", _same),
    "TRANSPOSE": OpaqueKind("TransposeOptions", _transposed, 2),
    "UNPACK": OpaqueKind("UnpackOptions", _unpacked, 1, ("Axis", "Num"), False),
}


def check_opaque(graph: Graph, op: Op) -> None:
    """Raise StageError unless operands, options and results of an opaque op fit together."""
    assert isinstance(op.options, OpaqueOptions)
    title, known = op.title, OPAQUE_KINDS[op.kind]
    needed = "1 or more" if known.operands is None else str(known.operands)
    if min(op.inputs, default=-1) < 0 or len(op.inputs) != (known.operands or len(op.inputs)):
        raise StageError(f"{title}: inputs {op.inputs}, needed {needed}")
    if not any(True for _ in graph.activations_of(op)):
        raise StageError(f"{title}: all operands are constants, needed an activation")
    for index in (*op.inputs, *op.outputs):
        if graph.tensors[index].data is None or graph.tensors[index].dtype == "int8":
            check_one_scale(op, graph.tensors[index])
        if len(graph.tensors[index].shape) > _MOST_AXES:
            raise StageError(f"{title}: {len(graph.tensors[index].shape)} axes, needed at most {_MOST_AXES}")
    results = [graph.tensors[index].shape for index in op.outputs]
    try:
        expected = known.shapes(_Call(graph, op, op.options.values, results))
    except ValueError as error:
        shapes = ", ".join(str(graph.tensors[index].shape) for index in op.inputs)
        raise StageError(f"{title}: operands of shapes {shapes}, or their values, do not fit together") from error
    if expected != results:
        raise StageError(f"{title}: outputs of shapes {results}, needed {expected}")
