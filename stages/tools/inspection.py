"""inspect: what a .tflite needs on a microcontroller, before anything is flashed.

Size, multiply-accumulates and memory (see `resources` for the conventions), with the ops as they are stored and in the
order that needs least, and where each activation lies then. Float edges are stripped first (see float_edges).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import StageError
from pipeline.stage import Answer
from stages.graph.checks.shape_rules import SHAPE_RULES
from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import ArenaLayout, arena_layout
from stages.graph.memory.op_order import OpOrder, OrderProblem
from stages.graph.memory.overlap import OverlapProblem
from stages.graph.memory.packable_order import packable_order
from stages.graph.memory.resources import imprecise_peak_bytes, op_macs, op_size_bytes
from stages.graph.tflite.float_edges import FloatEdge, StrippedGraph, require_int8, strip_float_edges
from stages.graph.tflite.reader import printable, read_tflite
from stages.tools.output_file import require_file_name, write_atomically
from stages.tools.timeline import timeline

_LONGEST_NAME = 40  # characters of an op's name in the table


@dataclass(frozen=True)
class OpFigures:
    """One op, in the order of the file."""

    index: int
    op: str
    name: str
    output_shape: tuple[int, ...]
    macs: int
    size_bytes: int  # of its constants
    live_bytes: int  # activations in memory while it runs, in the stored order
    best_position: int  # its place in the best order
    best_live_bytes: int  # and what is in memory then


@dataclass(frozen=True, eq=False)
class Inspection:
    """Everything found; `graph` has no float edges and stands in the stored order."""

    graph: Graph
    edges: StrippedGraph
    size_bytes: int
    macs: int  # ops beyond the resource model's have none here
    peak_bytes_stored: int
    peak_bytes_imprecise: int
    peak_bytes_overlap: int  # of the best order on our firmware, see `overlap`
    best: OpOrder
    layout: ArenaLayout  # of the best order
    ops: tuple[OpFigures, ...]

    @property
    def best_graph(self) -> Graph:
        """The graph in the best order."""
        return self.graph.in_order(self.best.order)

    @property
    def kinds_without_macs(self) -> list[str]:
        """Of every op whose work is not counted, see `shape_rules`."""
        return [op.kind for op in self.graph.ops if op.kind in SHAPE_RULES]


def inspect(model: Path, picture: Path | None) -> Answer:
    """Inspect a file, and draw its memory over time into `picture`, if there is one."""
    if picture is not None:
        require_file_name(picture)
    graph = read_tflite(model)
    try:
        found = inspected(graph)
    except StageError as error:
        raise StageError(f"{printable(str(model))}: {error}") from error
    name = printable(model.name)
    if picture is not None:
        write_atomically(picture, timeline(found.best_graph, found.layout, title=name).encode())
    return Answer(_text(name, found), _record(found))


def inspected(graph: Graph) -> Inspection:
    """The figures of a graph."""
    edges = strip_float_edges(graph)
    graph = edges.graph
    require_int8(graph)
    problem = OrderProblem(graph)
    stored_order = range(len(graph.ops))
    best = packable_order(problem, problem.solve())
    layout = arena_layout(graph.in_order(best.order))
    position = {number: place for place, number in enumerate(best.order)}
    live, best_live = problem.live_bytes(stored_order), problem.live_bytes(best.order)
    ops = tuple(
        OpFigures(
            index=number,
            op=op.kind,
            name=op.name,
            output_shape=graph.tensors[op.outputs[0]].shape,
            macs=op_macs(graph, op),
            size_bytes=op_size_bytes(graph, op),
            live_bytes=round(live[number]),
            best_position=position[number],
            best_live_bytes=round(best_live[position[number]]),
        )
        for number, op in enumerate(graph.ops)
    )
    return Inspection(
        graph=graph,
        edges=edges,
        size_bytes=sum(op.size_bytes for op in ops),
        macs=sum(op.macs for op in ops),
        peak_bytes_stored=max(op.live_bytes for op in ops),
        peak_bytes_imprecise=imprecise_peak_bytes(graph),
        peak_bytes_overlap=round(OverlapProblem(graph).measure(best.order).peak_bytes),
        best=best,
        layout=layout,
        ops=ops,
    )


def _record(found: Inspection) -> dict[str, Any]:
    return {
        "size_bytes": found.size_bytes,
        "macs": found.macs,
        "peak_bytes_stored": found.peak_bytes_stored,
        "peak_bytes": round(found.best.peak_bytes),
        "peak_bytes_imprecise": found.peak_bytes_imprecise,
        "arena_bytes": found.layout.arena_bytes,
        "lower_bound_bytes": found.layout.lower_bound_bytes,
        "order_proven_optimal": found.best.proven_optimal,
        "layout_proven_optimal": found.layout.proven_optimal,
        "ops": [{**asdict(op), "output_shape": list(op.output_shape)} for op in found.ops],
        "peak_bytes_overlap": found.peak_bytes_overlap,
        "order": list(found.best.order),
        "ops_without_macs": len(found.kinds_without_macs),
        "order_lower_bound_bytes": round(found.best.lower_bound_bytes),
        "float_inputs": [asdict(edge) for edge in found.edges.inputs if edge],
        "float_outputs": [asdict(edge) for edge in found.edges.outputs if edge],
    }


def _text(name: str, found: Inspection) -> str:
    best, layout = found.best, found.layout
    same = best.peak_bytes == found.peak_bytes_stored
    order = "proven minimal" if best.proven_optimal else f"not proven, at least {best.lower_bound_bytes:,.0f} B"
    packed = "proven minimal" if layout.proven_optimal else f"not proven, at least {layout.lower_bound_bytes:,} B"
    figures = [
        ("size", f"{found.size_bytes:,} B", "weights and biases"),
        ("MACs", f"{found.macs:,}", _not_counted(found.kinds_without_macs)),
        ("peak, stored order", f"{found.peak_bytes_stored:,} B", ""),
        ("peak, best order", f"{best.peak_bytes:,.0f} B", f"{order}{', as stored' if same else ''}"),
        ("peak, imprecise", f"{found.peak_bytes_imprecise:,} B", "most that one op touches, in place counted once"),
        ("peak, overlap", f"{found.peak_bytes_overlap:,} B", "outputs over inputs, row-wise fusion"),
        ("arena, best order", f"{layout.arena_bytes:,} B", packed),
    ]
    rows = [
        (str(op.index), op.op, _shortened(op.name), "x".join(map(str, op.output_shape)))
        + ("-" if op.op in SHAPE_RULES else f"{op.macs:,}", f"{op.size_bytes:,}", f"{op.live_bytes:,}")
        + (str(op.best_position), f"{op.best_live_bytes:,}")
        for op in found.ops
    ]
    header = ("#", "op", "name", "output", "MACs", "size B", "live B", "best #", "live B")
    return "\n".join(
        [
            f"{name}: {len(found.ops)} ops, {_sides(found.graph)}",
            *_aligned(figures, "<><"),
            *_edge_lines(found.edges),
            "",
            *_aligned([header, *rows], "><<<>>>>>"),
        ]
    )


def _not_counted(kinds: Sequence[str]) -> str:
    return f"without {len(kinds)} ops that have none in this count: {', '.join(sorted(set(kinds)))}" if kinds else ""


def _sides(graph: Graph) -> str:
    shapes = [
        ", ".join("x".join(map(str, graph.tensors[index].shape)) for index in side)
        for side in (graph.inputs, graph.outputs)
    ]
    types = dict.fromkeys(graph.tensors[index].dtype for index in (*graph.inputs, *graph.outputs))
    return f"{' and '.join(types)} {shapes[0]} -> {shapes[1]}"


def _edge_lines(edges: StrippedGraph) -> list[str]:
    def line(side: str, edge: FloatEdge) -> str:
        return f"float {side} {edge.name}: stripped, int8 with scale {edge.scale:.9g}, zero point {edge.zero_point}"

    lines = [line("input", edge) for edge in edges.inputs if edge]
    return lines + [line("output", edge) for edge in edges.outputs if edge]


def _shortened(name: str) -> str:
    """Converters make long paths; the end tells most."""
    return name if len(name) <= _LONGEST_NAME else f"...{name[3 - _LONGEST_NAME :]}"


def _aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Columns padded to equal width; `sides` says to which side each one is set."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(sides))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]
