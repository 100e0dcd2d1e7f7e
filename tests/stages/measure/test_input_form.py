"""Inputs in the form that the firmware takes: whatever it is, the device's outputs are bit-exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from pipeline.stage import Target, read_json, write_json
from stages.firmware.stage import FirmwareConfig
from stages.graph.graph import Graph, Quantisation
from stages.graph.judge.tflm import run_tflm
from stages.measure.input_form import InputForm
from stages.measure.stage import MeasureConfig, Measured
from stages.measure.stage import run as measure_step
from tests.benchmarks.subjects.benchmark_networks import anomaly_detector
from tests.stages.firmware.test_firmware_stage import build
from tests.stages.graph.int8_graphs import residual_network
from tests.stages.measure.conftest import BOARD, Flashed, flash_twin
from tests.stages.measure.test_measure import Counter

INPUTS = 3


def flashed_in(form: str, graph: Graph, folder: Path) -> Flashed:
    """The network as firmware that takes this form, with golden values."""
    folder.mkdir()
    dataset = write_json(folder / "dataset.json", {"source": "test"})
    model, built, proof = flash_twin(folder, graph, dataset, FirmwareConfig(input=form))
    shape = graph.tensors[graph.inputs[0]].shape[1:]
    inputs = np.random.default_rng(3).integers(-128, 128, (INPUTS, *shape), dtype=np.int8)
    np.savez(folder / "golden.npz", inputs=inputs, outputs=run_tflm(model.read_bytes(), graph, inputs))
    (folder / "features").mkdir()
    np.save(folder / "features" / "test_x.npy", inputs)
    np.save(folder / "features" / "test_y.npy", np.zeros(INPUTS, np.int64))
    return Flashed(graph, model, folder / "golden.npz", built, proof, folder / "features", dataset)


def measured(flashed: Flashed, out_dir: Path, footprint: Path | None = None) -> Measured:
    out_dir.mkdir()
    paths = flashed.firmware.twin, footprint or flashed.firmware.footprint, flashed.model, flashed.golden
    return measure_step.function(
        *(flashed.flash, *paths, flashed.features, flashed.dataset),
        config=MeasureConfig(runs=1, warmup=0, accuracy_inputs=INPUTS),
        target=Target(BOARD, "virtual"),
        experiment="trial",
        out_dir=out_dir,
        progress=Counter(),
    )


@pytest.fixture(scope="module")
def in_form(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Flashed]:
    folder = tmp_path_factory.mktemp("forms")
    return {form: flashed_in(form, residual_network(3), folder / form) for form in ("uint8", "float32")}


@pytest.mark.parametrize("form", ["uint8", "float32"])
def test_whatever_the_form_outputs_and_accuracy_are_those_of_the_host(
    form: str, in_form: dict[str, Flashed], tmp_path: Path
) -> None:
    flashed = in_form[form]
    found = measured(flashed, tmp_path / "out")
    with np.load(flashed.golden) as golden, np.load(found.outputs) as seen:
        np.testing.assert_array_equal(seen["outputs"], golden["outputs"])
        assert seen["inputs"].dtype == np.dtype(form), "as it was sent"
        if form == "uint8":
            np.testing.assert_array_equal(seen["inputs"].astype(int), golden["inputs"].astype(int) + 128)
    accuracy, device = read_json(found.device_accuracy), read_json(found.device)
    assert (accuracy["outputs_equal"], accuracy["differences"]) == (INPUTS, [])
    assert (device["input_form"], device["model_name"], device["golden_outputs_equal"]) == (form, "custom", INPUTS)


def test_a_host_that_sends_another_form_than_the_firmware_takes_is_found_out(
    in_form: dict[str, Flashed], tmp_path: Path
) -> None:
    flashed = in_form["uint8"]
    built = read_json(flashed.firmware.footprint)
    wrong = write_json(tmp_path / "footprint.json", {**built, "link": {**built["link"], "input": "int8"}})
    with pytest.raises(StageError, match="output of golden input 0 differs first at byte"):
        measured(flashed, tmp_path / "out", wrong)


def test_floats_are_the_values_that_the_tensor_stands_for() -> None:
    form = InputForm("float32", Quantisation((0.25,), (3,)))
    assert form.sent(np.array([-128, 3, 5], np.int8)).tolist() == [-32.75, 0.0, 0.5]
    assert replace(form, kind="int8").sent(np.array([-1], np.int8)).tolist() == [-1]


@pytest.mark.parametrize(
    ("config", "network", "sentence"),
    [
        ({"answer": "reconstruction_error"}, anomaly_detector, "found reconstruction_error for int8 of 640 values"),
        (
            {"answer": "reconstruction_error", "input": "float32"},
            lambda: residual_network(3),
            "of 189 values and outputs of 5",
        ),
    ],
)
def test_an_answer_that_the_network_cannot_give_is_refused(config, network, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=sentence):
        build(tmp_path / "out", network(), config=FirmwareConfig(**config))
