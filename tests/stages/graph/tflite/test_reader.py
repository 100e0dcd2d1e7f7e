"""Reading .tflite files: what is in them, and that damage of any kind ends in one sentence."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import ConvOptions, Graph, PoolOptions, SoftmaxOptions
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import NO_MODELS, THIRD_PARTY_MODELS, Int8Builder, residual_network


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

    with pytest.raises(StageError, match="model: operator LSTM is not supported, needed one of ABS, ADD"):
        read_tflite(edited(content, to_lstm))


def test_many_subgraphs_are_refused(content: bytes) -> None:
    with pytest.raises(StageError, match="found 17 subgraphs, needed 1 to 16"):
        read_tflite(edited(content, lambda model: model.subgraphs.extend(model.subgraphs * 16)))


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

    with pytest.raises(
        StageError, match="fused activation number 4 is not supported, needed none, relu, relu6 or relu_n1_to_1"
    ):
        read_tflite(edited(content, fuse))


MANY = 3_000_000


def one_relu() -> Graph:
    builder = Int8Builder(0)
    return builder.graph(builder.unary("RELU", builder.input(2, 2, 2)))


def first_tensor(model) -> schema.TensorT:
    return model.subgraphs[0].tensors[0]


def grown_scales(model) -> None:
    first_tensor(model).quantization.scale = np.full(MANY, 0.5, np.float32)


def grown_shape(model) -> None:
    first_tensor(model).shape = np.ones(MANY, np.int32)


def grown_name(model) -> None:
    first_tensor(model).name = b"\x01" * 4 * MANY


def grown_ends(model) -> None:
    model.subgraphs[0].inputs = np.zeros(MANY, np.int32)


def grown_results(model) -> None:
    model.subgraphs[0].outputs = np.resize(model.subgraphs[0].outputs, MANY).astype(np.int32)


def grown_operands(model) -> None:
    model.subgraphs[0].operators[0].inputs = np.full(MANY, 99_999, np.int32)


def grown_intermediates(model) -> None:
    model.subgraphs[0].operators[0].intermediates = np.zeros(MANY, np.int32)


@pytest.mark.parametrize(
    "grow, sentence",
    [
        (grown_scales, r"found 30000\d\d scales and zero points, needed at most 1048576"),
        (grown_shape, r"tensor activation0: 3000000 dimensions, needed at most 6 dimensions of 1 or more"),
        (grown_name, r"found 120001\d\d B of tensor names, needed at most 4194304"),
        (grown_ends, r"found 3000000 inputs, needed at most 64"),
        (grown_results, r"found 3000000 outputs, needed at most 64"),
        (grown_operands, r"CONV_2D: 3000000 inputs, 0 intermediates and 1 outputs, needed at most 24 of each"),
        (grown_intermediates, r"CONV_2D: 3 inputs, 3000000 intermediates and 1 outputs, needed at most 24 of each"),
    ],
)
def test_a_list_of_millions_is_refused_by_its_length_before_it_is_read(content: bytes, grow, sentence: str) -> None:
    grown = edited(content, grow)
    started = time.process_time()
    with pytest.raises(StageError, match=f"^model: {sentence}$"):
        read_tflite(grown)
    assert time.process_time() - started < 0.3  # seconds and hundreds of megabytes, were they made Python values


def of_operator(**fields: object):
    return lambda model: vars(model.subgraphs[0].operators[0]).update(fields)


def of_tensor(index: int = 0, **fields: object):
    return lambda model: vars(model.subgraphs[0].tensors[index]).update(fields)


def of_grid(index: int = 0, **fields: object):
    return lambda model: vars(model.subgraphs[0].tensors[index].quantization).update(fields)


def outside(offset: int, size: int):
    """A tensor without data in the flatbuffer."""

    def change(model) -> None:
        buffer = schema.BufferT()
        buffer.offset, buffer.size = offset, size
        model.buffers.append(buffer)
        first_tensor(model).buffer = len(model.buffers) - 1

    return change


def tensors(count: int):
    return lambda model: setattr(model.subgraphs[0], "tensors", (model.subgraphs[0].tensors * count)[:count])


def operators(count: int):
    return lambda model: setattr(model.subgraphs[0], "operators", (model.subgraphs[0].operators * count)[:count])


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (of_operator(inputs=[0, 1, 18]), r"CONV_2D: operands \(0, 1, 18\) -> \(3,\), needed tensors 0 to 17"),
        (of_operator(inputs=[-2, 1, 2]), r"CONV_2D: operands \(-2, 1, 2\) -> \(3,\), needed tensors 0 to 17"),
        (of_operator(outputs=[-1]), r"CONV_2D: operands \(0, 1, 2\) -> \(-1,\), needed tensors 0 to 17"),
        (of_operator(outputs=[]), r"CONV_2D: operands \(0, 1, 2\) -> \(\), needed tensors 0 to 17"),
        (of_operator(inputs=[0] * 25), "CONV_2D: 25 inputs, 0 intermediates and 1 outputs, needed at most 24 of each"),
        (of_operator(outputs=[0] * 25), "CONV_2D: 3 inputs, 0 intermediates and 25 outputs, needed at most 24 of each"),
        (of_operator(builtinOptionsType=0), "CONV_2D: options of type 0, needed Conv2DOptions"),
        (of_tensor(type=schema.TensorType.FLOAT16), "tensor activation0: float16 is not supported, needed int8"),
        (of_tensor(isVariable=True), "input activation0 is a constant or a state, needed an activation"),
        (of_tensor(externalBuffer=1), "tensor activation0: sparse and external tensors are not supported"),
        (of_tensor(shape=[1] * 7), "tensor activation0: 7 dimensions, needed at most 6 dimensions of 1 or more"),
        (of_tensor(shape=[1, 9, 0, 3]), r"tensor activation0: shape \(1, 9, 0, 3\), needed at most 6 dimensions of 1"),
        (of_tensor(shape=[1, 1 << 16, 1 << 15]), r"tensor activation0: shape .* and 2147483647 elements"),
        (of_tensor(1, shape=[8, 3, 3, 4]), "tensor weights1: 216 B of data, needed 288 B"),
        (of_tensor(2, type=schema.TensorType.INT16), "tensor bias3: 32 B of data, needed 16 B"),
        (of_grid(scale=[0.0]), "tensor activation0 has scale 0 and zero point .*, needed a scale above 0"),
        (of_grid(scale=[np.inf]), "tensor activation0: a scale of inf, needed 0 or more and below"),
        (of_grid(scale=[0.5, 0.5]), "tensor activation0: 2 scales and 1 zero points, needed pairs"),
        (outside(2, 0), "tensor activation0: its data lie outside the flatbuffer, which is not supported"),
        (outside(0, 2), "tensor activation0: its data lie outside the flatbuffer, which is not supported"),
        (tensors(8193), "found 8 operators and 8193 tensors, needed at most 1024 and 8192"),
        (operators(1025), "found 1025 operators and 18 tensors, needed at most 1024 and 8192"),
        (operators(1024), "is computed twice"),
    ],
)
def test_each_thing_that_cannot_be_read_has_its_sentence(content: bytes, spoil, sentence: str) -> None:
    with pytest.raises(StageError, match=f"^model: .*{sentence}"):
        read_tflite(edited(content, spoil))


@pytest.mark.parametrize("change", [outside(1, 1), of_tensor(name=None), of_grid(zeroPoint=None), tensors(8192)])
def test_what_other_writers_do_is_read(content: bytes, change) -> None:
    graph = read_tflite(edited(content, change))
    assert graph.tensors[0].name in ("activation0", "tensor_0")
    assert graph.tensors[0].data is None
    assert len(graph.tensors[0].quantisation.zero_point) == 1  # type: ignore[union-attr]


def test_files_that_cannot_be_networks_are_not_even_loaded(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="not a file, needed a .tflite file"):
        read_tflite(tmp_path)
    for size, sentence in ((64 << 20, "not a .tflite file"), ((64 << 20) + 1, "67108865 B, needed a .tflite file of")):
        with (tmp_path / "huge").open("wb") as file:
            file.truncate(size)
        with pytest.raises(StageError, match=sentence):
            read_tflite(tmp_path / "huge")


def test_a_mean_over_millions_of_axes_is_refused_by_their_number() -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.mean(builder.input(4, 4, 3), (1,) * 1_000_000, keep=True))
    with pytest.raises(StageError, match="the mean over 1000000 axes, needed at most 4, one for each"):
        check_graph(graph)


def test_a_plan_of_millions_of_words_is_refused(content: bytes) -> None:
    def grow(model) -> None:
        words = np.array([1, 0, MANY - 3] + [0] * (MANY - 3), "<i4")
        model.buffers[model.metadata[0].buffer].data = words.view(np.uint8)

    with pytest.raises(StageError, match="OfflineMemoryAllocation holds 3000000 words, needed 3 and one for each"):
        read_offline_offsets(edited(content, grow))


def test_an_input_that_is_listed_twice_is_refused(content: bytes) -> None:
    def twice(model) -> None:
        model.subgraphs[0].inputs = np.resize(model.subgraphs[0].inputs, 2)

    with pytest.raises(StageError, match="2 inputs, some of them the same tensor, needed one tensor each"):
        read_tflite(edited(content, twice))


def test_a_long_name_leaves_room_for_what_was_needed(content: bytes) -> None:
    def spoil(model) -> None:
        first_tensor(model).name, first_tensor(model).type = b"long/" * 1000, schema.TensorType.STRING

    with pytest.raises(
        StageError, match=r"^model: tensor long/.* \.\.\. .*needed int8 or int16, or int32 for biases and shapes$"
    ) as caught:
        read_tflite(edited(content, spoil))
    assert len(str(caught.value)) == 605


def test_options_that_no_operator_of_ours_has_are_refused() -> None:
    """Their lists are not followed by the check of the structure, and were shared by all operators of a file."""

    def add_options(model) -> None:
        options = schema.StableHLOCompositeOptionsT()
        options.compositeAttributes = np.zeros(1000, np.uint8)
        relu = model.subgraphs[0].operators[0]
        relu.builtinOptions2Type, relu.builtinOptions2 = schema.BuiltinOptions2.StableHLOCompositeOptions, options

    relu = write_tflite(one_relu(), "test")
    with pytest.raises(StageError, match="model: an operator with options of StableHLO is not supported, needed"):
        read_tflite(edited(relu, add_options))


def test_options_of_a_type_alone_are_refused_where_none_are_needed() -> None:
    def set_type(model) -> None:
        model.subgraphs[0].operators[0].builtinOptions2Type = schema.BuiltinOptions2.StableHLOCompositeOptions

    relu = write_tflite(one_relu(), "test")
    with pytest.raises(StageError, match="model: RELU: options of StableHLO, type 21, needed NONE"):
        read_tflite(edited(relu, set_type))


def test_a_file_without_a_plan_has_no_offsets() -> None:
    assert read_offline_offsets(write_tflite(residual_network(0), "test")) is None


@pytest.mark.skipif(not THIRD_PARTY_MODELS, reason=NO_MODELS)
def test_third_party_models_are_read() -> None:
    kinds = {path.stem: [op.kind for op in read_tflite(path).ops] for path in THIRD_PARTY_MODELS}
    assert len(kinds["kws_ref_model"]) == 13
    assert kinds["pretrainedResnet_quant"].count("ADD") == 3
