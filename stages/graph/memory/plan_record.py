"""plan.json: the order of the ops, where every activation lies, and what the network needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import ArenaLayout
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.resources import resources


@dataclass(frozen=True)
class PlannedTensor:
    """An activation in plan.json."""

    index: int
    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class PlannedOp:
    """An op in plan.json."""

    kind: str
    name: str
    live_bytes: int  # of the arena, while it runs


@dataclass(frozen=True)
class PlanRecord:
    """The contents of plan.json."""

    order: tuple[int, ...]
    ops: tuple[PlannedOp, ...]
    tensors: tuple[PlannedTensor, ...]
    arena_bytes: int
    lower_bound_bytes: int
    order_proven_optimal: bool
    layout_proven_optimal: bool
    peak_bytes: int  # in the best order
    peak_bytes_stored: int  # in the order before
    peak_bytes_imprecise: int
    peak_bytes_overlap: int  # of firmware that writes outputs over dying inputs and fuses layers row by row
    size_bytes: int
    macs: int


def plan_record(graph: Graph, layout: ArenaLayout, order: Sequence[int], order_proven_optimal: bool) -> PlanRecord:
    """What plan.json says of a graph in the order in which it stands; `order` tells where each op stood before."""
    used = resources(graph)
    position = {number: place for place, number in enumerate(order)}
    stored_order = [position[number] for number in range(len(order))]
    return PlanRecord(
        order=tuple(order),
        ops=tuple(PlannedOp(op.kind, op.name, live) for op, live in zip(graph.ops, layout.live_bytes, strict=True)),
        tensors=tuple(
            PlannedTensor(index, graph.tensors[index].name, offset, graph.tensors[index].nbytes)
            for index, offset in enumerate(layout.offsets)
            if offset >= 0
        ),
        arena_bytes=layout.arena_bytes,
        lower_bound_bytes=layout.lower_bound_bytes,
        order_proven_optimal=order_proven_optimal,
        layout_proven_optimal=layout.proven_optimal,
        peak_bytes=used.peak_bytes,
        peak_bytes_stored=round(OrderProblem(graph).measure(stored_order).peak_bytes),
        peak_bytes_imprecise=used.peak_bytes_imprecise,
        peak_bytes_overlap=resources(graph, "overlap").peak_bytes,
        size_bytes=used.size_bytes,
        macs=used.macs,
    )
