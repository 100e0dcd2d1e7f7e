"""Front end and stream on a real twin: features, cycles, words in a minute of synthetic audio."""

from __future__ import annotations

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from boards import load_board
from hil.link.audio import AudioLink
from hil.virtual.twin import Twin
from pipeline.errors import StageError
from pipeline.stage import Target, read_json
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.graph.judge.tflm import run_tflm
from stages.measure.audio.front_end import measure_front_end, trial_clip
from stages.measure.audio.listening import measure_stream
from stages.measure.audio.scene import SLOT_S, Scene, speak_scene
from stages.measure.session import OpenLink
from stages.measure.stage import MeasureConfig, run
from tests.stages.firmware.front_ends import Task, clips_of_every_kind
from tests.stages.measure.audio.word_detector import CLASSES, VOICES, fitted_task
from tests.stages.measure.conftest import BOARD, flash_twin
from tests.stages.measure.test_measure import Counter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="to enable: apt-get install espeak-ng"),
]


@dataclass(frozen=True)
class Ears:
    """A twin that hears, and what it was made from."""

    task: Task
    folder: Path
    model: Path
    dataset: Path
    firmware: Firmware
    flash: Path


@pytest.fixture(scope="module")
def ears(tmp_path_factory: pytest.TempPathFactory) -> Ears:
    folder = tmp_path_factory.mktemp("ears")
    task = fitted_task()
    dataset = task.write(folder)
    config = FirmwareConfig(front_end="kws_stream")
    return Ears(task, folder, folder / "model.tflite", dataset, *flash_twin(folder, task.graph, dataset, config)[1:])


@pytest.fixture(scope="module")
def device(ears: Ears):
    with Twin(ears.firmware.twin) as twin:
        yield OpenLink(twin.link, "virtual", "twin")


def test_features_on_the_twin_are_those_of_the_host(ears: Ears, device: OpenLink) -> None:
    clips = np.concatenate([clips_of_every_kind(16000, seed=2, each=4), _said()])
    audio = AudioLink(device.link)
    found = np.stack([np.frombuffer(audio.features(clip.tobytes()), np.int8) for clip in clips]).astype(int)
    gaps = np.abs(found - ears.task.host_features(clips).reshape(len(clips), -1))
    assert np.mean(gaps <= 1) >= 0.999
    assert np.mean(gaps == 0) >= 0.99
    assert len(np.unique(found)) > 100


def _said() -> np.ndarray:
    scene = speak_scene(CLASSES, 4)
    starts = [int(word.start_s * 16000) for word in scene.spoken]
    return np.stack([scene.samples[start : start + 16000] for start in starts])


def test_words_in_a_minute_of_audio_are_found(ears: Ears, device: OpenLink) -> None:
    scene = speak_scene(CLASSES, 20, VOICES)
    assert len(scene.samples) == 60 * 16000
    front_end = read_json(ears.firmware.footprint)["front_end"]
    progress = Counter()
    seen = measure_stream(device, scene, front_end, ears.model.read_bytes(), ears.task.graph, progress)
    assert (seen.seconds, progress.done) == (60.0, 60)
    assert seen.runs == seen.sums_equal == 1 + (2999 - 49) // 5
    assert seen.score.words == 16
    assert seen.score.hits >= 14
    assert seen.score.false_alarms <= 2
    assert seen.score.mean_delay_s is not None
    assert -0.5 < seen.score.mean_delay_s < 1.0


def test_a_stream_unlike_its_reference_is_refused(ears: Ears, device: OpenLink) -> None:
    front_end = read_json(ears.firmware.footprint)["front_end"]
    scene = Scene(speak_scene(CLASSES, 2, VOICES).samples, ())
    other = {**front_end, "stream": {**front_end["stream"], "smooth_runs": 2}}
    with pytest.raises(StageError, match=r"twin: \d+ of \d+ runs in the stream have the sums of the reference"):
        measure_stream(device, scene, other, ears.model.read_bytes(), ears.task.graph, Counter())


def test_features_of_another_data_set_are_refused(ears: Ears, device: OpenLink) -> None:
    record = {**ears.task.record, "feature_std": [2 * value for value in ears.task.record["feature_std"]]}
    with pytest.raises(StageError, match="features are more than one step off the host's"):
        measure_front_end(device, trial_clip(16000, 16000), record, ears.task.graph)


