"""Operators that leave nothing to compute on a device: what follows from constants and shapes alone, and variables.

folded        SHAPE of a tensor, and whatever is made of constants only (converters write such chains to find the batch
              of a RESHAPE), become constants
with_states   VAR_HANDLE names a variable, READ_VARIABLE and ASSIGN_VARIABLE use it: here each variable is one state,
              with the first values that a subgraph behind CALL_ONCE gives it; else the zero of its grid

with_padding  a SPACE_TO_BATCH_ND that pads becomes a PAD and one that does not: the runtime fills in whatever its
              memory happens to hold, which is nothing that a device could repeat

Reading a variable copies the state into a tensor. Assigning copies a tensor into the state; the result of the operator
is that same tensor under another name, which costs nothing and which nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_op
from stages.graph.checks.op_check import check_op
from stages.graph.checks.real_shapes import real_shapes
from stages.graph.graph import ConcatOptions, Graph, NoOptions, Op, PlainOptions, Tensor

WITHOUT_RESULT = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE"})
_MOST_FOLDED = 1 << 16  # elements: a FILL of a few bytes can ask for gigabytes


@dataclass(frozen=True)
class FoldedRule:
    """How an operator that is folded stands in a file."""

    table: str
    fields: tuple[str, ...] = ()
    may_lack_table: bool = True


FOLDED_RULES = {
    "SHAPE": FoldedRule("ShapeOptions"),
    "RANK": FoldedRule("RankOptions"),
    "FILL": FoldedRule("FillOptions"),
    "RANGE": FoldedRule("RangeOptions"),
    "CAST": FoldedRule("CastOptions"),
    "FLOOR_DIV": FoldedRule("FloorDivOptions"),
    "FLOOR_MOD": FoldedRule("FloorModOptions"),
    "REDUCE_PROD": FoldedRule("ReducerOptions", ("KeepDims",), False),
    "VAR_HANDLE": FoldedRule("VarHandleOptions", ("Container", "SharedName"), False),
    "READ_VARIABLE": FoldedRule("ReadVariableOptions"),
    "ASSIGN_VARIABLE": FoldedRule("AssignVariableOptions"),
    "CALL_ONCE": FoldedRule("CallOnceOptions", ("InitSubgraphIndex",), False),
}


def folded(graph: Graph, open_shapes: frozenset[int] = frozenset()) -> Graph:
    """The graph without operators whose results are known, which are constants then; and with shapes as they are."""
    tensors, kept = list(graph.tensors), []
    for op in graph.ops:
        if open_shapes.intersection(op.outputs):
            shapes = real_shapes(replace(graph, tensors=tuple(tensors)), op) or []
            for index, shape in zip(op.outputs, shapes, strict=False):
                tensors[index] = replace(tensors[index], shape=shape)
        known = _known(op, tensors) if len(op.outputs) == 1 and op.outputs[0] not in graph.outputs else None
        if known is None:
            kept.append(op)
            continue
        result = tensors[op.outputs[0]]
        if known.size > _MOST_FOLDED:
            raise StageError(f"{op.title}: computes {known.size} constants, needed at most {_MOST_FOLDED}")
        tensors[op.outputs[0]] = replace(result, data=known.astype(result.dtype), shape=known.shape)
    return replace(graph, tensors=tuple(tensors), ops=tuple(kept))


def _known(op: Op, tensors: Sequence[Tensor]) -> np.ndarray | None:
    operands = [tensors[index] for index in op.inputs if index >= 0]
    if not operands:
        return None
    if op.kind == "SHAPE":
        return np.array(operands[0].shape)
    if op.kind == "RANK":
        return np.array(len(operands[0].shape))
    fold, is_int8 = _FOLDS.get(op.kind), tensors[op.outputs[0]].dtype == "int8"
    values = [tensor.data for tensor in operands if tensor.data is not None and not tensor.is_state]
    if len(values) != len(operands) or not values:
        return None
    if is_int8 and op.kind not in _BYTES_ONLY:
        return _computed(op, tensors)
    if fold is None:
        return None
    if op.kind not in _BYTES_ONLY and any(tensor.dtype not in ("int32", "int64", "bool") for tensor in operands):
        return None
    if op.kind == "FILL" and values[0].prod(dtype=np.float64) > _MOST_FOLDED:
        raise StageError(f"{op.title}: of shape {values[0].tolist()}, needed at most {_MOST_FOLDED} elements")
    if op.kind == "RANGE" and abs(int(values[1]) - int(values[0])) > _MOST_FOLDED:
        raise StageError(f"{op.title}: longer than {_MOST_FOLDED}, needed a shorter list")
    try:
        return np.asarray(fold(op, *values))
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise StageError(f"{op.title}: constants that do not fit together ({error}), needed a whole file") from error


def _computed(op: Op, tensors: Sequence[Tensor]) -> np.ndarray | None:
    """What an int8 operator makes of constants, as the runtime would."""
    if tensors[op.outputs[0]].elements > _MOST_FOLDED or any(tensors[i].data is None for i in op.inputs if i >= 0):
        return None
    alone = Graph(tuple(tensors), (op,), (), op.outputs)
    checked = list(tensors)
    checked[op.inputs[0]] = replace(checked[op.inputs[0]], data=None)  # the check wants something to be computed from
    try:
        check_op(replace(alone, tensors=tuple(checked)), op)
        found = run_op(alone, op, *(tensors[i].data if i >= 0 else None for i in op.inputs))
        return found.reshape(tensors[op.outputs[0]].shape)
    except (StageError, ValueError, KeyError, AssertionError, IndexError):
        return None  # the check of the graph has a sentence for it


def _numbers(op: Op) -> tuple[int, ...]:
    assert isinstance(op.options, PlainOptions)
    return tuple(map(int, op.options.values))


def strided(op: Op, x: np.ndarray, begin: np.ndarray, end: np.ndarray, stride: np.ndarray) -> np.ndarray:
    """STRIDED_SLICE without ellipsis and new axes."""
    begin_mask, end_mask, shrink_mask, *others = _numbers(op)
    if any(others):
        raise ValueError("an ellipsis or a new axis in a slice")
    cuts: list[slice | int] = []
    for axis, (first, last, step) in enumerate(zip(begin.tolist(), end.tolist(), stride.tolist(), strict=True)):
        if shrink_mask >> axis & 1:
            cuts.append(first)
        else:
            cuts.append(slice(None if begin_mask >> axis & 1 else first, None if end_mask >> axis & 1 else last, step))
    return x[tuple(cuts)]


def _packed(op: Op, *parts: np.ndarray) -> np.ndarray:
    return np.stack(parts, axis=_numbers(op)[0])


def _joined(op: Op, *parts: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, ConcatOptions)
    return np.concatenate(parts, axis=op.options.axis)


def _sliced(op: Op, x: np.ndarray, begin: np.ndarray, size: np.ndarray) -> np.ndarray:
    pairs = zip(begin.tolist(), size.tolist(), strict=True)
    return x[tuple(slice(first, None if count < 0 else first + count) for first, count in pairs)]


def _squeezed(op: Op, x: np.ndarray) -> np.ndarray:
    return np.squeeze(x)


_FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "STRIDED_SLICE": strided,
    "SLICE": _sliced,
    "PACK": _packed,
    "CONCATENATION": _joined,
    "RESHAPE": lambda op, x, shape: x.reshape(shape.tolist()),
    "EXPAND_DIMS": lambda op, x, axis: np.expand_dims(x, int(axis.reshape(-1)[0])),
    "GATHER": lambda op, x, indices: np.take(x, indices, axis=_numbers(op)[0]),
    "TRANSPOSE": lambda op, x, axes: x.transpose(axes.tolist()),
    "FILL": lambda op, shape, value: np.full(shape.tolist(), value.reshape(-1)[0]),
    "RANGE": lambda op, start, end, step: np.arange(int(start), int(end), int(step)),
    "CAST": lambda op, x: x,
    "ADD": lambda op, a, b: a + b,
    "SUB": lambda op, a, b: a - b,
    "MUL": lambda op, a, b: a * b,
    "FLOOR_DIV": lambda op, a, b: a // b,
    "FLOOR_MOD": lambda op, a, b: a % b,
    "MAXIMUM": lambda op, a, b: np.maximum(a, b),
    "MINIMUM": lambda op, a, b: np.minimum(a, b),
    "REDUCE_PROD": lambda op, x, axes: np.prod(
        x, axis=tuple(axes.reshape(-1).tolist()), keepdims=bool(_numbers(op)[0])
    ),
}
# These move bytes, whatever they mean.
_BYTES_ONLY = frozenset({"STRIDED_SLICE", "SLICE", "PACK", "CONCATENATION", "RESHAPE", "EXPAND_DIMS", "GATHER"}) | {
    *("TRANSPOSE", "FILL")
}


def with_states(graph: Graph, first: Sequence[Graph]) -> Graph:
    """Variables as states; `first` are the subgraphs that run once, before everything else."""
    handles = _handles(graph)
    if not handles and not any(op.kind in WITHOUT_RESULT for op in graph.ops):
        return graph
    given = {name: value for each in first for name, value in _given(each).items()}
    tensors, states, ops = list(graph.tensors), {}, []
    for op in graph.ops:
        if op.kind in ("VAR_HANDLE", "CALL_ONCE"):
            continue
        if op.kind not in ("READ_VARIABLE", "ASSIGN_VARIABLE"):
            ops.append(op)
            continue
        name = handles.get(op.inputs[0]) if op.inputs else None
        if name is None or len(op.inputs) != (1 if op.kind == "READ_VARIABLE" else 2):
            raise StageError(f"{op.title}: operands {op.inputs}, needed a variable named by a VAR_HANDLE")
        like = tensors[op.outputs[0] if op.kind == "READ_VARIABLE" else op.inputs[1]]
        if name not in states:
            states[name] = len(tensors)
            tensors.append(_state(op, like, given.get(name)))
        state = tensors[states[name]]
        if (like.shape, like.dtype) != (state.shape, state.dtype):
            found = f"{like.dtype} of shape {like.shape}"
            raise StageError(f"{op.title}: {found}, needed {state.dtype} of shape {state.shape} as everywhere")
        if op.kind == "READ_VARIABLE":
            ops.append(replace(op, inputs=(states[name],)))
            continue
        tensors.append(replace(like, name=f"{state.name} (new)", data=None))
        value = op.inputs[1]
        ops.append(Op("ASSIGN_VARIABLE", tensors[-1].name, (value, states[name]), (len(tensors) - 1,), PlainOptions()))
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def with_padding(graph: Graph) -> Graph:
    """The very same object where there is nothing to do."""
    tensors, ops = list(graph.tensors), []
    for op in graph.ops:
        if not _pads_batches(graph, op):
            ops.append(op)
            continue
        pads = graph.tensors[op.inputs[2]].data
        assert pads is not None
        source = graph.tensors[op.inputs[0]]
        amounts = np.concatenate([[[0, 0]], pads.reshape(-1, 2), [[0, 0]]]).astype(np.int32)
        shape = tuple(side + int(sum(pair)) for side, pair in zip(source.shape, amounts, strict=True))
        tensors.append(Tensor(f"paddings of {op.name}", amounts.shape, "int32", data=amounts))
        tensors.append(replace(source, name=f"{op.name} padded", shape=shape))
        tensors.append(replace(graph.tensors[op.inputs[2]], data=np.zeros_like(pads)))
        amounts_at, padded, none = range(len(tensors) - 3, len(tensors))
        ops.append(Op("PAD", tensors[padded].name, (op.inputs[0], amounts_at), (padded,), NoOptions()))
        ops.append(replace(op, inputs=(padded, op.inputs[1], none)))
    return graph if len(ops) == len(graph.ops) else replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def _pads_batches(graph: Graph, op: Op) -> bool:
    """Only where everything is as it should be; what is not meets the check of the graph."""
    if op.kind != "SPACE_TO_BATCH_ND" or len(op.inputs) != 3 or min(op.inputs) < 0:
        return False
    pads, source = graph.tensors[op.inputs[2]], graph.tensors[op.inputs[0]]
    fits = pads.data is not None and pads.shape == (len(source.shape) - 2, 2) and pads.dtype == "int32"
    return fits and pads.data is not None and pads.data.min() >= 0 and bool(pads.data.any())


def _handles(graph: Graph) -> dict[int, tuple[float, ...]]:
    """Which variable a tensor stands for, by the numbers of its name."""
    found = {}
    for op in graph.ops:
        if op.kind == "VAR_HANDLE":
            assert isinstance(op.options, PlainOptions)
            found[op.outputs[0]] = op.options.values
    return found


def _given(graph: Graph) -> dict[tuple[float, ...], np.ndarray]:
    handles, found = _handles(graph), {}
    for op in graph.ops:
        if op.kind == "VAR_HANDLE":
            continue
        data = graph.tensors[op.inputs[1]].data if op.kind == "ASSIGN_VARIABLE" and len(op.inputs) == 2 else None
        if data is None or op.inputs[0] not in handles:
            raise StageError(f"{op.title}: in the subgraph of CALL_ONCE, needed variables set to constants only")
        found[handles[op.inputs[0]]] = data
    return found


def _state(op: Op, like: Tensor, data: np.ndarray | None) -> Tensor:
    if like.dtype not in ("int8", "int16") or (
        data is not None and (data.shape, str(data.dtype)) != (like.shape, like.dtype)
    ):
        raise StageError(f"{op.title}: a variable of {like.dtype} {like.shape}, needed int8, and first values like it")
    grid = like.quantisation
    start = np.full(like.shape, grid.zero_point[0] if grid else 0, like.dtype) if data is None else data
    return replace(like, name=f"state of {like.name}", data=start, is_state=True)
