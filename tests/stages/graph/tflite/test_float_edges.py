"""Files with float inputs and outputs: the edges go, the scales are told, the int8 network inside stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, NoOptions, Op
from stages.graph.tflite.float_edges import FloatEdge, require_int8, strip_float_edges
from stages.graph.tflite.planned_file import without_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.tools.optimisation import optimised
from tests.stages.firmware.coverage.networks import coverage_network
from tests.stages.firmware.host_models import tflm_outputs
from tests.stages.graph.int8_graphs import Int8Builder, residual_network


def float_network(seed: int = 0) -> Graph:
    """Float in, QUANTIZE, two convolutions, a sum, DEQUANTIZE, float out."""
    builder = Int8Builder(seed)
    inner = builder.unary("QUANTIZE", builder.float_input(6, 5, 3), 0.05)
    stem = builder.conv(inner, 8, (3, 3), ConvOptions(activation="relu"))
    total = builder.elementwise("ADD", stem, builder.conv(stem, 8, (1, 1), ConvOptions()), ActivationOptions())
    return builder.graph(builder.unary("DEQUANTIZE", total))


def with_float_edges(graph: Graph) -> Graph:
    """As converters leave it unless they are asked for int8 at the edges."""
    tensors, before, behind = list(graph.tensors), [], []
    ends: dict[int, int] = {}
    for index in (*graph.inputs, *graph.outputs):
        inner = tensors[index]
        tensors.append(replace(inner, name=f"float {inner.name}", dtype="float32", quantisation=None))
        outer = ends[index] = len(tensors) - 1
        if index in graph.inputs:
            before.append(Op("QUANTIZE", inner.name, (outer,), (index,), NoOptions()))
        else:
            behind.append(Op("DEQUANTIZE", tensors[outer].name, (index,), (outer,), NoOptions()))
    inputs, outputs = (tuple(ends[index] for index in side) for side in (graph.inputs, graph.outputs))
    return replace(graph, tensors=tuple(tensors), ops=(*before, *graph.ops, *behind), inputs=inputs, outputs=outputs)


def test_edges_are_stripped_and_their_scales_reported() -> None:
    whole = read_tflite(write_tflite(float_network(), "test"))
    stripped = strip_float_edges(whole)
    check_graph(stripped.graph)
    require_int8(stripped.graph)
    assert [op.kind for op in stripped.graph.ops] == ["CONV_2D", "CONV_2D", "ADD"]
    assert stripped.kept_ops == (1, 2, 3)
    inner = whole.tensors[whole.ops[0].outputs[0]].quantisation
    last = whole.tensors[whole.ops[-1].inputs[0]].quantisation
    assert inner and last
    assert stripped.inputs == (FloatEdge("input0", inner.scale[0], inner.zero_point[0]),)
    assert stripped.outputs == (FloatEdge(whole.tensors[whole.outputs[0]].name, last.scale[0], last.zero_point[0]),)
    assert len(stripped.graph.tensors) == len(whole.tensors) - 2


def test_the_stripped_network_computes_what_the_whole_one_does_between_its_edges() -> None:
    whole = float_network(1)
    stripped = strip_float_edges(whole)
    edge, out = stripped.inputs[0], stripped.outputs[0]
    assert edge and out
    values = np.random.default_rng(0).integers(-128, 128, (5, 6, 5, 3), dtype=np.int8)
    floats = (np.float32(edge.scale) * (values.astype(np.float32) - edge.zero_point)).astype(np.float32)
    expected = run_graph(whole, floats)[whole.outputs[0]]
    found = run_graph(stripped.graph, values)[stripped.graph.outputs[0]]
    real = float(np.float32(out.scale)) * (found.astype(int) - out.zero_point)
    np.testing.assert_array_equal(real.astype(np.float32), expected)


def test_a_network_without_float_edges_stays_as_it_is() -> None:
    graph = residual_network(0)
    stripped = strip_float_edges(graph)
    assert stripped.graph is graph
    assert not stripped.has_edges
    assert stripped.inputs == (None,)


def test_a_float_output_that_is_read_again_is_no_edge_and_refused() -> None:
    builder = Int8Builder(0)
    x = builder.input(2, 2, 3)
    floats = builder.unary("DEQUANTIZE", x)
    graph = builder.graph(builder.unary("QUANTIZE", floats, 0.1))
    assert not strip_float_edges(graph).has_edges
    with pytest.raises(StageError, match="tensor activation1 is float32, needed a full int8 network"):
        require_int8(graph)


def test_a_file_of_edges_alone_is_refused() -> None:
    builder = Int8Builder(0)
    inner = builder.unary("QUANTIZE", builder.float_input(2, 2, 3), 0.1)
    graph = builder.graph(builder.unary("DEQUANTIZE", inner))
    with pytest.raises(StageError, match="nothing is left without the float edges"):
        strip_float_edges(graph)


@pytest.mark.parametrize("keeps_int8", [False, True], ids=["two floats", "int8 and float"])
def test_one_result_may_leave_the_network_twice(keeps_int8: bool) -> None:
    builder = Int8Builder(0)
    result = builder.unary("RELU", builder.input(2, 2, 3))
    other = result if keeps_int8 else builder.unary("DEQUANTIZE", result)
    graph = builder.graph(other, builder.unary("DEQUANTIZE", result))
    stripped = strip_float_edges(graph)
    assert [op.kind for op in stripped.graph.ops] == ["RELU"]
    assert stripped.graph.outputs == (result, result)
    assert [edge is None for edge in stripped.outputs] == [keeps_int8, False]
    assert optimised(write_tflite(graph, "test"), 3).arena_bytes == 16  # the runtime's outputs are compared there


def test_wrong_types_at_the_edges_are_refused() -> None:
    graph = float_network()
    tensors = list(graph.tensors)
    tensors[graph.inputs[0]] = replace(tensors[graph.inputs[0]], dtype="int32")
    with pytest.raises(
        StageError,
        match="QUANTIZE activation1: from int32 to int8, needed float32 or int16 or int8 or uint8 to int16 or int8",
    ):
        check_graph(replace(graph, tensors=tuple(tensors)))


@pytest.mark.parametrize("name", ["static shape", "stream", "stream with first values"])
def test_edges_go_from_a_file_with_computed_shapes_or_variables_too(name: str) -> None:
    plain = coverage_network(name)
    content = write_tflite(with_float_edges(plain), "test")
    inner = without_float_edges(content)
    graph = read_tflite(inner)
    require_int8(graph)
    draw = np.random.default_rng(0)
    inputs = [draw.integers(-128, 128, (3, *plain.tensors[i].shape[1:]), dtype=np.int8) for i in plain.inputs]
    np.testing.assert_array_equal(tflm_outputs(graph, inputs), tflm_outputs(plain, inputs))
    assert optimised(content, 3).edges.has_edges  # outputs are compared there
