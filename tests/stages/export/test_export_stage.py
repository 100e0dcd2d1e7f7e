"""The export step from qat.pt to files, all of them checked against the runtime; and what it refuses."""

from __future__ import annotations

import csv
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from pipeline.stage import Checkpoint, read_json
from stages.export.evaluation import Labelled, golden_inputs
from stages.export.planned_model import PlannedModel, planned_model, verify
from stages.export.quantise import int8_graph
from stages.export.stage import ExportConfig, Exported, run
from stages.graph.graph import Graph
from stages.graph.judge.tflm import arena_head_bytes, run_tflm
from stages.graph.memory.plan_record import plan_record
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.task import read_task
from stages.graph.tflite.writer import write_tflite
from stages.qat.fake_quant import FakeQuantNetwork
from stages.qat.stage import QatConfig
from stages.qat.stage import run as run_qat
from tests.stages.graph.int8_graphs import random_inputs, residual_network
from tests.stages.qat.float_graphs import FloatBuilder
from tests.stages.qat.small_task import CLASSES, Quiet, SmallTask, small_task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> SmallTask:
    return small_task(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def qat_network(task: SmallTask, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qat")
    config = QatConfig(epochs=4, batch=20, learning_rate=2e-2, calibration_samples=60, threads=1)
    files = (task.features, task.network, task.architecture)
    checkpoint = Checkpoint(folder / "checkpoint")
    return run_qat.function(*files, config=config, out_dir=folder, progress=Quiet(), checkpoint=checkpoint).qat_network


def export(task: SmallTask, qat_network: Path, out_dir: Path, exporter: Literal["own", "litert"] = "own") -> Exported:
    config = ExportConfig(golden_samples=10, exporter=exporter)
    return run.function(
        task.features,
        task.dataset,
        task.network,
        task.architecture,
        qat_network,
        config=config,
        out_dir=out_dir,
        progress=Quiet(),
    )


@pytest.fixture(scope="module")
def exported(task: SmallTask, qat_network: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(task, qat_network, tmp_path_factory.mktemp("export"))


def test_the_golden_outputs_are_those_of_the_runtime(exported: Exported) -> None:
    golden = np.load(exported.golden)
    graph = read_tflite(exported.model)
    assert golden["inputs"].shape == (12, 13, 10, 1) and golden["inputs"].dtype == np.int8
    np.testing.assert_array_equal(golden["outputs"], run_tflm(exported.model.read_bytes(), graph, golden["inputs"]))
    assert (golden["inputs"][-2] == -128).all() and (golden["inputs"][-1] == 127).all()
    assert golden["labels"][-2:].tolist() == [-1, -1]
    assert set(golden["labels"][:-2].tolist()) == set(range(CLASSES))


def test_the_file_says_what_it_was_trained_for(task: SmallTask, exported: Exported) -> None:
    told = read_task(exported.model)
    assert told is not None
    assert told.model_dump(mode="json") == {**read_json(task.dataset)}


def test_the_accuracy_is_what_the_runtime_reaches(exported: Exported, task: SmallTask) -> None:
    accuracy = read_json(exported.accuracy)
    graph = read_tflite(exported.model)
    grid = graph.tensors[graph.inputs[0]].quantisation
    assert grid is not None
    x, y = (np.load(task.features / f"test_{part}.npy") for part in "xy")
    inputs = np.clip(np.round(x / np.float32(grid.scale[0])) + grid.zero_point[0], -128, 127).astype(np.int8)
    chosen = run_tflm(exported.model.read_bytes(), graph, inputs).argmax(1)
    assert accuracy["n"] == 240
    assert accuracy["accuracy_int8"] == pytest.approx((chosen == y).mean())
    assert accuracy["accuracy_int8"] > 0.9
    # Every rounding of the fake-quant network is the device's own, so that nothing is left to chance.
    assert accuracy["agreement_fake_quant"] == 1.0
    assert accuracy["gap_points"] == 0.0 and accuracy["warning"] == ""
    assert accuracy["litert"] is None
    assert np.sum(accuracy["confusion"]) == 240
    assert np.trace(np.array(accuracy["confusion"])) == round(accuracy["accuracy_int8"] * 240)
    assert set(accuracy["per_class"]) == {f"class {number}" for number in range(CLASSES)}


def test_the_plan_is_the_one_in_the_file_and_the_one_that_the_runtime_uses(exported: Exported) -> None:
    plan, graph = read_json(exported.plan), read_tflite(exported.model)
    offsets = read_offline_offsets(exported.model)
    assert offsets is not None
    assert {t["index"]: t["offset"] for t in plan["tensors"]} == {i: at for i, at in enumerate(offsets) if at >= 0}
    assert arena_head_bytes(exported.model.read_bytes(), graph) == plan["arena_bytes"]
    assert [op["name"] for op in plan["ops"]] == [op.name for op in graph.ops]
    assert max(op["live_bytes"] for op in plan["ops"]) == plan["lower_bound_bytes"]
    assert plan["order_proven_optimal"] is True and plan["layout_proven_optimal"] is True
    # 13x10 stem of 12 channels beside its depthwise at half the size; all weights and biases by hand
    assert plan["peak_bytes"] == 13 * 10 * 12 + 7 * 5 * 12
    weights = 40 * 12 + 9 * 12 + 12 * 16 + 9 * 16 + 16 * 14 + 14 * 4
    assert plan["size_bytes"] == weights + 4 * (12 + 12 + 16 + 16 + 14 + 4)


def test_the_same_inputs_give_the_same_bytes(
    exported: Exported, task: SmallTask, qat_network: Path, tmp_path: Path
) -> None:
    again = export(task, qat_network, tmp_path)
    for name in ("model", "plan", "accuracy", "layer_error", "golden"):
        assert getattr(again, name).read_bytes() == getattr(exported, name).read_bytes(), name


def test_every_op_has_its_error_in_a_table(exported: Exported) -> None:
    with exported.layer_error.open() as file:
        rows = list(csv.DictReader(file))
    graph = read_tflite(exported.model)
    assert [(row["op"], row["name"]) for row in rows] == [(op.kind, op.name) for op in graph.ops]
    assert list(rows[0])[:5] == ["index", "op", "name", "sqnr_db", "own_sqnr_db"]
    # An int8 grid with little clipping has some 40 dB; what comes later brings the noise of all before along.
    assert 30 < float(rows[0]["sqnr_db"]) < 60 and rows[0]["sqnr_db"] == rows[0]["own_sqnr_db"]
    assert all(0 < float(row["sqnr_db"]) < 60 for row in rows)
    reshape = next(row for row in rows if row["op"] == "RESHAPE")
    assert reshape["own_sqnr_db"] == ""  # it adds no error at all


@pytest.mark.skipif(
    importlib.util.find_spec("litert_torch") is not None,
    reason="litert-torch is installed here; to enable, use an environment without it",
)
def test_the_second_exporter_names_its_extra(task: SmallTask, qat_network: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"pip install 'tinyml-pipeline\[litert\]'"):
        export(task, qat_network, tmp_path, "litert")


@pytest.mark.skipif(
    importlib.util.find_spec("litert_torch") is None,
    reason="needs litert-torch; to enable: pip install torch==2.13.0 'tinyml-pipeline[litert]'",
)
@pytest.mark.slow
def test_the_second_exporter_agrees_on_the_float_network(
    exported: Exported, task: SmallTask, qat_network: Path, tmp_path: Path
) -> None:
    checked = export(task, qat_network, tmp_path, "litert")
    found = read_json(checked.accuracy)["litert"]
    assert found["n"] == 100 and found["ptq_agreement"] > 0.9
    assert found["max_abs_difference"] < 1e-4 * found["largest_output"]
    assert checked.model.read_bytes() == exported.model.read_bytes()


def test_a_softmax_that_would_end_the_runtime_is_refused() -> None:
    builder = FloatBuilder(0, 4, 4, 1)
    fake = FakeQuantNetwork(builder.graph(builder.fully_connected(builder.reshape(0, 16), 1000)))
    with torch.no_grad():
        for parameter in fake.parameters():
            parameter *= 1e-3  # a thousand scores that are all alike
    fake.calibrate(torch.ones(4, 1, 4, 4))
    model = planned_model(int8_graph(fake.quantised_graph()), "test")
    with pytest.raises(StageError, match=r"SOFTMAX .*: the scores of 1000 classes are so alike that .* aborts"):
        verify(model, np.full((1, 4, 4, 1), 127, np.int8))


def with_bias_changed(graph: Graph, number: int) -> Graph:
    tensors = list(graph.tensors)
    index = graph.ops[number].inputs[2]
    data = tensors[index].data
    assert data is not None
    tensors[index] = replace(tensors[index], data=data + np.int32(100_000))
    return replace(graph, tensors=tuple(tensors))


def test_verification_names_the_first_op_that_differs() -> None:
    model = planned_model(residual_network(0), "test")
    inputs = random_inputs(model.graph, 5)
    verify(model, inputs)
    tampered = write_tflite(with_bias_changed(model.graph, 2), "test", model.layout.offsets)
    with pytest.raises(
        StageError, match=r"model\.tflite: op 2 \(CONV_2D activation9\): \d+ of \d+ values differ, by up to"
    ):
        verify(replace(model, content=tampered), inputs)


def test_verification_refuses_a_plan_by_which_tensors_overwrite_each_other() -> None:
    model = planned_model(residual_network(0), "test")
    colliding = list(model.layout.offsets)
    stem, inner = (model.graph.ops[number].outputs[0] for number in (0, 1))
    colliding[inner] = colliding[stem]  # but the sum still needs the stem
    content = write_tflite(model.graph, "test", colliding)
    with pytest.raises(StageError, match="the arena plan changes the outputs of TensorFlow Lite Micro"):
        verify(replace(model, content=content), random_inputs(model.graph, 5))


def test_verification_refuses_an_arena_that_the_runtime_does_not_need() -> None:
    model = planned_model(residual_network(0), "test")
    layout = replace(model.layout, arena_bytes=model.layout.arena_bytes + 16)
    with pytest.raises(StageError, match=r"needs \d+ B of arena, planned were \d+ B"):
        verify(replace(model, layout=layout), random_inputs(model.graph, 2))


def two_branches() -> Graph:
    """One branch that is wide in the middle and narrow at its end, stored behind one that stays wide."""
    from stages.graph.graph import ActivationOptions, ConvOptions
    from tests.stages.graph.int8_graphs import Int8Builder

    builder = Int8Builder(0)
    x = builder.input(6, 6, 4)
    wide = builder.conv(x, 16, (1, 1), ConvOptions())
    middle = builder.conv(x, 32, (1, 1), ConvOptions())
    narrow = builder.conv(middle, 2, (1, 1), ConvOptions())
    first = builder.conv(wide, 4, (1, 1), ConvOptions())
    second = builder.conv(narrow, 4, (1, 1), ConvOptions())
    return builder.graph(builder.elementwise("ADD", first, second, ActivationOptions()))


def test_a_better_order_is_found_written_and_verified() -> None:
    graph = two_branches()
    model = planned_model(graph, "test")
    plan = plan_record(model.graph, model.layout, model.order, model.order_proven_optimal)
    assert (plan.peak_bytes, plan.peak_bytes_stored) == (36 * (4 + 32 + 2), 36 * (4 + 16 + 32))
    assert (plan.peak_bytes_imprecise, plan.macs) == (36 * 36, 36 * (4 * 16 + 4 * 32 + 32 * 2 + 16 * 4 + 2 * 4 + 4))
    assert sorted(plan.order) == list(range(6)) and plan.order != tuple(range(6))
    assert [op.name for op in read_tflite(model.content).ops] == [graph.ops[number].name for number in plan.order]
    verify(model, random_inputs(graph, 5))


def test_golden_inputs_take_the_classes_in_turn() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    inputs = np.arange(7, dtype=np.int8).reshape(7, 1, 1, 1)
    golden = golden_inputs(Labelled(inputs, labels), 5)
    assert golden.labels.tolist() == [0, 1, 2, 0, 1, -1, -1]
    assert golden.inputs.ravel().tolist() == [0, 4, 6, 1, 5, -128, 127]


def test_features_of_another_shape_are_refused(task: SmallTask, qat_network: Path, tmp_path: Path) -> None:
    folder = tmp_path / "features"
    folder.mkdir()
    np.save(folder / "test_x.npy", np.zeros((3, 5, 5, 1), np.float32))
    np.save(folder / "test_y.npy", np.zeros(3, np.int64))
    wrong = replace(task, features=folder)
    with pytest.raises(StageError, match=r"test split has \(3, 5, 5, 1\) and \(3,\), needed \(N, \*\(13, 10, 1\)\)"):
        export(wrong, qat_network, tmp_path)


def test_a_planned_model_is_a_value() -> None:
    model = planned_model(residual_network(0), "test")
    assert isinstance(model, PlannedModel)
    assert model.content == planned_model(residual_network(0), "test").content