def test_the_step_reports_front_end_stream_and_accuracy(ears: Ears, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    inputs = rng.integers(-128, 128, (3, 49, 10, 1)).astype(np.int8)
    golden, features = tmp_path / "golden.npz", tmp_path / "features"
    np.savez(golden, inputs=inputs, outputs=run_tflm(ears.model.read_bytes(), ears.task.graph, inputs))
    features.mkdir()
    np.save(features / "test_x.npy", rng.normal(0, 1, (20, 49, 10, 1)).astype(np.float32))
    np.save(features / "test_y.npy", rng.integers(0, len(CLASSES), 20))
    (tmp_path / "out").mkdir()
    measured = run.function(
        ears.flash,
        ears.firmware.twin,
        ears.firmware.footprint,
        ears.model,
        golden,
        features,
        ears.dataset,
        config=MeasureConfig(runs=2, warmup=0, accuracy_inputs=5, stream_words=3),
        target=Target(BOARD, "virtual"),
        experiment="trial",
        out_dir=tmp_path / "out",
        progress=Counter(),
    )
    device, accuracy = read_json(measured.device), read_json(measured.device_accuracy)
    with measured.device_layers.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["index"] for row in rows] == ["-1", *(str(index) for index in range(len(ears.task.graph.ops)))]
    front_end = rows[0]
    assert (front_end["op"], front_end["name"], front_end["macs"], front_end["cycles"]) == ("MFCC", "front_end", "", "")
    # 49 frames, each a transform of 1024 points: some 50 thousand instructions.
    assert 49 * 30_000 < int(front_end["instructions"]) < 49 * 80_000
    assert int(front_end["cycles_modelled"]) >= int(front_end["cycles_zero_wait"]) > int(front_end["instructions"]) / 2
    assert device["front_end"]["instructions"] == int(front_end["instructions"])
    assert device["front_end"]["features_within_one"] >= 0.999 * device["front_end"]["features"] == 0.999 * 490
    for column in ("instructions", "cycles_modelled"):
        assert sum(int(row[column]) for row in rows[1:]) == device[column], "the network's own figures stay without it"
    clock_hz = load_board(BOARD).clock_hz
    modelled_ms = int(front_end["cycles_modelled"]) / clock_hz * 1e3
    assert device["front_end"]["latency_ms_modelled"] == pytest.approx(modelled_ms)
    assert device["stream"]["seconds"] == 3 * SLOT_S
    assert device["stream"]["sums_equal"] == device["stream"]["runs"] > 0
    # In 100 ms one run of the network and five frames of 49.
    per_run = device["cycles_modelled"] + 5 / 49 * device["front_end"]["cycles_modelled"]
    assert device["stream"]["busy_share_modelled"] == pytest.approx(per_run / (0.1 * clock_hz))
    assert (accuracy["n"], accuracy["outputs_equal"], accuracy["differences"]) == (5, 5, [])
    assert accuracy["accuracy_device"] == accuracy["accuracy_host"]


def test_the_same_scene_is_spoken_every_time() -> None:
    once, again = speak_scene(CLASSES, 5, 1), speak_scene(CLASSES, 5, 1)
    assert np.array_equal(once.samples, again.samples)
    assert once.spoken == again.spoken
    assert [word.word is None for word in once.spoken] == [False] * 4 + [True]
    for slot, word in enumerate(once.spoken):
        assert slot * SLOT_S <= word.start_s < word.end_s < (slot + 1) * SLOT_S


def test_the_scene_is_the_one_that_figures_were_measured_with() -> None:
    scene = speak_scene(CLASSES, 10, 1)
    assert [word.word for word in scene.spoken] == [3, 0, 0, 3, None, 2, 3, 1, 1, None]
    assert scene.samples[:8].tolist() == [14, -48, -44, -10, 8, 5, -59, -38]  # noise, before anybody speaks
    assert [word.start_s for word in scene.spoken[:3]] == pytest.approx([0.47, 3.38, 7.29], abs=0.05)
    assert scene.samples.dtype == np.dtype("<i2")
    assert 10_000 < np.abs(scene.samples.astype(int)).max() < 32_768


def test_the_trial_clip_is_the_one_that_figures_were_measured_with() -> None:
    np.testing.assert_allclose(trial_clip(16000, 16000)[[0, 1, 2, 1000, 8000]], [-1304, -192, 3640, 332, -63], atol=1)


def test_classes_that_nobody_can_say_are_refused() -> None:
    with pytest.raises(StageError, match="speaks none of the classes cat, dog; set measure.stream_words=0"):
        speak_scene(("cat", "dog"), 2)
