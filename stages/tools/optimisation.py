"""optimize: the same network in the operator order and arena layout that need the least memory, proven on the runtime.

The file is changed, not written anew (see planned_file): what is not order, plan or float edge stays as it was. Of two
candidates, the best order and the stored one, the smaller wins, the stored one among equals; a file with variables, or
with shapes that are computed, keeps its order, and the tensors that only it knows are left to the runtime. Before
anything is written, TensorFlow Lite Micro runs both files: the outputs must be equal bit for bit, its arena head must
be the bytes that were planned, and where its own planning was better, the file keeps that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import StageError
from pipeline.stage import Answer
from stages.graph.graph import Graph
from stages.graph.judge.tflm_plan import RuntimePlan, runtime_plan, with_scratch
from stages.graph.judge.tflm_process import TflmRun, check_affordable, run_isolated
from stages.graph.memory.op_order import OpOrder, OrderProblem
from stages.graph.memory.packable_order import packable_order
from stages.graph.tflite import planned_file
from stages.graph.tflite.associated_files import with_files_of
from stages.graph.tflite.float_edges import FloatEdge, StrippedGraph, require_int8
from stages.graph.tflite.reader import load_named, printable, read_offline_offsets, read_tflite
from stages.tools.output_file import require_file_name, write_atomically

_SAMPLES = 20  # a wrong place in the arena shows on nearly every input
_SEED = 0


@dataclass(frozen=True, eq=False)
class Optimised:
    """The new file and what was found."""

    content: bytes
    graph: Graph  # what it holds
    edges: StrippedGraph
    order: tuple[int, ...]  # op of the old file, float edges not counted, at each position
    best_order: OpOrder
    peak_bytes_stored: int
    plan: RuntimePlan
    keeps_own_plan: bool  # nothing was found that is better than what the runtime does by itself
    plan_was_wrong: bool  # tensors that are needed overwrote each other by the plan in the old file
    arena_bytes_before: int
    arena_bytes: int

    @property
    def is_reordered(self) -> bool:
        return self.order != tuple(sorted(self.order))


def optimize(model: Path, out: Path) -> Answer:
    """Write the optimised file and say what it gained."""
    require_file_name(out)
    name, content = load_named(model)
    try:
        found = optimised(content, _SAMPLES)
    except StageError as error:
        raise StageError(f"{name}: {str(error).removeprefix('model: ')}") from error
    write_atomically(out, found.content)
    return Answer(_text(model, out, found), _record(found))


def optimised(content: bytes, samples: int, planner: Callable[[Graph], RuntimePlan] = runtime_plan) -> Optimised:
    """The best file for the same network, checked on so many random inputs."""
    inner, edges = planned_file.stripped_file(content)
    whole, loose = planned_file.not_as_stored(content), planned_file.not_as_stored(inner)
    whole, graph = whole or read_tflite(content, as_stored=True), loose or read_tflite(inner, as_stored=True)
    require_int8(graph)
    check_affordable(whole, samples)  # before anything is drawn: a small file can name inputs of gigabytes
    inputs = _random_inputs(graph, samples)
    outer = [x if edge is None else _floats(x, edge) for x, edge in zip(inputs, edges.inputs, strict=True)]
    before, plan_was_wrong = _as_it_was(content, whole, outer)
    problem, stored = OrderProblem(graph), tuple(range(len(graph.ops)))
    best = packable_order(problem, problem.solve(), with_scratch)
    is_free = loose is None and planned_file.may_reorder(planned_file.unpack(inner))
    orders = [stored, best.order] if is_free else [stored]
    plans = {order: planner(graph.in_order(order)) for order in orders}
    order = min(orders, key=lambda candidate: plans[candidate].head_bytes)
    plan = plans[order]
    keeps_own_plan = plan.head_bytes > before.head_bytes and not edges.has_edges
    new = _rewritten(inner, order if is_free else None, plan, drops_plan=plan_was_wrong)
    after = run_isolated(new, graph.in_order(order), inputs)
    if keeps_own_plan or after.head_bytes > before.head_bytes:  # some kernels ask for memory that no plan knows
        order, keeps_own_plan = stored, True
        new = _rewritten(inner, None, None, drops_plan=plan_was_wrong)
        after = run_isolated(new, graph, inputs)
    _verify_outputs(edges, before, after)
    _verify_arena(before, after)
    return Optimised(
        content=new,
        graph=graph.in_order(order),
        edges=edges,
        order=order,
        best_order=best,
        peak_bytes_stored=round(problem.measure(stored).peak_bytes),
        plan=plan,
        keeps_own_plan=keeps_own_plan,
        plan_was_wrong=plan_was_wrong,
        arena_bytes_before=before.head_bytes,
        arena_bytes=after.head_bytes,
    )


def _as_it_was(content: bytes, graph: Graph, inputs: list[np.ndarray]) -> tuple[TflmRun, bool]:
    """What the runtime gives for the file, and whether a plan in it was left out because it spoils the outputs."""
    found = run_isolated(content, graph, inputs)
    if read_offline_offsets(content) is None:
        return found, False
    tree = planned_file.unpack(content)
    planned_file.drop_plan(tree)
    unplanned = run_isolated(planned_file.pack(tree), graph, inputs)
    is_right = all(np.array_equal(*pair) for pair in zip(found.outputs, unplanned.outputs, strict=True))
    return (found, False) if is_right else (unplanned, True)


def _rewritten(content: bytes, order: tuple[int, ...] | None, plan: RuntimePlan | None, *, drops_plan: bool) -> bytes:
    """`order`: None keeps the file's; tensors that were added when it was read come behind its own."""
    tree = planned_file.unpack(content)
    if plan is not None:
        if order is not None:
            planned_file.reorder(tree, order)
        first, *others = (len(subgraph.tensors) for subgraph in tree.subgraphs)
        planned_file.set_plan(tree, (*plan.offsets[:first], *(-1,) * sum(others)))
    elif drops_plan:
        planned_file.drop_plan(tree)
    return with_files_of(content, planned_file.pack(tree))


