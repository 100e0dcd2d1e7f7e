"""Order, layout and bytes of the model, and the proof that TensorFlow Lite Micro computes what we compute.

The proof: on some inputs every intermediate of the runtime equals that of the numpy reference bit for bit; and with the
arena plan in the file, the runtime's outputs stay the same and it needs exactly the bytes that were planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from stages.graph.judge.tflm import arena_head_bytes, first_difference, run_tflm, run_tflm_keeping_all
from stages.graph.judge.tflm_plan import runtime_head_bytes
from stages.graph.memory.arena_layout import ArenaLayout, arena_layout
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.packable_order import packable_order
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite

_SOFTMAX_SUM_LIMIT = 512


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """An int8 graph in its best order, with its place in the arena, as .tflite bytes."""

    graph: Graph
    layout: ArenaLayout
    content: bytes
    description: str
    order: tuple[int, ...]  # which op of the graph before ordering stands at each position
    order_proven_optimal: bool


def planned_model(graph: Graph, description: str, notes: Mapping[str, bytes] | None = None) -> PlannedModel:
    """The graph in the order of least peak memory, laid out and written."""
    problem = OrderProblem(graph)
    best = packable_order(problem, problem.solve())
    ordered = graph.in_order(best.order)
    layout = arena_layout(ordered)
    content = write_tflite(ordered, description, layout.offsets, notes)
    return PlannedModel(ordered, layout, content, description, best.order, best.proven_optimal)


def verify(model: PlannedModel, inputs: np.ndarray) -> None:
    """Raise StageError, naming the first op that differs, unless the runtime does what we say it does."""
    # What is checked is the file, read back; only its plan has to go, by which tensors overwrite each other.
    without_plan = write_tflite(read_tflite(model.content), model.description)
    ours = run_graph(model.graph, inputs)
    _check_softmax(model.graph, ours)
    theirs = run_tflm_keeping_all(without_plan, model.graph, inputs)
    difference = first_difference(model.graph, ours, theirs)
    if difference is not None:
        raise StageError(
            f"model.tflite: {difference} between TensorFlow Lite Micro and the reference, needed equal bits"
        )
    outputs = run_tflm(model.content, model.graph, inputs)
    if not np.array_equal(outputs, ours[model.graph.outputs[0]]):
        raise StageError("model.tflite: the arena plan changes the outputs of TensorFlow Lite Micro, needed equal bits")
    head_bytes = arena_head_bytes(model.content, model.graph)
    # The runtime adds the scratch buffers of its kernels.
    planned = max(model.layout.arena_bytes, runtime_head_bytes(model.graph, model.layout.offsets))
    if head_bytes is not None and head_bytes != planned:
        raise StageError(f"model.tflite: TensorFlow Lite Micro needs {head_bytes} B of arena, planned were {planned} B")


def _check_softmax(graph: Graph, values: dict[int, np.ndarray]) -> None:
    """Raise StageError where the runtime would end the process: its kernel asserts that exp(x - max) sums to < 512."""
    for op in graph.ops:
        grid = graph.tensors[op.inputs[0]].quantisation
        if op.kind != "SOFTMAX" or op.inputs[0] not in values or grid is None:
            continue
        scores = values[op.inputs[0]].astype(np.float64) * grid.scale[0]
        total = float(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1).max())
        if total >= _SOFTMAX_SUM_LIMIT:
            raise StageError(
                f"{op.title}: the scores of {scores.shape[-1]} classes are so alike that TensorFlow Lite "
                f"Micro aborts (sum of exp(x - max) is {total:.0f}, needed below {_SOFTMAX_SUM_LIMIT}); train longer"
            )
