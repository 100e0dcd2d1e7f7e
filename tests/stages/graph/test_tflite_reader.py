"""Reading .tflite files: what is in them, and that damage of any kind ends in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.graph import ConvOptions, PoolOptions, SoftmaxOptions
from stages.graph.tflite_reader import read_offline_offsets, read_tflite
from stages.graph.tflite_writer import write_tflite
from tests.stages.graph.int8_graphs import NO_MODELS, THIRD_PARTY_MODELS, residual_network


@pytest.fixture(scope="module")
def content() -> bytes:
    return write_tflite(residual_network(0), "test", list(range(0, 16 * 21, 16))[: len(residual_network(0).tensors)])


def edited(content: bytes, edit) -> bytes:
    """The file with something changed through the object interface."""
    import flatbuffers

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    edit(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_ops_options_shapes_and_grids_are_read(content: bytes) -> None:
    graph, made = read_tflite(content), residual_network(0)
    assert [op.kind for op in graph.ops] == [op.kind for op in made.ops]
    assert graph.ops[0].options == ConvOptions(stride=(2, 2), padding="same", activation="relu")
    assert graph.ops[4].options == PoolOptions((5, 4), (5, 4), "valid")
    assert graph.ops[-1].options == SoftmaxOptions(1.0)
    for found, expected in zip(graph.tensors, made.tensors, strict=True):
        assert (found.name, found.shape, found.dtype) == (expected.name, expected.shape, expected.dtype)
        if expected.data is not None:
            np.testing.assert_array_equal(found.data, expected.data)
        if expected.quantisation is not None:
            assert found.quantisation is not None
            np.testing.assert_allclose(found.quantisation.scale, expected.quantisation.scale, rtol=1e-7)
            assert found.quantisation.zero_point == expected.quantisation.zero_point


def test_a_path_is_read_like_its_bytes(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    assert read_tflite(path).ops == read_tflite(content).ops
    assert read_offline_offsets(path) == read_offline_offsets(content)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"absent\.tflite: cannot be read \(No such file or directory\)"):
        read_tflite(tmp_path / "absent.tflite")


@pytest.mark.parametrize(
    "garbage", [b"", b"TFL3", bytes(100), b"\xff" * 1000, b"not a model at all, but longer than that"]
)
def test_garbage_is_refused_in_one_sentence(garbage: bytes) -> None:
    with pytest.raises(StageError, match=r"model: not a \.tflite file \(\d+ B, no mark 'TFL3'\)"):
        read_tflite(garbage)


def test_every_truncation_is_refused(content: bytes) -> None:
    """Cutting anywhere loses something that is needed: the writer puts the constants last in no order we rely on."""
    for length in range(8, len(content) - 16, 41):
        with pytest.raises(StageError, match="model: "):
            read_tflite(content[:length])


def outcome(content: bytes) -> str:
    """'read', or the sentence; anything but a StageError fails the test."""
    try:
        graph = read_tflite(content)
    except StageError as error:
        assert "\n" not in str(error)
        return str(error)
    assert graph.ops
    return "read"


def test_mutated_bytes_are_read_or_refused_but_never_crash(content: bytes) -> None:
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        mutated = bytearray(content)
        for _ in range(int(rng.integers(1, 6))):
            mutated[int(rng.integers(len(content)))] = int(rng.integers(256))
        refused += outcome(bytes(mutated)) != "read"
    assert refused > 50  # most bytes are weights, whose change is no damage


def test_mutated_offsets_are_read_or_refused_but_never_crash(content: bytes) -> None:
    """Words of the structure (small numbers) are replaced by extreme ones: lengths, offsets and indices go wild."""
    words = [at for at in range(8, len(content) - 4, 4) if content[at + 2 : at + 4] in (b"\0\0", b"\xff\xff")]
    refused = 0
    for at in words[:: max(1, len(words) // 150)]:
        for value in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\0\0\0\0"):
            refused += outcome(content[:at] + value + content[at + 4 :]) != "read"
    assert refused > 50


def test_an_unsupported_operator_is_named(content: bytes) -> None:
    def to_lstm(model) -> None:
        model.operatorCodes[0].builtinCode = schema.BuiltinOperator.LSTM
        model.operatorCodes[0].deprecatedBuiltinCode = schema.BuiltinOperator.LSTM

    with pytest.raises(StageError, match="model: operator LSTM is not supported, needed one of ADD, AVERAGE_POOL_2D"):
        read_tflite(edited(content, to_lstm))


def test_several_subgraphs_are_refused(content: bytes) -> None:
    with pytest.raises(StageError, match="found 2 subgraphs, needed 1"):
        read_tflite(edited(content, lambda model: model.subgraphs.append(model.subgraphs[0])))


def test_wrong_shapes_name_the_op(content: bytes) -> None:
    def widen(model) -> None:
        tensors = model.subgraphs[0].tensors
        tensors[model.subgraphs[0].operators[0].outputs[0]].shape = [1, 6, 4, 8]

    with pytest.raises(StageError, match=r"CONV_2D activation3: output of shape \(1, 6, 4, 8\), needed \(1, 5, 4, 8\)"):
        read_tflite(edited(content, widen))


def test_ops_out_of_order_are_refused(content: bytes) -> None:
    with pytest.raises(StageError, match="is used before it is computed"):
        read_tflite(edited(content, lambda model: model.subgraphs[0].operators.reverse()))


def test_a_fused_tanh_is_refused(content: bytes) -> None:
    def fuse(model) -> None:
        model.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.TANH

    with pytest.raises(StageError, match="fused activation number 4 is not supported, needed none, relu or relu6"):
        read_tflite(edited(content, fuse))


def test_a_file_without_a_plan_has_no_offsets() -> None:
    assert read_offline_offsets(write_tflite(residual_network(0), "test")) is None


@pytest.mark.skipif(not THIRD_PARTY_MODELS, reason=NO_MODELS)
def test_third_party_models_are_read() -> None:
    kinds = {path.stem: [op.kind for op in read_tflite(path).ops] for path in THIRD_PARTY_MODELS}
    assert len(kinds["kws_ref_model"]) == 13
    assert kinds["pretrainedResnet_quant"].count("ADD") == 3
