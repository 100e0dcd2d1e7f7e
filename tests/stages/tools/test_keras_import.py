"""Keras models in, int8 files out; TensorFlow's own reference interpreter as a second opinion beside the runtime."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.judge.tflm import run_tflm
from stages.graph.other_formats.keras_conversion import REPRESENTATIVE_ROWS
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.tools.keras_import import accepted, import_keras
from tests.benchmarks.subjects.stand_in import int8_stand_in
from tests.benchmarks.subjects.wirings import Builder

HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
needs_tensorflow = pytest.mark.skipif(
    not HAS_TENSORFLOW, reason="needs TensorFlow; to enable: pip install 'tinyml-pipeline[tf]'"
)

MAKE_MODELS = """
import sys
import keras
from keras import layers as L

keras.utils.set_random_seed(0)
x = entry = keras.Input((12, 10, 2))
x = L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)))
y = L.ReLU(max_value=6.0)(L.DepthwiseConv2D(3, padding="same")(x))
x = L.Concatenate()([L.Add()([x, y]), L.Conv2D(4, 1)(y)])
x = L.MaxPooling2D(2)(L.ZeroPadding2D(1)(x))
features = L.Conv2D(6, 1)(x)
scores = L.Dense(5)(L.GlobalAveragePooling2D()(features))
keras.Model(entry, features).save(sys.argv[1] + "/features.keras")
keras.Model(entry, scores).save(sys.argv[1] + "/scores.keras")
keras.Model(entry, L.Softmax()(scores)).save(sys.argv[1] + "/classes.h5")
keras.Model(entry, scores).export(sys.argv[1] + "/saved")
keras.Model(entry, [features, scores]).save(sys.argv[1] + "/two.keras")
"""
RUN_REFERENCE = """
import sys
import numpy as np
import tensorflow as tf

interpreter = tf.lite.Interpreter(
    sys.argv[1], experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF
)
interpreter.allocate_tensors()
source, result = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
rows = []
for x in np.load(sys.argv[2]):
    interpreter.set_tensor(source, x[None])
    interpreter.invoke()
    rows.append(interpreter.get_tensor(result))
np.save(sys.argv[3], np.concatenate(rows))
"""


def in_tensorflow(program: str, *arguments: Path) -> None:
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keras")
    np.save(folder / "X.npy", np.random.default_rng(0).normal(size=(100, 12, 10, 2)))
    if HAS_TENSORFLOW:
        in_tensorflow(MAKE_MODELS, folder)
    return folder


def second_opinion(model: Path, folder: Path) -> np.ndarray:
    """How far TensorFlow's reference interpreter and TensorFlow Lite Micro are apart on 100 random inputs."""
    graph = read_tflite(model)
    shape = graph.tensors[graph.inputs[0]].shape[1:]
    inputs = np.random.default_rng(1).integers(-128, 128, (100, *shape), np.int8)
    np.save(folder / "inputs.npy", inputs)
    in_tensorflow(RUN_REFERENCE, model, folder / "inputs.npy", folder / "outputs.npy")
    theirs, ours = np.load(folder / "outputs.npy"), run_tflm(model.read_bytes(), graph, inputs)
    assert len(np.unique(ours)) > 30  # the network does say something
    return np.abs(theirs.astype(int) - ours.reshape(theirs.shape))


