"""What files leave to be computed from constants, shapes that they leave open, and variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import ConvOptions, Graph, Op, PlainOptions, Tensor
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.planned_file import without_float_edges
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.coverage.builder import Builder
from tests.stages.firmware.coverage.networks import coverage_network
from tests.stages.firmware.host_models import tflm_outputs
from tests.stages.graph.int8_graphs import Int8Builder
from tests.stages.graph.tflite.test_reader import edited


def stored(name: str) -> bytes:
    return write_tflite(coverage_network(name), "test")


def test_a_chain_that_finds_the_batch_becomes_a_constant() -> None:
    graph = read_tflite(stored("static shape"))
    assert [op.kind for op in graph.ops] == ["CONV_2D", "RESHAPE", "FULLY_CONNECTED"]
    target = graph.tensors[graph.ops[1].inputs[1]].data
    assert target is not None and target.tolist() == [1, 96]


def test_what_is_computed_from_constants_alone_has_the_bits_of_the_kernel() -> None:
    make = Int8Builder(0)
    first, second = make.constant(1, 6), make.constant(1, 6)
    total = make.elementwise("ADD", first, second, make_options())
    result = make.elementwise("ADD", make.input(6), total, make_options())
    graph = read_tflite(write_tflite(make.graph(result), "test"))
    assert len(graph.ops) == 1 and graph.tensors[total].data is not None


def make_options() -> Any:
    from stages.graph.graph import ActivationOptions

    return ActivationOptions()


def placeholders(model: Any) -> None:
    """As newer converters write what they do not know: 1 in the shape, -1 in the signature."""
    for operator in model.subgraphs[0].operators:
        if operator.outputs is None or not len(operator.outputs):
            continue
        tensor = model.subgraphs[0].tensors[operator.outputs[0]]
        tensor.shapeSignature = np.full(len(tensor.shape), -1, np.int32)
        tensor.shape = np.ones(len(tensor.shape), np.int32)


@pytest.mark.parametrize(
    "name", ["Conv1D", "batch of pictures", "RESIZE_BILINEAR", "TRANSPOSE", "SUM", "PAD", "TRANSPOSE_CONV"]
)
def test_shapes_that_a_file_leaves_open_are_filled_in(name: str) -> None:
    content = stored(name)
    opened = edited(content, placeholders)
    wanted, found = read_tflite(content), read_tflite(opened)
    assert [tensor.shape for tensor in found.tensors] == [tensor.shape for tensor in wanted.tensors]
    assert without_float_edges(content) == content
    assert without_float_edges(opened) != opened  # the runtime believes the shapes of a file


def test_a_shape_that_is_no_placeholder_is_believed_and_refused() -> None:
    def shrink(model: Any) -> None:
        placeholders(model)
        for tensor in model.subgraphs[0].tensors:
            tensor.shapeSignature = None

    with pytest.raises(StageError, match="output of shape"):
        read_tflite(edited(stored("PAD"), shrink))


def test_options_of_a_type_but_without_a_table_are_none_where_none_are_needed() -> None:
    def without_table(model: Any) -> None:
        for operator in model.subgraphs[0].operators:
            if operator.builtinOptions is not None and type(operator.builtinOptions).__name__ == "PadOptionsT":
                operator.builtinOptions = None

    content = edited(stored("PAD"), without_table)
    assert [op.kind for op in read_tflite(content).ops] == ["CONV_2D", "PAD"]


def test_a_variable_begins_with_what_call_once_gives_it() -> None:
    made, graph = coverage_network("stream with first values"), read_tflite(stored("stream with first values"))
    (state,) = (graph.tensors[index].data for index in graph.states)
    (wanted,) = (tensor.data for tensor in made.tensors if tensor.is_state)
    assert np.array_equal(state, wanted)
    assert [op.kind for op in graph.ops][:2] == ["READ_VARIABLE", "CONCATENATION"]


def test_a_variable_of_two_shapes_is_refused() -> None:
    graph = coverage_network("two streams")
    (first, second) = graph.states
    ops = tuple(replace(op, inputs=(op.inputs[0], first)) if op.kind == "ASSIGN_VARIABLE" else op for op in graph.ops)
    tensors = list(graph.tensors)
    tensors[first] = Tensor(
        "wide", (1, 6), "int8", tensors[first].quantisation, np.zeros((1, 6), np.int8), is_state=True
    )
    with pytest.raises(StageError, match=r"READ_VARIABLE .* needed int8, and first values like it|as everywhere"):
        read_tflite(write_tflite(replace(graph, ops=ops, tensors=tuple(tensors)), "test"))


def test_a_fill_of_gigabytes_is_refused() -> None:
    make = Int8Builder(0)
    x = make.conv(make.input(4, 4, 2), 2, (1, 1), ConvOptions())
    sizes = make._add(Tensor("sizes", (3,), "int32", data=np.array([2**20, 2**20, 8], np.int32)))
    value = make.constant(1)
    filled = make._add(Tensor("filled", (1, 1, 1), "int8", make.tensors[value].quantisation))
    make.ops.append(Op("FILL", "filled", (sizes, value), (filled,), PlainOptions()))
    with pytest.raises(StageError, match="FILL filled: of shape .* needed at most 65536 elements"):
        read_tflite(write_tflite(make.graph(x), "test"))


def padding_batches() -> Graph:
    """A SPACE_TO_BATCH_ND that pads, as converters write a dilated convolution with padding."""
    make = Builder(0)
    x = make.conv(make.input(5, 6, 4), 4, (1, 1), ConvOptions())
    pads = make.integers([[1, 2], [2, 2]])
    apart = make.plain("SPACE_TO_BATCH_ND", (x, make.integers([2, 2]), pads), (4, 4, 5, 4))
    return make.graph(apart)


def test_batches_that_are_padded_by_whatever_memory_holds_are_padded_with_the_zero_point() -> None:
    graph = read_tflite(write_tflite(padding_batches(), "test"))
    assert [op.kind for op in graph.ops] == ["CONV_2D", "PAD", "SPACE_TO_BATCH_ND"]
    inputs = np.random.default_rng(0).integers(-128, 128, (3, 5, 6, 4)).astype(np.int8)
    found = run_graph(graph, inputs)[graph.outputs[0]]
    assert np.array_equal(bytes_of(found), tflm_outputs(graph, inputs))
    grid = graph.tensors[graph.outputs[0]].quantisation
    assert grid and (found[:, 0, 0] == grid.zero_point[0]).all()  # the first line is padding


def bytes_of(found: np.ndarray) -> np.ndarray:
    return found.reshape(len(found), -1)


def halves(model: Any) -> None:
    """Every weight as int4, two in a byte."""
    for tensor in model.subgraphs[0].tensors:
        if tensor.quantization is not None and len(tensor.shape) == 4 and tensor.buffer:
            values = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.int8) >> 4
            pairs = np.append(values, np.zeros(values.size % 2, np.int8)).reshape(-1, 2)
            model.buffers[tensor.buffer].data = (pairs[:, 0] & 15 | pairs[:, 1] << 4).astype(np.uint8)
            tensor.type = schema.TensorType.INT4


def test_weights_of_four_bits_are_read_as_int8_and_have_the_bits_of_tflm() -> None:
    make = Builder(1)
    x = make.conv(make.input(6, 5, 3), 7, (3, 3), ConvOptions(activation="relu"))
    content = edited(write_tflite(make.graph(make.depthwise(x, (3, 3), ConvOptions())), "test"), halves)
    graph = read_tflite(content)
    assert graph.tensors[graph.ops[0].inputs[1]].dtype == "int8"
    inputs = np.random.default_rng(0).integers(-128, 128, (3, 6, 5, 3)).astype(np.int8)
    assert np.array_equal(run_graph(graph, inputs)[graph.outputs[0]], run_tflm(content, graph, inputs))
