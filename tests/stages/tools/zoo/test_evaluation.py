"""`pipeline evaluate`: what TensorFlow Lite Micro would answer on a data set, and what a file has to say of itself."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data import builtin_images
from pipeline.api.networks import evaluate
from pipeline.errors import ConfigError, StageError
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, NoOptions, Quantisation
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.task import Task, read_task, task_note, task_of
from stages.graph.tflite.writer import write_tflite
from stages.tools.optimisation import optimised
from tests.stages.graph.int8_graphs import Int8Builder

CLASSES = ("disc", "square", "triangle")
PICTURES = {"data.image_px": 12, "data.image_classes": 3, "data.per_class": 200}
RECORD = {
    "classes": CLASSES, "sample_rate_hz": None, "features": {"image_px": 12},
    "feature_mean": [100.0, 120.0, 90.0], "feature_std": [60.0, 50.0, 70.0],
}  # fmt: skip


def picture_network() -> Graph:
    builder = Int8Builder(4)
    x = builder.input(12, 12, 3)
    builder.set_grid(x, 0.02, 3)
    x = builder.conv(x, 6, (3, 3), ConvOptions(stride=(2, 2), activation="relu"))
    x = builder.mean(builder.depthwise(x, (3, 3), ConvOptions()), (1, 2), keep=False)
    return builder.graph(builder.fully_connected(x, 3, ActivationOptions()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "net.tflite"
    path.write_bytes(write_tflite(picture_network(), "test", notes=task_note(task_of(RECORD))))
    return path


def by_tflm(model: Path, mean: list[float], std: list[float]) -> np.ndarray:
    """The slow way: every picture through the interpreter."""
    source = builtin_images(classes=3, image_px=12, per_class=200, seed=1)
    pixels = source.rows("test", 0, len(source.splits["test"].labels)).astype(np.float32)
    features = (pixels - np.float32(mean)) / np.float32(std)
    inputs = np.clip(np.round(features / np.float32(0.02)) + 3, -128, 127).astype(np.int8)
    return run_tflm(model.read_bytes(), picture_network(), inputs).reshape(len(inputs), -1).argmax(1)


def test_accuracy_confusion_and_predictions_are_those_of_tflm(model: Path, tmp_path: Path) -> None:
    found = evaluate(model, "builtin_images", set=PICTURES, out=tmp_path / "out", progress=False)
    labels = builtin_images(classes=3, image_px=12, per_class=200, seed=1).splits["test"].labels
    chosen = by_tflm(model, RECORD["feature_mean"], RECORD["feature_std"])
    assert len(set(chosen.tolist())) > 1, "a network that always says the same proves little"
    rows = list(csv.DictReader((tmp_path / "out" / "predictions.csv").read_text().splitlines()))
    assert [int(row["int8"]) for row in rows] == chosen.tolist()
    assert [int(row["label"]) for row in rows] == labels.tolist()
    assert (found.right, found.n) == (int((chosen == labels).sum()), len(labels))
    share = found.right / found.n
    assert found.standard_error == pytest.approx((share * (1 - share) / found.n) ** 0.5)
    assert found.confusion.loc["square", "disc"] == ((labels == 1) & (chosen == 0)).sum()
    assert found.per_class.loc["square", "n"] == 40
    matrix = list(csv.DictReader((tmp_path / "out" / "confusion.csv").read_text().splitlines()))
    assert int(matrix[1]["disc"]) == found.confusion.loc["square", "disc"]
    assert f"int8 accuracy {100 * share:.2f} % of 120 examples" in found.text


def test_classes_in_another_order_are_matched_by_name(model: Path, tmp_path: Path) -> None:
    turned = {**RECORD, "classes": CLASSES[::-1]}
    (tmp_path / "dataset.json").write_text(json.dumps(turned))
    plain, other = (
        evaluate(model, "builtin_images", set=PICTURES, progress=False, task=task)
        for task in (None, tmp_path / "dataset.json")
    )
    assert (other.confusion.to_numpy() == plain.confusion.to_numpy()[:, ::-1]).all()


def test_a_file_that_says_nothing_needs_mean_and_std_or_a_task(tmp_path: Path) -> None:
    path = tmp_path / "plain.tflite"
    path.write_bytes(write_tflite(picture_network(), "test"))
    with pytest.raises(ConfigError, match="says nothing of its front end .*needed --task dataset.json"):
        evaluate(path, "builtin_images", set=PICTURES, progress=False)
    with pytest.raises(ConfigError, match="--mean, --std: needed both"):
        evaluate(path, "builtin_images", set=PICTURES, mean=[1.0], progress=False)
    with pytest.raises(StageError, match=r"knows 3 classes, the data 3 \(0, 1, 2 not in both\)"):
        evaluate(path, "builtin_images", set=PICTURES, mean=[120.0], std=[60.0], progress=False)


def test_mean_and_std_of_the_caller_take_the_place_of_those_in_the_file(model: Path) -> None:
    found = evaluate(model, "builtin_images", set=PICTURES, mean=[10.0], std=[20.0], progress=False)
    labels = builtin_images(classes=3, image_px=12, per_class=200, seed=1).splits["test"].labels
    assert found.right == (by_tflm(model, [10.0] * 3, [20.0] * 3) == labels).sum()


@pytest.mark.parametrize(
    ("data", "settings", "split", "sentence"),
    [
        ("builtin_imagse", {}, "test", "data.source: found 'builtin_imagse'"),
        ("builtin_images", PICTURES, "tset", "--split tset: unknown, needed one of train, validation, test"),
        ("builtin_images", {**PICTURES, "data.image_px": 16}, "test", "12x12x3, the data are pictures of 16x16x3"),
        ("builtin_images", {**PICTURES, "data.image_classes": 4}, "test", r"the data 4 \(ring not in both\)"),
        ("builtin_images", {"prune.rate": 3}, "test", "prune: unknown key"),
    ],
)  # fmt: skip
def test_mistakes_get_a_sentence(model: Path, data: str, settings: dict, split: str, sentence: str) -> None:
    with pytest.raises((ConfigError, StageError), match=sentence):
        evaluate(model, data, set=settings, split=split, progress=False)


def test_optimize_keeps_the_task(model: Path) -> None:
    task = read_task(model)
    assert isinstance(task, Task) and task.classes == CLASSES
    assert read_task(optimised(model.read_bytes(), 2).content) == task


@pytest.mark.parametrize(
    ("note", "sentence"),
    [
        (b"{", "not readable as JSON"),
        (b"[1]", "needed what the prepare step writes"),
        (json.dumps({**RECORD, "feature_std": [1, 1, 0]}).encode(), "feature_std.2: Input should be greater than 0"),
        (json.dumps({**RECORD, "feature_mean": [1]}).encode(), "found 1 means and 3 deviations"),
        (json.dumps({**RECORD, "sample_rate_hz": 16000}).encode(), "a sample rate without sounds"),
        (b" " * (1 << 20) + b"1", "needed at most 1048576"),
    ],
)
def test_a_hostile_note_gets_a_sentence(note: bytes, sentence: str) -> None:
    with pytest.raises(StageError, match=sentence):
        read_task(write_tflite(picture_network(), "test", notes={"TINYML_TASK": note}))


def test_a_network_that_takes_bytes_is_fed_bytes(model: Path, tmp_path: Path) -> None:
    """uint8 at the edge: the same scale, zero point 128 higher, and so the same answers."""
    graph = picture_network()
    source = graph.tensors[graph.inputs[0]]
    outer = replace(source, name="bytes", dtype="uint8", quantisation=Quantisation(source.quantisation.scale, (131,)))
    quantise = replace(graph.ops[0], kind="QUANTIZE", name="q", inputs=(len(graph.tensors),), outputs=graph.inputs[:1])
    quantise = replace(quantise, options=NoOptions())
    wrapped = replace(graph, tensors=(*graph.tensors, outer), ops=(quantise, *graph.ops), inputs=(len(graph.tensors),))
    path = tmp_path / "bytes.tflite"
    path.write_bytes(write_tflite(wrapped, "test", notes=task_note(task_of(RECORD))))
    assert read_tflite(path).tensors[read_tflite(path).inputs[0]].dtype == "uint8"
    answers = [
        evaluate(each, "builtin_images", set=PICTURES, progress=False).record["confusion"] for each in (model, path)
    ]
    assert answers[0] == answers[1]
