"""memory.json: what lies where in the arena, and when, for the ops in the order in which they stand.

Times are in ops; an op that writes over an operand, whole or in part, shares its column with it, half a step each.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import ArenaLayout


@dataclass(frozen=True)
class StoredTensor:
    """An activation, and the kind of the op that computes it ('input': none does)."""

    name: str
    shape: tuple[int, ...]
    kind: str
    start: float  # op
    end: float  # op, the first one without it
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class RunningOp:
    """An op, and how much of the arena is alive while it runs."""

    kind: str
    name: str
    live_bytes: int


@dataclass(frozen=True)
class MemoryRecord:
    """The contents of memory.json."""

    ops: tuple[RunningOp, ...]
    tensors: tuple[StoredTensor, ...]
    arena_bytes: int
    lower_bound_bytes: int
    layout_proven_optimal: bool


def memory_record(graph: Graph, layout: ArenaLayout) -> MemoryRecord:
    return MemoryRecord(
        ops=tuple(RunningOp(op.kind, op.name, live) for op, live in zip(graph.ops, layout.live_bytes, strict=True)),
        tensors=tuple(_stored_tensors(graph, layout)),
        arena_bytes=layout.arena_bytes,
        lower_bound_bytes=layout.lower_bound_bytes,
        layout_proven_optimal=layout.proven_optimal,
    )


def _stored_tensors(graph: Graph, layout: ArenaLayout) -> list[StoredTensor]:
    first = {index: 0.0 for index in graph.inputs}
    last = {index: 1.0 for index in graph.inputs}
    maker = {index: "input" for index in graph.inputs}
    for now, op in enumerate(graph.ops):
        operands = list(graph.activations_of(op))
        last.update(dict.fromkeys(operands, now + 1.0))
        for index in op.outputs:
            first[index], last[index], maker[index] = float(now), now + 1.0, op.kind
            for operand in operands:
                if _share_bytes(graph, layout, operand, index):
                    first[index] = last[operand] = now + 0.5
    last.update((index, float(len(graph.ops))) for index in graph.outputs if index in first)
    return [
        StoredTensor(
            name=graph.tensors[index].name,
            shape=graph.tensors[index].shape,
            kind=maker[index],
            start=start,
            end=last[index],
            offset=layout.offsets[index],
            size_bytes=graph.tensors[index].nbytes,
        )
        for index, start in first.items()
        if layout.offsets[index] >= 0
    ]


def _share_bytes(graph: Graph, layout: ArenaLayout, one: int, other: int) -> bool:
    """In place, the same under another shape, or an output over the dying front of its input."""
    (start, end), (from_, to) = (
        (layout.offsets[index], layout.offsets[index] + graph.tensors[index].nbytes) for index in (one, other)
    )
    return start >= 0 and from_ >= 0 and start < to and from_ < end
