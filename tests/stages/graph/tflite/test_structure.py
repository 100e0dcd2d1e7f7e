"""The walk over a file's tables: what lies outside is refused, and a little that unfolds to much."""

from __future__ import annotations

import struct
import time

import flatbuffers
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.structure import check_structure
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import residual_network


def test_a_sound_file_passes() -> None:
    content = write_tflite(residual_network(0), "test", [0] * 18)
    check_structure(content)
    assert len(read_tflite(content).ops) == 8


@pytest.mark.parametrize("root", [10**6, 2**31, 2**32 - 1])
def test_a_root_outside_the_file_is_refused(root: int) -> None:
    content = write_tflite(residual_network(0), "test")
    with pytest.raises(StageError, match="damaged|unfold"):
        check_structure(struct.pack("<I", root) + content[4:])


def bomb(names: int, name_bytes: int) -> bytes:
    """A list of metadata whose entries are all the same table with a long name."""
    builder = flatbuffers.Builder(1024)
    name = builder.CreateString("x" * name_bytes)
    schema.MetadataStart(builder)
    schema.MetadataAddName(builder, name)
    entry = schema.MetadataEnd(builder)
    builder.StartVector(4, names, 4)
    for _ in range(names):
        builder.PrependUOffsetTRelative(entry)
    entries = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddMetadata(builder, entries)
    builder.Finish(schema.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_entries_that_share_one_long_text_are_refused_at_once() -> None:
    content = bomb(20_000, 100_000)  # 180 KB that would unfold to 2 GB
    started = time.perf_counter()
    with pytest.raises(StageError, match="its lists unfold to far more than the file holds"):
        check_structure(content)
    assert time.perf_counter() - started < 0.5


def test_more_tables_than_any_network_has_are_refused() -> None:
    with pytest.raises(StageError, match="more than 60000 tables, needed a network for a microcontroller"):
        check_structure(bomb(300_000, 1))


def shared_tensors(count: int) -> bytes:
    """A sound network whose list of tensors repeats one entry over and over."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(write_tflite(residual_network(0), "test"), 0))
    model.subgraphs[0].tensors += [model.subgraphs[0].tensors[0]] * count
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_too_many_tensors_are_refused_in_a_sentence() -> None:
    with pytest.raises(StageError, match="found 8 operators and 9018 tensors, needed at most 1024 and 8192"):
        read_tflite(shared_tensors(9_000))


def test_constants_that_share_a_buffer_too_often_are_refused() -> None:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(write_tflite(residual_network(0), "test"), 0))
    weights = model.subgraphs[0].operators[0].inputs[1]
    model.subgraphs[0].tensors += [model.subgraphs[0].tensors[weights]] * 2000
    for tensor in model.subgraphs[0].tensors[-2000:]:
        tensor.shape, tensor.buffer = [1 << 16], len(model.buffers)
        tensor.quantization = None
    large = schema.BufferT()
    large.data = bytes(1 << 16)
    model.buffers.append(large)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    with pytest.raises(StageError, match="the constants unfold to far more than the file holds"):
        read_tflite(bytes(builder.Output()))
