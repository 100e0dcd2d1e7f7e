"""A stock-like runner drives the anomaly detector and the streaming wake word on the twin in its three modes.

Keywords and pictures: test_conformance.py. All five, networks of real size: tests.benchmarks.firmware.mlperf_tasks.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from boards import load_board
from hil.virtual.twin import Twin
from pipeline.stage import write_json
from stages.graph.graph import ActivationOptions, Graph
from stages.tools.mlperf.command import run as run_mlperf
from stages.tools.mlperf.inputs import Stream, write_stream
from stages.tools.mlperf.scoring import auc
from stages.tools.mlperf.tasks import MODES, TASKS
from tests.boards.link.driven_tasks import (
    BOARD,
    TaskImages,
    built,
    clock_hz,
    host_errors,
    play,
    windows_are_long_enough,
)
from tests.boards.link.stock_runner import StockRunner
from tests.boards.link.test_conformance import TRACED, pulses_and_text
from tests.boards.stm32.emulated_board import EmulatedBoard
from tests.boards.twin.qemu_twin import running_twin
from tests.stages.firmware.front_ends import Task, clips_of_every_kind
from tests.stages.graph.int8_graphs import Int8Builder

VALUES = 40


@pytest.fixture(scope="module")
def autoencoder() -> Graph:
    builder = Int8Builder(6)
    x = builder.flatten(builder.input(1, 1, VALUES))
    for width in (16, 4, VALUES):
        x = builder.fully_connected(x, width, ActivationOptions("none" if width == VALUES else "relu"))
    return builder.graph(x)


@pytest.fixture(scope="module")
def detector(autoencoder: Graph, tmp_path_factory: pytest.TempPathFactory) -> TaskImages:
    return built(TASKS["AD"], autoencoder, tmp_path_factory.mktemp("detector"))


def test_the_anomaly_detector_answers_the_hosts_score_to_the_last_digit(
    detector: TaskImages, autoencoder: Graph
) -> None:
    scale = np.float32(autoencoder.tensors[autoencoder.inputs[0]].quantisation.scale[0])
    rng = np.random.default_rng(0)
    floats = rng.normal(0, 60 * scale, (60, VALUES)).astype("<f4")
    floats[0], floats[1] = 0.0, 1e4  # far beyond the grid
    floats[2] = (np.arange(VALUES) - 20 + 0.5) * scale  # halves
    labels = rng.integers(0, 2, len(floats)).tolist()
    wanted = host_errors(autoencoder, floats)
    with running_twin(detector.performance.twin) as (twin, _):
        runner = StockRunner(twin.ask)
        assert runner.identify() == (f"virtual {BOARD}", "ad01")
        assert twin.ask("baud") == ["m-baud-[921600]"]
        found = []
        for one in floats:
            runner.load(one.tobytes())
            lines = twin.ask("infer 1 0")
            found.append(re.fullmatch(r"m-results-\[(\d+\.\d{3})\]", lines[-1])[1])
        windows_are_long_enough(runner, [one.tobytes() for one in floats[:2]])
        file = floats[3:6].tobytes()
        mean = runner.file_score(file, 4 * VALUES, 4 * VALUES)
        assert mean == pytest.approx(np.mean([float(score) for score in wanted[3:6]]))
        twin.ask("db load 4")  # and a load too few
        with pytest.raises(KeyError, match="results"):
            runner.infer(1, 0)
    assert found == wanted
    scores = [[float(text) for text in texts] for texts in (found, wanted)]
    assert auc(scores[0], labels) == auc(scores[1], labels)


def test_what_is_no_number_gives_no_score(detector: TaskImages) -> None:
    with running_twin(detector.performance.twin) as (twin, _):
        runner = StockRunner(twin.ask)
        for value in (np.nan, np.inf, 1e30):
            runner.load(np.full(VALUES, value, "<f4").tobytes())
            assert twin.ask("infer 1 0")[-1] == "m-results-[inf]"
        runner.load(np.zeros(VALUES, "<f4").tobytes())
        assert re.fullmatch(r"m-results-\[\d+\.\d{3}\]", twin.ask("infer 1 0")[-1])


def test_the_anomaly_detector_marks_its_energy_by_pulses_at_9600_baud(detector: TaskImages, tmp_path: Path) -> None:
    log = tmp_path / "trace.log"
    tracing = ["-D", str(log), "-d", ",".join(f"trace:{event}" for event in TRACED)]
    with running_twin(detector.energy.twin, arguments=tracing) as (twin, boot):
        runner = StockRunner(twin.ask)
        runner.load(np.ones(VALUES, "<f4").tobytes())
        assert runner.infer(3, 1)[0] == ()
        assert (boot[0], twin.ask("baud")) == ("m-timestamp-mode-energy", ["m-baud-[9600]"])
    assert pulses_and_text(log).count("m-infer-start-3\r\n~~m-infer-done\r\n") == 1


def test_a_board_speaks_the_fast_rate_from_the_start(detector: TaskImages) -> None:
    board = EmulatedBoard(detector.performance.image, load_board(BOARD))
    assert board.baud() == pytest.approx(921_600, rel=0.01)
    assert board.ask(b"db load 160%").startswith(b"m-[Expecting 160 bytes]")


@pytest.fixture(scope="module")
def wake_word(audio_task: Task, tmp_path_factory: pytest.TempPathFactory) -> TaskImages:
    folder = tmp_path_factory.mktemp("wake_word")
    return built(TASKS["SWW"], audio_task.graph, folder, audio_task.write(folder))


def test_a_wake_word_run_tells_detections_and_how_busy_the_device_was(wake_word: TaskImages) -> None:
    sound = clips_of_every_kind(16_000, each=1).reshape(-1)[: 3 * 16_000]
    hops = (len(sound) - 640) // 320 + 1
    with Twin(wake_word.performance.twin, name="twin") as twin:
        runner = StockRunner(lambda command: list(twin.link.command(command)))
        assert runner.identify()[1] == "sww01"
        assert twin.link.command("stop") == (), "before any start: nothing to tell"
        runs = [runner.stream(lambda: play(twin.link, sound, 320 / 16_000, 640 / 16_000)) for _ in range(2)]
    for times, (_, heard, busy) in runs:
        assert times == runs[0][0] != [], "the same words each time"
        assert heard == f"m-heard-[{hops},{len(times)}]"
        duty = int(re.fullmatch(r"m-busy-\[(\d+)\]", busy)[1]) / clock_hz() / (len(sound) / 16_000)
        assert 0 < duty < 1


def test_a_wake_word_run_for_energy_lies_between_two_pulses(wake_word: TaskImages, tmp_path: Path) -> None:
    log = tmp_path / "trace.log"
    tracing = ["-D", str(log), "-d", ",".join(f"trace:{event}" for event in TRACED)]
    with running_twin(wake_word.energy.twin, arguments=tracing) as (twin, _):
        _, lines = StockRunner(twin.ask).stream(lambda: [])
    assert lines == ["m-heard-[0,0]", "m-busy-[0]"]
    assert pulses_and_text(log).endswith("m-ready\r\n~m-ready\r\n~m-heard-[0,0]\r\nm-busy-[0]\r\nm-ready\r\n")


def test_our_own_host_runs_the_streaming_task_and_its_pages_agree(
    wake_word: TaskImages, audio_task: Task, tmp_path: Path
) -> None:
    sound = clips_of_every_kind(16_000, each=1).reshape(-1)[: 3 * 16_000]
    data = write_stream(tmp_path / "data", TASKS["SWW"], Stream("a.wav", sound, ((0.1, 0.4),)))
    flashed = write_json(tmp_path / "flash.json", {"probe_serial": ""})
    wanted = {"task": "SWW", "board": BOARD, "source": "virtual", "out": tmp_path / "out", "data": data}
    for energy, image in ((False, wake_word.performance), (True, wake_word.energy)):
        run_mlperf(wanted, {"footprint": image.footprint, "twin": image.twin, "flash": flashed}, energy)
    results = tmp_path / "out" / "open" / "submitter" / "results" / f"virtual_{BOARD}" / "sww"
    pages = {mode: json.loads((results / mode / "results.json").read_text()) for mode in MODES}
    assert pages["performance"][0]["counts"] == pages["accuracy"][0]["counts"]
    assert 0 < pages["performance"][0]["dutycycle"] < 1
    (window,) = pages["energy"]
    assert window["power"]["elapsed_s"] == pytest.approx(3.0, abs=0.1), "the recording's length"
    active, idle = load_board(BOARD).power_active_w, 0.5 * load_board(BOARD).power_active_w
    assert idle < window["power"]["energy_j"] / window["power"]["elapsed_s"] < active
    assert "True positives" in (results / "accuracy" / "results.txt").read_text()
