"""The prepare step as the engine runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.errors import StageError
from stages.prepare.config import DataConfig, PrepareConfig
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
    assert len(record["waveforms_sha256"]) == 64
    voices = [voice for split in record["speakers"].values() for voice in split]
    assert len(voices) == len(set(voices)) == 4


def test_standardisation_of_the_record_leads_back_to_the_features(tiny: Prepared, tmp_path: Path) -> None:
    """A device that has the record can compute what the network was trained on."""
    from data import CorpusSize, keyword_corpus
    from stages.prepare.mfcc import Mfcc

    corpus = keyword_corpus(
        CorpusSize(voices=4, prosodies=1, copies=2, seed=7), start=lambda total: None, advance=lambda count: None
    )
    raw = Mfcc(PrepareConfig().settings())(next(corpus.batches("test", 64)))
    record = json.loads(tiny.dataset.read_text())
    expected = (raw - np.array(record["feature_mean"])) / np.array(record["feature_std"])
    assert np.load(tiny.features / "test_x.npy")[..., 0] == pytest.approx(expected, abs=1e-5)


def test_front_end_settings_change_the_shape(tmp_path: Path) -> None:
    result = prepared(tmp_path, config=PrepareConfig(window_s="30ms", coefficients=13))
    assert np.load(result.features / "test_x.npy").shape == (12, 49, 13, 1)


def test_progress_covers_speaking_and_featurising(tmp_path: Path) -> None:
    heard = Heard()
    run.function(config=PrepareConfig(), data=TINY, out_dir=tmp_path, progress=heard)
    assert heard.phases == [[46, "clip", 46], [72, "clip", 72]]


@pytest.mark.parametrize("source", ["speech_commands_v0.01", "speech_commands_v0.02"])
def test_real_data_that_are_not_there_stop_the_step_with_one_sentence(tmp_path: Path, source: str) -> None:
    with pytest.raises(StageError) as caught:
        prepared(tmp_path, DataConfig(source=source))
    sentence = str(caught.value)
    assert sentence.startswith(f"prepare: {source} is not available (data.root is not set")
    assert "--quick" in sentence and "--set data.root=FOLDER" in sentence and "\n" not in sentence
    assert list(tmp_path.iterdir()) == []


def test_wrong_root_is_never_replaced_by_the_built_in_corpus(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="nowhere: no such folder, needed a copy of"):
        prepared(tmp_path / "out", DataConfig(source="speech_commands_v0.01", root=tmp_path / "nowhere"))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"window_s": "40"}, "missing unit"),
        ({"window_s": "0.03ms"}, "window_s is 0.48 samples at 16 kHz, needed a whole number"),
        ({"fft_size": 512}, "fft_size is 512, needed at least the window's samples"),
        ({"coefficients": 41}, "coefficients is 41, needed at most mel_bins, 40"),
        ({"high_hz": "9kHz"}, "low_hz to high_hz is 20 to 9000, needed rising, at most 8kHz"),
        ({"colour": 1}, "Extra inputs are not permitted"),
    ],
)
def test_front_end_that_cannot_be_is_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        PrepareConfig(**settings)


def test_importing_the_step_imports_nothing_heavy() -> None:
    code = (
        "import sys, stages.prepare.stage; print([m for m in ('torch', 'numpy', 'pandas', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
