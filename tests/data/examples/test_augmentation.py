"""Examples made anew in every epoch: repeatable by seed and number, equal to the plain way of mixing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from data.examples.augmentation import augmentation
from data.sounds.corpus import NO_CLIP, Mixing, SplitAudio, example
from data.sounds.mfcc import Mfcc, MfccSettings
from data.sounds.noise import background_noises
from pipeline.errors import StageError

FRONT_END = MfccSettings(
    window_samples=640, hop_samples=320, fft_size=1024, mel_bins=40, low_hz=20, high_hz=4000, coefficients=10
)
MIXING = Mixing(
    shift_samples=900, gain_db=(-3.0, 3.0), noise_share=0.5, snr_db=(5.0, 30.0), silence_dbfs=(-50.0, -20.0)
)
WAVES = np.random.default_rng(2).integers(-9000, 9000, (20, 16_000)).astype(np.int16)
TAKES = np.array([*range(18), NO_CLIP, NO_CLIP])
NOISES = [noise.astype(np.float32) for noise in background_noises([3])]
NUMBERS = np.array([3, 19, 7, 18])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "train_wave.npy", WAVES)
    np.save(tmp_path / "train_takes.npy", TAKES)
    np.save(tmp_path / "train_noise.npy", np.concatenate(NOISES))
    record = {
        "kind": "audio",
        "mixing": asdict(MIXING),
        "noise_samples": [len(noise) for noise in NOISES],
        "front_end": asdict(FRONT_END),
        "mean": [1.0] * 10,
        "std": [2.0] * 10,
    }
    (tmp_path / "augmentation.json").write_text(json.dumps(record))
    return tmp_path


def test_examples_equal_mixing_and_front_end_one_by_one(folder: Path) -> None:
    augment = augmentation(folder)
    assert augment is not None
    noises = [noise.astype(np.float64) for noise in NOISES]
    audio = SplitAudio(clips=WAVES, takes=TAKES, labels=TAKES, noises=noises, mixing=MIXING, speakers=())
    for row, number in zip(augment(NUMBERS, [5]), NUMBERS, strict=True):
        mixed = example(audio, int(number), [5, int(number)])
        expected = (Mfcc(FRONT_END)(mixed[np.newaxis])[0] - 1.0) / 2.0
        assert np.array_equal(row[..., 0], expected.astype(np.float32))


def test_an_example_depends_on_seed_and_number_alone(folder: Path) -> None:
    augment = augmentation(folder)
    assert augment is not None
    together = augment(NUMBERS, [5])
    assert together.shape == (4, 49, 10, 1) and together.dtype == np.float32
    assert np.array_equal(augment(NUMBERS[::-1], [5])[::-1], together)
    other = augment(NUMBERS, [6])
    assert all(not np.array_equal(a, b) for a, b in zip(together, other, strict=True)), "silence changes too"


def test_pictures_are_mirrored_and_moved_with_the_mean_moving_in(tmp_path: Path) -> None:
    pictures = np.random.default_rng(1).standard_normal((4, 16, 16, 3)).astype(np.float32)
    np.save(tmp_path / "train_x.npy", pictures)
    (tmp_path / "augmentation.json").write_text('{"kind": "pictures"}')
    augment = augmentation(tmp_path)
    assert augment is not None
    seen = set()
    for seed in range(40):
        moved = augment(np.array([2]), [seed])[0]
        seen.add(
            next(
                (down, right, mirrored)
                for down in range(-2, 3)
                for right in range(-2, 3)
                for mirrored in (False, True)
                if np.array_equal(moved, slow_moved(pictures[2], down, right, mirrored))
            )
        )
    assert len(seen) > 20 and {mirrored for _, _, mirrored in seen} == {False, True}
    assert np.array_equal(augment(np.array([2]), [7]), augment(np.array([1, 2]), [7])[1:])


def slow_moved(picture: np.ndarray, down: int, right: int, mirrored: bool) -> np.ndarray:
    moved = np.zeros_like(picture)
    for y in range(16):
        for x in range(16):
            if 0 <= y - down < 16 and 0 <= x - right < 16:
                moved[y, x] = picture[y - down, 15 - (x - right) if mirrored else x - right]
    return moved


def test_without_a_record_nothing_is_made_anew(tmp_path: Path) -> None:
    assert augmentation(tmp_path) is None


def test_a_torn_record_is_one_sentence(folder: Path) -> None:
    (folder / "augmentation.json").write_text('{"kind": "audio"}')
    with pytest.raises(StageError, match="what augmentation needs cannot be read .*; run prepare again"):
        augmentation(folder)