def _random_inputs(graph: Graph, samples: int) -> list[np.ndarray]:
    rng, found = np.random.default_rng(_SEED), []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        limits = np.iinfo(tensor.dtype)
        found.append(rng.integers(limits.min, limits.max + 1, (samples, *tensor.shape), dtype=tensor.dtype))
    return found


def _floats(values: np.ndarray, edge: FloatEdge) -> np.ndarray:
    """What DEQUANTIZE makes of int8 values; QUANTIZE gives them back."""
    return (float(np.float32(edge.scale)) * (values.astype(np.int64) - edge.zero_point)).astype(np.float32)


def _verify_outputs(edges: StrippedGraph, before: TflmRun, after: TflmRun) -> None:
    for number, (old, new, edge) in enumerate(zip(before.outputs, after.outputs, edges.outputs, strict=True)):
        expected = new if edge is None else _floats(new, edge)
        if not np.array_equal(old, expected):
            wrong = np.count_nonzero(old != expected)
            raise StageError(f"output {number}: {wrong} of {old.size} values differ in the new file, needed equal bits")


def _verify_arena(before: TflmRun, after: TflmRun) -> None:
    if after.head_bytes > before.head_bytes:
        raise StageError(
            f"the arena grew from {before.head_bytes} B to {after.head_bytes} B, needed no more than before"
        )


def _record(found: Optimised) -> dict[str, Any]:
    return {
        "arena_bytes_before": found.arena_bytes_before,
        "arena_bytes": found.arena_bytes,
        "lower_bound_bytes": found.plan.layout.lower_bound_bytes,
        "peak_bytes_stored": found.peak_bytes_stored,
        "peak_bytes": round(found.best_order.peak_bytes),
        "order": list(found.order),
        "reordered": found.is_reordered,
        "keeps_own_plan": found.keeps_own_plan,
        "plan_was_wrong": found.plan_was_wrong,
        "order_proven_optimal": found.best_order.proven_optimal,
        "order_lower_bound_bytes": round(found.best_order.lower_bound_bytes),
        "layout_proven_optimal": found.plan.layout.proven_optimal,
        "inputs_compared": _SAMPLES,
        "float_inputs": [asdict(edge) for edge in found.edges.inputs if edge],
        "float_outputs": [asdict(edge) for edge in found.edges.outputs if edge],
    }


def _text(model: Path, out: Path, found: Optimised) -> str:
    saved = found.arena_bytes_before - found.arena_bytes
    share = f"{100 * saved / max(1, found.arena_bytes_before):.1f} %"
    lines = [
        f"{printable(str(model))} -> {printable(str(out))}",
        f"arena of TensorFlow Lite Micro   {found.arena_bytes_before:,} B -> {found.arena_bytes:,} B ({share} saved)",
        f"peak of the operator order       {found.peak_bytes_stored:,} B -> {_order_words(found)}",
        f"layout                           {_layout_words(found)}",
        f"outputs                          bit-identical on {_SAMPLES} random inputs",
    ]
    if found.plan_was_wrong:
        lines.append("plan in the old file             wrong, it spoils the outputs; replaced, and not compared with")
    edges = (*(("input", edge) for edge in found.edges.inputs), *(("output", edge) for edge in found.edges.outputs))
    for side, edge in edges:
        if edge is not None:
            grid = f"scale {edge.scale:.9g}, zero point {edge.zero_point}"
            lines.append(f"float {side} stripped{' ' * (15 - len(side))}   {edge.name}: now int8, {grid}")
    return "\n".join(lines)


def _order_words(found: Optimised) -> str:
    best = found.best_order
    how = "order changed" if found.is_reordered else "order kept"
    if best.proven_optimal:
        return f"{best.peak_bytes:,.0f} B, proven minimal; {how}"
    return f"{best.peak_bytes:,.0f} B, not proven (no order needs less than {best.lower_bound_bytes:,.0f} B); {how}"


def _layout_words(found: Optimised) -> str:
    if found.keeps_own_plan:
        return f"the runtime's own is better than the {found.plan.head_bytes:,} B found here, and is kept"
    if found.plan.layout.proven_optimal:
        return "proven minimal for this order"
    return f"not proven (no layout needs less than {found.plan.layout.lower_bound_bytes:,} B)"
