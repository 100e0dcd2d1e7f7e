"""Changing order and plan of a file: everything else in it stays, field by field."""

from __future__ import annotations

import time
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.graph import ActivationOptions, ConvOptions, Graph
from stages.graph.tflite import planned_file
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import NO_MODELS, THIRD_PARTY_MODELS, Int8Builder, residual_network


def plain(value: Any) -> Any:
    """A tree of schema objects as nested dicts, lists, bytes and numbers."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, str):
        return value.encode()
    if hasattr(value, "__dict__"):
        return {"type": type(value).__name__, **{name: plain(field) for name, field in vars(value).items()}}
    return value


def branches() -> Graph:
    """Two branches that can run in either order."""
    builder = Int8Builder(4)
    x = builder.input(6, 6, 4)
    wide = builder.conv(x, 16, (3, 3), ConvOptions(activation="relu"))
    narrow = builder.conv(x, 4, (1, 1), ConvOptions())
    back = builder.conv(wide, 4, (1, 1), ConvOptions())
    total = builder.elementwise("ADD", narrow, back, ActivationOptions())
    return builder.graph(builder.unary("HARD_SWISH", total))


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def entry(kind: type, **fields: Any) -> Any:
    made = kind()
    for name, value in fields.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


def rich_file() -> bytes:
    """A file with everything in it that a Graph does not model."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(write_tflite(branches(), "made for a test"), 0))
    subgraph = model.subgraphs[0]
    subgraph.name = b"serving"
    for index, tensor in enumerate(subgraph.tensors):
        tensor.shapeSignature = [-1, *tensor.shape[1:]] if len(tensor.shape) == 4 else None
        tensor.hasRank = True
        if tensor.quantization is not None:
            tensor.quantization.min = [-1.5 * index]
            tensor.quantization.max = [float(index)]
    details = entry(schema.CustomQuantizationT, custom=np.arange(7, dtype=np.uint8))
    subgraph.tensors[0].quantization.detailsType = schema.QuantizationDetails.CustomQuantization
    subgraph.tensors[0].quantization.details = details
    subgraph.operators[0].customOptions = np.arange(5, dtype=np.uint8)
    subgraph.operators[1].intermediates = []
    subgraph.operators[2].mutatingVariableInputs = np.array([False, True, False])
    subgraph.operators[0].builtinOptions.quantizedBiasType = schema.TensorType.INT32
    model.operatorCodes[0].version = 17
    model.operatorCodes[1].customCode = b"unused"
    model.buffers += [entry(schema.BufferT, data=np.frombuffer(text, np.uint8)) for text in (b"1.5.0", b"\0anything")]
    model.metadata = [
        entry(schema.MetadataT, name=b"min_runtime_version", buffer=len(model.buffers) - 2),
        entry(schema.MetadataT, name=b"TFLITE_METADATA", buffer=len(model.buffers) - 1),
    ]
    model.metadataBuffer = np.array([3, 1], np.int32)
    maps = [entry(schema.TensorMapT, name=b"image", tensorIndex=0)], [entry(schema.TensorMapT, name=b"class")]
    model.signatureDefs = [
        entry(schema.SignatureDefT, inputs=maps[0], outputs=maps[1], signatureKey=b"serving_default", subgraphIndex=0)
    ]
    return packed(model)


def rewritten(content: bytes, order: list[int], offsets: list[int]) -> bytes:
    tree = planned_file.unpack(content)
    planned_file.reorder(tree, order)
    planned_file.set_plan(tree, offsets)
    return planned_file.pack(tree)


def without_plan(tree: Any) -> Any:
    """Takes out what set_plan puts in: the metadata entry and, where it was added, the last buffer."""
    entries = [each for each in tree.metadata if each.name == b"OfflineMemoryAllocation"]
    assert len(entries) == 1 and entries[0].buffer == len(tree.buffers) - 1
    tree.metadata.remove(entries[0])
    tree.buffers.pop()
    return tree


def test_order_and_plan_change_and_every_other_field_stays() -> None:
    content = rich_file()
    offsets = list(range(0, 16 * len(branches().tensors), 16))
    order = [1, 0, 2, 3, 4]
    new = rewritten(content, order, offsets)
    assert read_offline_offsets(new) == tuple(offsets)
    expected = planned_file.unpack(content)
    expected.subgraphs[0].operators = [expected.subgraphs[0].operators[number] for number in order]
    before, after = plain(expected), plain(without_plan(planned_file.unpack(new)))
    assert after == before
    text = str(before)
    for kept in ("TFLITE_METADATA", "serving_default", "1.5.0", "unused", "made for a test", "CustomQuantizationT"):
        assert kept in text or str(list(kept.encode())) in text
    assert [op.kind for op in read_tflite(new).ops] == ["CONV_2D", "CONV_2D", "CONV_2D", "ADD", "HARD_SWISH"]
    assert read_tflite(new).ops[0].outputs == branches().ops[1].outputs


