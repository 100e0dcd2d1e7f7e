"""The prepare step as the engine runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from data import CorpusSize, keyword_corpus
from data.examples.stored import stored_split
from data.sounds.mfcc import Mfcc, MfccSettings
from pipeline.errors import ConfigError, StageError
from stages.graph.tflite.task import SoundFeatures, task_of
from stages.prepare.config import DataConfig, PrepareConfig
from stages.prepare.source import open_data
from stages.prepare.stage import Prepared, run

TINY = DataConfig(source="builtin_keywords", voices=4, prosodies=1, copies=2, seed=7)


class Heard:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.phases: list[list[int | str]] = []

    def start(self, total: int, unit: str) -> None:
        self.phases.append([total, unit, 0])

    def advance(self, count: int = 1, note: str = "") -> None:
        self.phases[-1][2] += count  # type: ignore[operator]


def prepared(out_dir: Path, data: DataConfig = TINY, config: PrepareConfig | None = None) -> Prepared:
    out_dir.mkdir(parents=True, exist_ok=True)
    return run.function(config=config or PrepareConfig(), data=data, out_dir=out_dir, progress=Heard())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("tiny"))


def files(result: Prepared) -> dict[str, bytes]:
    paths = [result.dataset, *sorted(result.features.iterdir())]
    return {path.name: path.read_bytes() for path in paths}


def test_two_runs_write_the_same_bytes(tiny: Prepared, tmp_path: Path) -> None:
    assert files(prepared(tmp_path)) == files(tiny)


def test_another_seed_writes_other_features(tiny: Prepared, tmp_path: Path) -> None:
    other = prepared(tmp_path, TINY.model_copy(update={"seed": 8}))
    assert files(other)["train_x.npy"] != files(tiny)["train_x.npy"]
    assert files(other)["train_y.npy"] == files(tiny)["train_y.npy"]


def test_files_have_the_names_shapes_and_types_of_the_contract(tiny: Prepared) -> None:
    assert tiny.dataset.name == "dataset.json"
    assert tiny.features.name == "features"
    for split, count in (("train", 48), ("validation", 12), ("test", 12)):
        x = np.load(tiny.features / f"{split}_x.npy", mmap_mode="r")
        y = np.load(tiny.features / f"{split}_y.npy", mmap_mode="r")
        assert (x.shape, x.dtype) == ((count, 49, 10, 1), np.float32)
        assert (y.shape, y.dtype) == ((count,), np.int64)
        assert sorted(set(y.tolist())) == list(range(12))


def test_training_features_are_standardised_per_coefficient(tiny: Prepared) -> None:
    x = np.load(tiny.features / "train_x.npy").astype(np.float64)
    assert x.mean(axis=(0, 1, 3)) == pytest.approx(np.zeros(10), abs=1e-4)
    assert x.std(axis=(0, 1, 3)) == pytest.approx(np.ones(10), abs=1e-4)


def test_record_tells_where_the_data_came_from(tiny: Prepared) -> None:
    record = json.loads(tiny.dataset.read_text())
    assert record["source"].startswith("builtin_keywords, espeak-ng ")
    assert record["source"].endswith(", 4 voices")
    assert len(record["classes"]) == 12
    assert record["counts"]["train"] == dict.fromkeys(record["classes"], 4)
    assert record["counts"]["test"] == dict.fromkeys(record["classes"], 1)
    assert record["shapes"] == {"train": [48, 49, 10, 1], "validation": [12, 49, 10, 1], "test": [12, 49, 10, 1]}
    assert record["sample_rate_hz"] == 16_000
    assert len(record["feature_mean"]) == len(record["feature_std"]) == 10
    assert len(record["examples_sha256"]) == 64
    voices = [voice for split in record["speakers"].values() for voice in split]
    assert len(voices) == len(set(voices)) == 4


def test_standardisation_of_the_record_leads_back_to_the_features(tiny: Prepared, tmp_path: Path) -> None:
    """A device that has the record can compute what the network was trained on."""
    corpus = keyword_corpus(
        CorpusSize(voices=4, prosodies=1, copies=2, seed=7), start=lambda total: None, advance=lambda count: None
    )
    raw = Mfcc(PrepareConfig().settings())(corpus.rows("test", 0, 64))
    record = json.loads(tiny.dataset.read_text())
    expected = (raw - np.array(record["feature_mean"])) / np.array(record["feature_std"])
    assert np.load(tiny.features / "test_x.npy")[..., 0] == pytest.approx(expected, abs=1e-5)


def test_front_end_settings_change_the_shape(tmp_path: Path) -> None:
    result = prepared(tmp_path, config=PrepareConfig(window_s="30ms", coefficients=13))
    assert np.load(result.features / "test_x.npy").shape == (12, 49, 13, 1)


def test_log_mel_features_are_a_column_for_each_bin_and_the_record_says_so(tmp_path: Path) -> None:
    result = prepared(tmp_path, config=PrepareConfig(front_end="log_mel", mel_bins=24, coefficients=30))
    assert np.load(result.features / "test_x.npy").shape == (12, 49, 24, 1)
    record = json.loads(result.dataset.read_text())
    assert (record["features"]["coefficients"], len(record["feature_mean"])) == (None, 24)
    task = task_of(record)
    assert isinstance(task.features, SoundFeatures)
    assert (task.features.columns, len(task.feature_std)) == (24, 24)


def test_progress_covers_speaking_and_featurising(tmp_path: Path) -> None:
    heard = Heard()
    run.function(config=PrepareConfig(), data=TINY, out_dir=tmp_path, progress=heard)
    assert heard.phases == [[46, "clip", 46], [72, "example", 72]]


def test_data_that_cannot_be_downloaded_stop_the_step_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        prepared(tmp_path, DataConfig(source="imagenet"))
    sentence = str(caught.value)
    assert sentence.startswith("prepare: imagenet is not available (data.root is not set")
    assert "--set data.root=FOLDER" in sentence and "\n" not in sentence
    assert list(tmp_path.iterdir()) == []


def test_your_own_folder_needs_one_line(tmp_path: Path) -> None:
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i in range(30):
            Image.new("RGB", (20, 30), (100 * label, i, 0)).save(tmp_path / "mine" / name / f"{i}.png")
    result = prepared(tmp_path / "out", DataConfig(source="folder", root=tmp_path / "mine", image_px=12))
    record = json.loads(result.dataset.read_text())
    assert record["source"] == "folder mine, 60 files, split by the hash of the file names"
    assert record["classes"] == ["cat", "dog"] and record["features"] == {"image_px": 12}
    assert stored_split(result.features, "train").shape[1:] == (12, 12, 3)
    with pytest.raises(ValidationError, match="source folder needs root"):
        DataConfig(source="folder")


def test_builtin_pictures_are_prepared(tmp_path: Path) -> None:
    data = DataConfig(source="builtin_images", per_class=10, image_px=16, augment="on_the_fly")
    result = prepared(tmp_path, data)
    assert json.loads(result.dataset.read_text())["shapes"]["train"] == [100, 16, 16, 3]
    assert json.loads((result.features / "augmentation.json").read_text()) == {"kind": "pictures"}


def test_waveforms_are_stored_for_augmentation_on_the_fly(tmp_path: Path) -> None:
    result = prepared(tmp_path, TINY.model_copy(update={"augment": "on_the_fly"}))
    waves = np.load(result.features / "train_wave.npy", mmap_mode="r")
    labels, takes = np.load(result.features / "train_y.npy"), np.load(result.features / "train_takes.npy")
    assert waves.dtype == np.int16 and waves.shape == (24, 16_000), "each clip once, whatever data.copies says"
    silent = labels == 10
    assert (takes[silent] == -1).all() and not waves[silent].any()
    assert takes[~silent].tolist() == np.flatnonzero(~silent).tolist()
    assert np.abs(waves[~silent]).max(axis=1).tolist() == [16_384] * int((~silent).sum()), "clips as they were spoken"


def test_mixing_changes_training_examples_alone(tiny: Prepared, tmp_path: Path) -> None:
    mixing = {"shift_s": "250ms", "tempo": 1.2, "noise_share": 1.0, "snr_db": [0, 30]}
    data = DataConfig(**{**TINY.model_dump(), "augment": "on_the_fly", "mixing": mixing})
    result = prepared(tmp_path, data)
    told = json.loads((result.features / "augmentation.json").read_text())["mixing"]
    usual = asdict(open_data(TINY, Heard()).splits["train"].mixing)
    changed = {"shift_samples": 4000, "tempo": 1.2, "noise_share": 1.0, "snr_db": [0, 30]}
    assert told == json.loads(json.dumps(usual)) | changed
    raw = [json.loads(made.dataset.read_text()) for made in (tiny, result)]
    for split in ("validation", "test"):
        unscaled = [
            np.load(made.features / f"{split}_x.npy")[..., 0] * record["feature_std"] + record["feature_mean"]
            for made, record in zip((tiny, result), raw, strict=True)
        ]
        assert np.allclose(*unscaled, atol=1e-3)


def test_mixing_is_for_sounds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prepared(tmp_path, DataConfig(source="builtin_images", per_class=10, mixing={"noise_share": 1.0}))
    assert str(caught.value) == (
        "data.mixing: found with builtin_images, which are pictures, needed sounds; leave it out"
    )
    with pytest.raises(ValidationError, match="found snr_db from 30 to 0, needed rising"):
        DataConfig(mixing={"snr_db": [30, 0]})


def test_wrong_root_is_never_replaced_by_the_built_in_corpus(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="nowhere: no such folder, needed a copy of"):
        prepared(tmp_path / "out", DataConfig(source="speech_commands_v0.01", root=tmp_path / "nowhere"))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"window_s": "40"}, "missing unit"),
        ({"window_s": "0.03ms"}, "window_s is 0.48 samples at 16 kHz, needed a whole number"),
        ({"window_s": "1001ms"}, "window_s is 16016 samples at 16 kHz, needed a whole number, at most 16000"),
        ({"hop_s": "0.00003ms"}, "hop_s is 0.00048 samples at 16 kHz, needed a whole number"),
        ({"low_hz": "4kHz"}, "low_hz to high_hz is 4000 to 4000, needed rising, at most 8kHz"),
        ({"fft_size": 512}, "fft_size is 512, needed at least the window's samples"),
        ({"coefficients": 41}, "coefficients is 41, needed at most mel_bins, 40"),
        ({"high_hz": "9kHz"}, "low_hz to high_hz is 20 to 9000, needed rising, at most 8kHz"),
        ({"colour": 1}, "Extra inputs are not permitted"),
    ],
)
def test_front_end_that_cannot_be_is_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        PrepareConfig(**settings)


def test_defaults_are_those_of_the_literature() -> None:
    assert PrepareConfig().settings() == MfccSettings(
        window_samples=640, hop_samples=320, fft_size=1024, mel_bins=40, low_hz=20, high_hz=4000, coefficients=10
    )
    data = DataConfig()
    assert (data.voices, data.prosodies, data.copies, data.seed, data.image_classes) == (58, 5, 3, 1, 10)
    sides = {"cifar10": 32, "builtin_images": 32, "visual_wake_words": 96, "imagenet": 224}
    assert {source: DataConfig(source=source).side_px for source in sides} == sides
    assert (DataConfig(image_px=8).side_px, DataConfig(augment="on_the_fly").clip_copies) == (8, 1)


@pytest.mark.parametrize(
    "settings", [{"image_px": 7}, {"image_px": 225}, {"image_classes": 1}, {"image_classes": 11}, {"seed": -1}]
)
def test_data_beyond_its_limits_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="Input should be (greater|less) than or equal to"):
        DataConfig(**settings)


def test_importing_the_step_imports_nothing_heavy() -> None:
    code = (
        "import sys, stages.prepare.stage; print([m for m in ('torch', 'numpy', 'pandas', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def coco(root: Path) -> None:
    """Photos with one box each: of a person in every second, just above or just below the threshold in turn."""
    for part, ids in (("train", range(1, 200)), ("val", range(500, 540))):
        images, boxes = [], []
        for i in ids:
            (root / f"{part}2017").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (100, 80), (i % 256, 0, 0)).save(root / f"{part}2017" / f"{i}.jpg")
            images.append({"id": i, "file_name": f"{i}.jpg", "width": 100, "height": 80})
            boxes.append({"image_id": i, "category_id": 1 + i % 2, "bbox": [0, 0, 10, 4.1 if i % 4 < 2 else 3.9]})
        (root / "annotations").mkdir(exist_ok=True)
        annotations = {
            "images": images,
            "annotations": boxes,
            "categories": [{"id": 1, "name": "person"}, {"id": 2, "name": "dog"}],
        }
        (root / "annotations" / f"instances_{part}2017.json").write_text(json.dumps(annotations))


@pytest.mark.parametrize("image_px", [50, 224])
def test_visual_wake_words_runs_end_to_end_on_a_synthetic_coco(tmp_path: Path, image_px: int) -> None:
    coco(tmp_path / "coco")
    data = DataConfig(source="visual_wake_words", root=tmp_path / "coco", image_px=image_px)
    result = prepared(tmp_path / "out", data)
    record = json.loads(result.dataset.read_text())
    assert sum(sum(counts.values()) for counts in record["counts"].values()) == 239
    assert sum(counts["person"] for counts in record["counts"].values()) == sum(
        i % 4 == 0 for i in (*range(1, 200), *range(500, 540))
    )
    for split in ("train", "validation", "test"):
        x = stored_split(result.features, split)
        assert x.shape == (sum(record["counts"][split].values()), image_px, image_px, 3)


def test_imagenet_runs_end_to_end_on_a_synthetic_folder(tmp_path: Path) -> None:
    for label, wnid in enumerate(("n01", "n02")):
        for part, count in (("train", 60), ("val", 5)):
            (tmp_path / "net" / part / wnid).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (70, 50), (100 * label, i, 0)).save(tmp_path / "net" / part / wnid / f"{i}.JPEG")
    result = prepared(tmp_path / "out", DataConfig(source="imagenet", root=tmp_path / "net", image_px=32))
    record = json.loads(result.dataset.read_text())
    assert record["counts"]["test"] == {"n01": 5, "n02": 5}
    x, y = stored_split(result.features, "test")[:], np.load(result.features / "test_y.npy")
    red = x[:, 16, 16, 0] * record["feature_std"][0] + record["feature_mean"][0]
    assert np.abs(red - 100 * y).max() < 3
