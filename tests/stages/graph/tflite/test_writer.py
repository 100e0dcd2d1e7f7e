"""Writing .tflite files: what the reader and the runtime find in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph, Op
from stages.graph.judge.tflm import arena_head_bytes, run_tflm
from stages.graph.memory.arena_layout import arena_layout
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import random_inputs, residual_network


def fields(graph: Graph) -> list[tuple[object, ...]]:
    """Everything a graph says, constants as bytes, grids in single precision."""
    grids = [
        None
        if t.quantisation is None
        else (np.float32(t.quantisation.scale).tolist(), t.quantisation.zero_point, t.quantisation.axis)
        for t in graph.tensors
    ]
    return [
        (t.name, t.shape, t.dtype, grid, None if t.data is None else t.data.tobytes())
        for t, grid in zip(graph.tensors, grids, strict=True)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_is_read_back(seed: int) -> None:
    graph = residual_network(seed)
    back = read_tflite(write_tflite(graph, "test"))
    assert fields(back) == fields(graph)
    assert (back.ops, back.inputs, back.outputs) == (graph.ops, graph.inputs, graph.outputs)


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert write_tflite(residual_network(3), "test") == write_tflite(residual_network(3), "test")


def test_constants_start_at_multiples_of_16_bytes() -> None:
    content = write_tflite(residual_network(0), "test", arena_layout(residual_network(0)).offsets)
    model = schema.Model.GetRootAs(content, 0)
    starts = []
    for index in range(model.BuffersLength()):
        buffer = model.Buffers(index)
        if buffer.DataLength():
            offset = buffer._tab.Offset(4)
            starts.append(buffer._tab.Vector(offset))
    assert len(starts) == 10  # 4 weights, 4 biases, a shape and the plan
    assert [start % 16 for start in starts] == [0] * 10


@pytest.mark.parametrize("seed", range(5))
def test_the_runtime_keeps_to_the_plan_and_gives_the_same_outputs(seed: int) -> None:
    graph = residual_network(seed)
    layout = arena_layout(graph)
    content = write_tflite(graph, "test", layout.offsets)
    inputs = random_inputs(graph, 20, seed)
    assert read_offline_offsets(content) == layout.offsets
    assert arena_head_bytes(content, graph) == layout.arena_bytes
    np.testing.assert_array_equal(run_tflm(content, graph, inputs), run_graph(graph, inputs)[graph.outputs[0]])


@pytest.mark.parametrize("seed", range(3))
def test_the_file_is_valid_for_litert_too(seed: int) -> None:
    """Its reference kernels round once where TensorFlow Lite Micro rounds twice, so a few steps may lie between."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    graph = residual_network(seed)
    content = write_tflite(graph, "test", arena_layout(graph).offsets)
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    inputs = random_inputs(graph, 10, seed)
    found = []
    for x in inputs:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x[np.newaxis])
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    ours = run_graph(graph, inputs)[graph.outputs[0]]
    assert np.abs(np.concatenate(found).astype(int) - ours).max() <= 3


def test_a_plan_that_is_too_large_is_followed_too() -> None:
    """So the arena in the test above is small because of the plan, not in spite of it."""
    graph = residual_network(0)
    layout = arena_layout(graph)
    spread = [offset * 2 if offset >= 0 else -1 for offset in layout.offsets]
    needed = max(
        offset + -(-t.nbytes // 16) * 16 for offset, t in zip(spread, graph.tensors, strict=True) if offset >= 0
    )
    assert needed > layout.arena_bytes
    assert arena_head_bytes(write_tflite(graph, "test", spread), graph) == needed


def test_offsets_for_some_tensors_only_are_refused() -> None:
    with pytest.raises(StageError, match="2 arena offsets for 18 tensors, needed one each"):
        write_tflite(residual_network(0), "test", [0, 16])


def test_an_op_that_cannot_be_written_is_named() -> None:
    graph = residual_network(0)
    unknown = replace(graph, ops=(Op("LSTM", "cell", (0,), graph.ops[0].outputs),))
    with pytest.raises(StageError, match=r"LSTM: cannot be written to \.tflite, needed one of CONV_2D"):
        write_tflite(unknown, "test")