@needs_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes.h5", "saved", "scores.keras"])
def test_a_keras_model_becomes_an_int8_file_with_an_arena_plan(models: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out.tflite"
    answer = import_keras(models / name, models / "X.npy", out)
    graph = read_tflite(out)
    assert {graph.tensors[index].dtype for op in graph.ops for index in op.outputs} == {"int8"}
    assert graph.tensors[graph.inputs[0]].shape == (1, 12, 10, 2)
    assert {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "CONCATENATION", "MAX_POOL_2D", "MEAN"} <= {
        op.kind for op in graph.ops
    }
    assert answer.record["representative_inputs"] == 100
    assert answer.record["optimized"]["arena_bytes"] <= answer.record["optimized"]["arena_bytes_before"]
    assert answer.record["optimized"]["keeps_own_plan"] or read_offline_offsets(out) is not None
    assert f"{models / name}: converted with 100 representative inputs" in answer.text
    assert "converted.tflite" not in answer.text


@needs_tensorflow
@pytest.mark.slow
def test_without_a_dense_layer_both_runtimes_have_the_same_bits(models: Path, tmp_path: Path) -> None:
    import_keras(models / "features.keras", models / "X.npy", tmp_path / "out.tflite")
    assert not second_opinion(tmp_path / "out.tflite", tmp_path).any()


@needs_tensorflow
@pytest.mark.slow
def test_a_dense_layer_differs_by_one_step_because_tensorflow_rounds_it_once(models: Path, tmp_path: Path) -> None:
    import_keras(models / "scores.keras", models / "X.npy", tmp_path / "out.tflite")
    apart = second_opinion(tmp_path / "out.tflite", tmp_path)
    assert apart.max() <= 1
    assert (apart == 0).mean() > 0.9


@needs_tensorflow
@pytest.mark.slow
def test_the_same_model_gives_the_same_bytes(models: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        import_keras(models / "scores.keras", models / "X.npy", tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@needs_tensorflow
@pytest.mark.slow
def test_what_cannot_be_converted_is_refused_in_one_sentence(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tflite"
    with pytest.raises(StageError, match=r"two\.keras: found 1 inputs and 2 outputs, needed 1 of each"):
        import_keras(models / "two.keras", models / "X.npy", out)
    np.save(tmp_path / "narrow.npy", np.zeros((4, 12, 9, 2)))
    with pytest.raises(StageError, match=r"the data has shape \(4, 12, 9, 2\), needed \(N, 12, 10, 2\)"):
        import_keras(models / "scores.keras", tmp_path / "narrow.npy", out)
    (tmp_path / "broken.keras").write_bytes(b"no model")
    with pytest.raises(StageError, match=r"broken\.keras: not a readable Keras model \("):
        import_keras(tmp_path / "broken.keras", models / "X.npy", out)
    assert not out.exists()


@pytest.mark.skipif(HAS_TENSORFLOW, reason="TensorFlow is installed here; to enable, use an environment without it")
def test_without_tensorflow_one_sentence_names_the_extra(models: Path, tmp_path: Path) -> None:
    (tmp_path / "model.keras").write_bytes(b"")
    expected = r"import: tensorflow is not installed, .*; pip install 'tinyml-pipeline\[tf\]'"
    with pytest.raises(StageError, match=expected):
        import_keras(tmp_path / "model.keras", models / "X.npy", tmp_path / "out.tflite")


def test_a_model_that_is_not_there_is_named(models: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"gone\.keras: no such file; needed a \.keras or \.h5 model, or a SavedModel"):
        import_keras(tmp_path / "gone.keras", models / "X.npy", tmp_path / "out.tflite")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no numbers", r"cannot be read \(.*\); needed a \.npy file"),
        (np.zeros((0, 3)), r"found float64 of shape \(0, 3\), needed numbers of shape \(N, \.\.\.\)"),
        (np.zeros(3), r"found float64 of shape \(3,\), needed numbers"),
        (np.array([["a"]]), r"found <U1 of shape \(1, 1\), needed numbers"),
    ],
)
def test_data_that_is_no_set_of_inputs_is_refused(tmp_path: Path, content: bytes | np.ndarray, sentence: str) -> None:
    path = tmp_path / "X.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    with pytest.raises(StageError, match=sentence):
        import_keras(tmp_path / "model.keras", path, tmp_path / "out.tflite")


def test_what_our_reader_refuses_in_a_converted_model_is_said_of_the_model_itself(tmp_path: Path) -> None:
    (tmp_path / "converted.tflite").write_bytes(b"no flatbuffer at all")
    with pytest.raises(StageError, match=r"nice\.keras: ") as caught:
        accepted(Path("nice.keras"), tmp_path / "converted.tflite", 7, tmp_path / "out.tflite")
    assert "converted.tflite" not in str(caught.value)
    assert not (tmp_path / "out.tflite").exists()


def test_the_answer_says_how_many_inputs_were_representative(tmp_path: Path) -> None:
    net = Builder((8, 8, 3))
    (tmp_path / "converted.tflite").write_bytes(write_tflite(int8_stand_in(net.graph(net.conv(0, 4))), "converted"))
    answer = accepted(Path("nice.keras"), tmp_path / "converted.tflite", REPRESENTATIVE_ROWS, tmp_path / "out.tflite")
    assert answer.text.startswith("nice.keras: converted with 500 representative inputs, 1 int8 ops\n")
    assert answer.record["representative_inputs"] == 500
    assert answer.record["input_shape"] == [1, 8, 8, 3]


@needs_tensorflow
@pytest.mark.slow
def test_of_more_inputs_only_those_that_were_used_are_reported(models: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "many.npy", np.random.default_rng(0).normal(size=(REPRESENTATIVE_ROWS + 1, 12, 10, 2)))
    answer = import_keras(models / "scores.keras", tmp_path / "many.npy", tmp_path / "out.tflite")
    assert answer.record["representative_inputs"] == REPRESENTATIVE_ROWS
