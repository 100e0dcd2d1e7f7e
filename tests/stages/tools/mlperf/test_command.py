"""`pipeline mlperf` on a twin: three modes with our own host, the folder it leaves, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import ConfigError, StageError
from pipeline.stage import Target, write_json
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.flash.stage import FlashConfig
from stages.flash.stage import run as flash
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from stages.graph.tflite.writer import write_tflite
from stages.tools.mlperf.command import check, prepare, run, submit
from stages.tools.mlperf.inputs import Stream, read_examples, read_streams, write_stream
from stages.tools.mlperf.pages import VIRTUAL
from stages.tools.mlperf.scoring import Detections, auc, detections, top1
from stages.tools.mlperf.tasks import TASKS, task_named
from tests.stages.graph.int8_graphs import residual_network

BOARD = "nucleo_f767zi"
TASK = TASKS["IC"]
INPUTS = 6


@pytest.fixture(scope="module")
def network() -> Graph:
    return residual_network(3)


@pytest.fixture(scope="module")
def artifacts(network: Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    """Both images of the task, as the steps leave them."""
    folder = tmp_path_factory.mktemp("mlperf")
    (folder / "model.tflite").write_bytes(write_tflite(network, "test"))
    features = folder / "features"
    features.mkdir()
    rng = np.random.default_rng(4)
    inputs = rng.integers(-128, 128, (INPUTS, *network.tensors[network.inputs[0]].shape[1:]), dtype=np.int8)
    np.save(features / "test_x.npy", inputs)
    np.save(features / "test_y.npy", rng.integers(0, 5, INPUTS))
    found = {}
    for mode in ("performance", "energy"):
        out = folder / mode
        out.mkdir()
        settings = dict(one.removeprefix("firmware.").split("=") for one in TASK.settings(mode == "energy"))
        config = FirmwareConfig.model_validate(settings)
        built = firmware.function(folder / "model.tflite", None, config=config, board=BOARD, out_dir=out)
        proof = flash.function(
            *(built.image, built.image_bin, built.twin, built.footprint),
            config=FlashConfig(),
            target=Target(BOARD, "virtual"),
            out_dir=out,
        )
        found[mode] = {
            **{"image": built.image, "image_bin": built.image_bin, "image_hex": built.image_hex, "twin": built.twin},
            **{"generated": built.generated, "footprint": built.footprint, "flash": proof.flash},
            **{"model": folder / "model.tflite", "features": features},
        }
    return found


def wanted(out: Path, **changes: Any) -> dict[str, Any]:
    return {"task": "IC", "board": BOARD, "source": "virtual", "out": out, "window_s": 0.02, **changes}


@pytest.fixture(scope="module")
def made(
    artifacts: dict[str, dict[str, Path]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("submission")
    runs = {mode: run(wanted(out), artifacts[mode], mode == "energy").record for mode in artifacts}
    answer = submit(wanted(out), artifacts, runs, False, "pipeline mlperf IC")
    return out / "open" / "submitter", answer.record


def test_the_modes_leave_the_published_layout(made: tuple[Path, dict[str, Any]], network: Graph, artifacts) -> None:
    folder, record = made
    results = folder / "results" / f"virtual_{BOARD}" / "ic"
    assert {path.name for path in results.iterdir()} == {"performance", "accuracy", "energy"}
    windows = json.loads((results / "performance" / "results.json").read_text())
    assert len(windows) == 5 and all(row["infer"]["elapsed_time"] >= 0.02e6 for row in windows), "by the twin's clock"
    rows = json.loads((results / "accuracy" / "results.json").read_text())
    x, y = (np.load(artifacts["performance"]["features"] / f"test_{name}.npy") for name in ("x", "y"))
    levels = run_graph(network, x)[network.outputs[0]].reshape(INPUTS, -1).astype(int) + 128
    assert [row["infer"]["results"] for row in rows] == [[float(f"{v / 256:.3f}") for v in row] for row in levels]
    assert f"Top 1% = {100 * top1(levels.tolist(), y.tolist()):2.1f}" in (results / "accuracy/results.txt").read_text()
    power = json.loads((results / "energy" / "results.json").read_text())
    assert len(power) == 5 and all(row["power"]["measurement_point"] == "board" for row in power)
    assert (folder / "code/image_classification/tinyml_pipeline/devices.yaml").exists()
    assert record["virtual"] and all(VIRTUAL in path.read_text() for path in folder.rglob("results.txt"))


def test_the_checker_finds_only_that_these_windows_are_short(made: tuple[Path, dict[str, Any]]) -> None:
    folder, record = made
    assert [one.split(": ", 1)[1].split(" lasts")[0] for one in record["findings"]] == ["a window"] * 2
    assert check(folder).record["findings"] == record["findings"]


def test_a_device_with_another_task_is_refused(artifacts: dict[str, dict[str, Path]], tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"runs ic01, needed kws01; force the flash step"):
        run(wanted(tmp_path, task="KWS"), artifacts["performance"], False)


def test_mistakes_are_told_before_anything_is_built(tmp_path: Path) -> None:
    for changes, pruned, sentence in (
        ({"task": "XYZ"}, False, "unknown task 'XYZ', known are KWS, IC, VWW, AD, SWW"),
        ({"division": "closed"}, True, "the network was pruned"),
        ({"division": "half"}, False, "found 'half', needed open or closed"),
        ({"data": tmp_path / "none"}, False, "no such folder"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            prepare(wanted(tmp_path, **changes), pruned)
    assert task_named("ad01").code == "AD"


def test_official_inputs_are_read_as_the_runner_reads_them(tmp_path: Path) -> None:
    root = tmp_path / "ad01"
    root.mkdir()
    (root / "a.bin").write_bytes(bytes(range(24)))
    (root / "y_labels.csv").write_text("a.bin,2,1,16,4\n")
    (example,) = read_examples(tmp_path, TASKS["AD"], 16)
    assert (example.label, example.windows) == (1, tuple(bytes(range(at, at + 16)) for at in (0, 4, 8)))
    for text, sentence in (
        ("b.bin,2,1\n", r"b\.bin: no such file"),
        ("../a.bin,2,1\n", "no such file"),
        ("a.bin,2\n", "needed file, number of classes, class"),
        ("a.bin,2,1\n", r"inputs of 24 B, the network takes 16 B"),
        ("", "has no line"),
    ):
        (root / "y_labels.csv").write_text(text)
        with pytest.raises(ConfigError, match=sentence):
            read_examples(tmp_path, TASKS["AD"], 16)
    with pytest.raises(ConfigError, match=r"holds no y_labels\.csv, nor does kws01/ in it"):
        read_examples(tmp_path, TASKS["KWS"], 16)


def test_a_recording_comes_back_as_it_was_written(tmp_path: Path) -> None:
    sound = np.arange(-500, 500, dtype="<i2")
    write_stream(tmp_path, TASKS["SWW"], Stream("a.wav", sound, ((0.5, 1.0),)))
    (found,) = read_streams(tmp_path, TASKS["SWW"])
    np.testing.assert_array_equal(found.samples, sound)
    assert found.words_s == ((0.5, 1.0),)
    write_json(tmp_path / "sww01" / "sww_long_test.json", [{"wav": "a.wav"}])
    with pytest.raises(ConfigError, match="not the runner's list of recordings"):
        read_streams(tmp_path, TASKS["SWW"])


def test_detections_count_within_a_second_after_the_word_and_once_a_second_elsewhere() -> None:
    words = ((1.0, 1.5), (7.0, 7.4))
    assert detections([2.5, 2.6, 2.7, 3.4, 3.8, 9.0], words) == Detections(1, 1, 3)
    assert detections([], words) == Detections(0, 2, 0)
    assert detections([1.0, 8.4], words) == Detections(2, 0, 0)


def test_the_area_under_the_curve_is_that_of_all_pairs() -> None:
    assert auc([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1]) == 1.0
    assert auc([1.0, 1.0, 3.0, 0.0], [0, 1, 1, 0]) == pytest.approx((0.5 + 1 + 1 + 1) / 4)
    assert np.isnan(auc([1.0], [1]))
