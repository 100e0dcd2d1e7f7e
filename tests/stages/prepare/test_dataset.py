"""Features of a data set: the same bytes on any number of processes, equal to torchaudio's, mapped, never half."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data import CLIP_SAMPLES, Corpus, builtin_images
from data.examples.stored import stored_split
from data.sounds.corpus import NO_CLIP, Mixing, SplitAudio
from data.sounds.noise import background_noises
from pipeline.errors import StageError
from stages.prepare import dataset
from stages.prepare.config import PrepareConfig
from stages.prepare.dataset import allocated, write_features
from stages.prepare.waveforms import write_augmentation
from stages.prepare.workers import spread
from tests.benchmarks.data.prepare_speed import torchaudio_mfcc

SETTINGS = PrepareConfig().settings()
CALM = Mixing(shift_samples=0, gain_db=(0.0, 0.0), noise_share=0.0, snr_db=(0.0, 0.0), silence_dbfs=(-20.0, -20.0))
BUSY = Mixing(shift_samples=800, gain_db=(-6.0, 0.0), noise_share=1.0, snr_db=(5.0, 20.0), silence_dbfs=(-50.0, -20.0))


def corpus(mixing: Mixing, count: int = 150) -> Corpus:
    rng = np.random.default_rng(4)
    time_s = np.arange(CLIP_SAMPLES) / CLIP_SAMPLES

    def split(clips: int) -> SplitAudio:
        tones = [
            8000 * np.sin(2 * np.pi * hz * time_s) * np.hanning(CLIP_SAMPLES) for hz in rng.uniform(80, 3500, clips)
        ]
        noisy = np.stack(tones) + rng.standard_normal((clips, CLIP_SAMPLES)) * rng.uniform(1, 300, (clips, 1))
        return SplitAudio(
            clips=noisy.astype(np.int16),
            takes=np.arange(clips, dtype=np.int64),
            labels=np.arange(clips, dtype=np.int64) % 2,
            noises=background_noises([1]),
            mixing=mixing,
            speakers=(),
        )

    splits = {"train": split(count), "validation": split(5), "test": split(70)}
    return Corpus(source="tones", classes=("a", "b"), seed=1, splits=splits)


def quiet(count: int) -> None:
    """Nobody watches."""


def torchaudio_features(waveforms: np.ndarray) -> np.ndarray:
    """torchaudio in double precision, one clip at a time, padded to frames of fft_size."""
    transform = torchaudio_mfcc()
    side = (SETTINGS.fft_size - SETTINGS.window_samples) // 2
    padded = [torch.nn.functional.pad(torch.from_numpy(clip / 32768.0), (side, side)) for clip in waveforms]
    return np.stack([transform.to(torch.float64)(clip).T.numpy() for clip in padded])


def test_features_equal_torchaudio(tmp_path: Path) -> None:
    source = corpus(CALM)
    record = write_features(source, SETTINGS, tmp_path / "features", quiet)
    found = np.load(tmp_path / "features" / "test_x.npy")[..., 0]
    raw = found * np.array(record.feature_std, np.float64) + np.array(record.feature_mean, np.float64)
    difference = np.abs(raw - torchaudio_features(np.asarray(source.splits["test"].clips)))
    assert difference.max() < 2e-4
    assert np.mean(difference > 1e-4) < 1e-3, "these clips are harder than speech: pure tones over near silence"


def test_number_of_processes_changes_no_byte(tmp_path: Path) -> None:
    written = []
    for workers in (1, 2, 3):
        record = write_features(corpus(BUSY), SETTINGS, tmp_path / str(workers), quiet, workers)
        files = {path.name: path.read_bytes() for path in sorted((tmp_path / str(workers)).iterdir())}
        written.append((record, files))
    assert written[0] == written[1] == written[2]
    assert sorted(written[0][1]) == [
        f"{split}_{part}.npy" for split in ("test", "train", "validation") for part in "xy"
    ]


def test_pictures_are_standardised_per_colour(tmp_path: Path) -> None:
    images = builtin_images(classes=2, image_px=16, per_class=80, seed=3)
    record = write_features(images, SETTINGS, tmp_path / "features", quiet)
    x = stored_split(tmp_path / "features", "train")[:]
    assert x.shape == (160, 16, 16, 3) and x.dtype == np.float32
    assert x.mean(axis=(0, 1, 2), dtype=np.float64) == pytest.approx(np.zeros(3), abs=1e-4)
    assert x.std(axis=(0, 1, 2), dtype=np.float64) == pytest.approx(np.ones(3), abs=1e-4)
    back = stored_split(tmp_path / "features", "test")[[7]][0] * record.feature_std + np.array(record.feature_mean)
    assert np.array_equal(np.rint(back).astype(np.uint8), images.rows("test", 7, 8)[0])
    assert record.sample_rate_hz is None and record.classes == ("disc", "square")
    digests = [hashlib.sha256(images.rows("train", start, start + 64)).digest() for start in (0, 64, 128)]
    held_out = [hashlib.sha256(images.rows(split, 0, 32)).digest() for split in ("validation", "test")]
    assert record.examples_sha256 == hashlib.sha256(b"".join([*digests, *held_out])).hexdigest()
    assert record.counts == {
        "train": {"disc": 80, "square": 80},
        "validation": {"disc": 16, "square": 16},
        "test": {"disc": 16, "square": 16},
    }


def test_another_picture_changes_the_digest(tmp_path: Path) -> None:
    digests = [
        write_features(
            builtin_images(classes=2, image_px=8, per_class=10, seed=seed), SETTINGS, tmp_path / str(i), quiet
        ).examples_sha256
        for i, seed in enumerate((1, 1, 2))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_set_that_does_not_fit_on_the_disk_is_refused_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(StageError, match=r"224 examples of \(49, 10, 1\) take .* GB are free; lower data.image_px"):
        write_features(corpus(CALM, 149), SETTINGS, tmp_path / "features", quiet)


def test_a_set_may_fill_the_disk_to_the_last_spare_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 225 * 49 * 10 * 4 + (64 << 20)
    for free, fits in ((needed, True), (needed - 1, False)):
        usage = shutil._ntuple_diskusage(0, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
        if fits:
            write_features(corpus(CALM), SETTINGS, tmp_path / "fits", quiet)
        else:
            with pytest.raises(StageError, match="225 examples"):
                write_features(corpus(CALM), SETTINGS, tmp_path / "too large", quiet)


def test_clips_are_stored_as_they_are_for_augmentation(tmp_path: Path) -> None:
    source = corpus(BUSY)
    audio = source.splits["train"]
    takes = np.where(np.arange(150) % 50 == 49, NO_CLIP, np.arange(150)[::-1])
    with_silence = replace(source, splits={**source.splits, "train": replace(audio, takes=takes)})
    record = write_features(with_silence, SETTINGS, tmp_path / "features", quiet)
    write_augmentation(with_silence, record, tmp_path / "features")
    waves = np.load(tmp_path / "features" / "train_wave.npy")
    silent = takes == NO_CLIP
    assert np.array_equal(waves[~silent], np.asarray(audio.clips)[takes[~silent]]) and not waves[silent].any()
    stored = np.load(tmp_path / "features" / "train_takes.npy")
    assert np.array_equal(stored, np.where(silent, NO_CLIP, np.arange(150)))
    kept = json.loads((tmp_path / "features" / "augmentation.json").read_text())
    assert kept["noise_samples"] == [320_000] * 5 and kept["front_end"] == asdict(SETTINGS)


def test_mapped_files_have_all_their_blocks(tmp_path: Path) -> None:
    """A sparse file on a full disk kills the process that writes into it."""
    array = allocated(tmp_path / "a.npy", (1000, 100))
    assert array.shape == (1000, 100)
    assert os.stat(tmp_path / "a.npy").st_blocks * 512 >= 400_000


def fail_at_three(number: int) -> int:
    if number == 3:
        raise StageError("clip 3 is bad; replace it")
    return number


def test_an_error_in_a_process_arrives_as_the_sentence_it_was() -> None:
    with pytest.raises(StageError, match="clip 3 is bad; replace it"):
        list(spread(fail_at_three, 20, workers=2))


def test_a_killed_process_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(StageError, match="a worker process was killed"):
        list(spread(lambda number: os._exit(9) if number == 5 else number, 20, workers=2))


def test_one_worker_is_this_process() -> None:
    assert list(spread(lambda number: os.getpid(), 3, workers=1)) == [os.getpid()] * 3


def test_results_come_in_order() -> None:
    assert list(spread(lambda number: number * number, 57, workers=2)) == [number**2 for number in range(57)]


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from stages.prepare.workers import spread\n"
        "def task(number):\n"
        f"    open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w').close()\n"
        "    time.sleep(60)\n"
        "list(spread(task, 4, workers=2))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    children = [int(path.name) for path in tmp_path.iterdir()]
    assert len(children) == 2
    while any(is_running(child) for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    left = [child for child in children if is_running(child)]
    assert left == []


def is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