def test_packing_twice_gives_the_same_bytes() -> None:
    new = rewritten(rich_file(), [0, 1, 2, 3, 4], [0] * len(branches().tensors))
    assert planned_file.pack(planned_file.unpack(new)) == new


def test_all_buffers_are_aligned_afterwards() -> None:
    new = planned_file.pack(planned_file.unpack(rich_file()))
    model = schema.Model.GetRootAs(new, 0)
    starts = [
        model.Buffers(index)._tab.Vector(model.Buffers(index)._tab.Offset(4)) % 16
        for index in range(model.BuffersLength())
        if model.Buffers(index).DataLength()
    ]
    assert starts == [0] * 8  # weights and biases of three convolutions, two of metadata


def test_a_plan_replaces_the_one_before_in_its_own_buffer() -> None:
    graph = residual_network(0)
    content = write_tflite(graph, "test", [0] * len(graph.tensors))
    offsets = [16 * index for index in range(len(graph.tensors))]
    new = rewritten(content, list(range(len(graph.ops))), offsets)
    assert read_offline_offsets(new) == tuple(offsets)
    old_tree, new_tree = planned_file.unpack(content), planned_file.unpack(new)
    assert len(new_tree.buffers) == len(old_tree.buffers)
    assert len(new_tree.metadata) == 1


def test_a_plan_does_not_write_over_a_buffer_that_serves_something_else() -> None:
    tree = planned_file.unpack(rich_file())
    tree.metadata[0].name = b"OfflineMemoryAllocation"
    tree.metadata[0].buffer = tree.metadata[1].buffer
    planned_file.set_plan(tree, [0] * len(branches().tensors))
    other = tree.buffers[tree.metadata[1].buffer].data
    assert bytes(np.asarray(other)) == b"\0anything"
    assert tree.metadata[0].buffer == len(tree.buffers) - 1


@pytest.mark.parametrize(("buffer", "expected"), [(1, 1), (0, 2), (2, 2)], ids=["own", "empty", "absent"])
def test_a_plan_gets_a_new_buffer_only_where_it_has_none(buffer: int, expected: int) -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.unary("RELU", builder.input(4)))
    tree = planned_file.unpack(write_tflite(graph, "test", [0, 16]))
    tree.metadata[0].buffer = buffer
    planned_file.set_plan(tree, [16, 0])
    assert tree.metadata[0].buffer == expected
    assert read_offline_offsets(planned_file.pack(tree)) == (16, 0)


def test_one_plan_is_left_of_tens_of_thousands_within_a_second() -> None:
    tree = planned_file.unpack(rich_file())
    plans = [entry(schema.MetadataT, name=b"OfflineMemoryAllocation", buffer=1) for _ in range(30_000)]
    tree.metadata = [*plans, *tree.metadata]
    started = time.process_time()
    planned_file.set_plan(tree, [0] * len(branches().tensors))
    assert time.process_time() - started < 1
    names = [each.name for each in tree.metadata]
    assert names == [b"OfflineMemoryAllocation", b"min_runtime_version", b"TFLITE_METADATA"]


class Endless(schema.ModelT):
    """More than a flatbuffer can hold."""

    def Pack(self, builder: flatbuffers.Builder) -> int:
        raise flatbuffers.builder.BuilderSizeError("2 gigabytes")


def test_a_file_that_would_be_too_large_is_refused_in_a_sentence() -> None:
    with pytest.raises(StageError, match="the new file would take more than 2 GiB, needed a network for a micro"):
        planned_file.pack(Endless(buffers=[]))


def test_metadata_that_names_operators_by_position_forbids_another_order() -> None:
    tree = planned_file.unpack(rich_file())
    assert planned_file.may_reorder(tree)
    tree.metadata[1].name = b"model_control_dependencies"
    assert not planned_file.may_reorder(tree)


@pytest.mark.skipif(not THIRD_PARTY_MODELS, reason=NO_MODELS)
def test_third_party_models_lose_nothing() -> None:
    for path in THIRD_PARTY_MODELS:
        content = path.read_bytes()
        again = planned_file.pack(planned_file.unpack(content))
        assert plain(planned_file.unpack(again)) == plain(planned_file.unpack(content))
