"""Examples: shift, loudness and noise as asked, each reproducible on its own; and the noise itself."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from data.sounds.corpus import AS_RECORDED, NO_CLIP, Corpus, Mixing, SplitAudio, example
from data.sounds.noise import NOISE_S, background_noises

CALM = Mixing(shift_samples=0, gain_db=(0, 0), noise_share=0, snr_db=(0, 0), silence_dbfs=(-20, -20))
CLIP = np.zeros(16_000, dtype=np.int16)
CLIP[6000:10_000] = np.random.default_rng(0).integers(1, 8000, 4000)  # never zero, so that its extent is known

MIXED = "7a3aa7f2ce2c"
PINNED = [  # samples of white, pink, brown, hum and murmur
    [-0.801907, -1.085597, 1.026962, -0.106309],
    [-0.682815, -0.100515, -0.99474, -0.021267],
    [-0.346189, 1.154535, -0.395066, -0.541035],
    [-0.812771, -0.142451, -0.784312, -0.740269],
    [0.156144, 0.016282, -2.020309, 0.064588],
]


def corpus(mixing: Mixing, takes: list[int], seed: int = 5) -> Corpus:
    audio = SplitAudio(
        clips=[CLIP],
        takes=np.array(takes, dtype=np.int64),
        labels=np.zeros(len(takes), dtype=np.int64),
        noises=background_noises([seed]),
        mixing=mixing,
        speakers=("one",),
    )
    return Corpus(source="test", classes=("word",), seed=seed, splits={"train": audio, "test": audio})


def examples(mixing: Mixing, takes: list[int], batch: int = 64, seed: int = 5) -> np.ndarray:
    made = corpus(mixing, takes, seed)
    return np.concatenate([made.rows("train", start, start + batch) for start in range(0, len(takes), batch)])


def test_calm_mixing_returns_the_clip() -> None:
    assert np.array_equal(examples(CALM, [0, 0]), np.stack([CLIP, CLIP]))


def test_shift_moves_the_clip_by_at_most_what_was_asked_both_ways() -> None:
    moved = examples(replace(CALM, shift_samples=1600), [0] * 200)
    shifts = [int(np.flatnonzero(row)[0]) - 6000 for row in moved]
    assert -1600 <= min(shifts) < -1200
    assert 1200 < max(shifts) <= 1600
    for row, shift in zip(moved, shifts, strict=True):
        assert np.array_equal(row, np.roll(CLIP, shift))


def test_tempo_makes_the_clip_longer_and_shorter_around_its_middle() -> None:
    played = examples(replace(CALM, tempo=1.25), [0] * 200)
    spans = np.array([np.flatnonzero(row)[[0, -1]] for row in played])
    lengths, middles = np.diff(spans)[:, 0] / np.ptp(np.flatnonzero(CLIP)), spans.mean(1)
    assert 0.79 < lengths.min() < 0.83 and 1.2 < lengths.max() < 1.26
    assert np.abs(middles - 7999.5).max() <= 1.0


def test_tempo_moves_every_frequency_alike() -> None:
    time = np.arange(16_000)
    tone = (9000 * np.sin(2 * np.pi * 0.05 * time)).astype(np.int16)
    faster = SplitAudio(
        clips=[tone], takes=np.array([0]), labels=np.array([0]), noises=[], mixing=replace(CALM, tempo=1.2), speakers=()
    )
    for seed in range(20):
        power = np.abs(np.fft.rfft(example(faster, 0, [seed])[4000:12_000] * np.hanning(8000)))
        assert 800 / 2 / 1.21 < power.argmax() < 800 / 2 * 1.21
        assert power[900:].max() < 0.01 * power.max()  # no images of the tone


@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_noise_has_the_ratio_to_the_speech_that_was_asked(snr_db: float) -> None:
    noisy = examples(replace(CALM, noise_share=1.0, snr_db=(snr_db, snr_db)), [0] * 60)
    noise_power = np.mean((noisy.astype(float) - CLIP) ** 2)
    speech_power = np.mean(CLIP[6000:10_000].astype(float) ** 2)
    assert 10 * np.log10(speech_power / noise_power) == pytest.approx(snr_db, abs=0.7)


def test_gain_scales_the_clip() -> None:
    softer = examples(replace(CALM, gain_db=(-6.0206, -6.0206)), [0])[0]
    assert np.max(np.abs(softer - CLIP / 2)) <= 0.51


def test_silence_is_noise_of_the_loudness_that_was_asked() -> None:
    silent = examples(CALM, [NO_CLIP] * 60).astype(float) / 32768
    assert 10 * np.log10(np.mean(silent**2)) == pytest.approx(-20, abs=0.7)


def test_an_example_depends_on_seed_split_and_index_alone() -> None:
    mixing = replace(CALM, noise_share=1.0, shift_samples=1600)
    one_by_one, at_once = examples(mixing, [0] * 9, batch=1), examples(mixing, [0] * 9, batch=4)
    assert np.array_equal(one_by_one, at_once)
    assert len({row.tobytes() for row in at_once}) == 9
    assert not np.array_equal(at_once[0], examples(mixing, [0], seed=6)[0])
    test = corpus(mixing, [0]).rows("test", 0, 1)[0]
    assert not np.array_equal(at_once[0], test)


def test_examples_are_the_same_on_every_machine() -> None:
    every = Mixing(
        shift_samples=500, gain_db=(-9, 3), noise_share=0.5, snr_db=(3, 30), silence_dbfs=(-50, -20), tempo=1.1
    )
    mixed = examples(every, [0, 0, 0, 0, 0, 0, NO_CLIP, NO_CLIP])
    assert hashlib.sha256(mixed).hexdigest()[:12] == MIXED
    assert len(corpus(CALM, [0, 0]).rows("train", 0, 99)) == 2


@pytest.mark.parametrize(
    "change", [{"shift_samples": 1}, {"gain_db": (0.0, 1.0)}, {"noise_share": 0.1}, {"tempo": 1.1}], ids=str
)
def test_only_the_calmest_mixing_leaves_clips_alone(change: dict[str, object]) -> None:
    assert AS_RECORDED.leaves_clips_alone and not replace(AS_RECORDED, **change).leaves_clips_alone


def test_every_noise_has_unit_power_and_its_own_colour() -> None:
    noises = background_noises([1])
    assert [len(noise) for noise in noises] == [NOISE_S * 16_000] * 5
    assert [float(np.mean(noise**2)) for noise in noises] == pytest.approx([1.0] * 5)
    white, pink, brown, hum, murmur = (np.abs(np.fft.rfft(noise)) ** 2 for noise in noises)
    hz = np.fft.rfftfreq(NOISE_S * 16_000, 1 / 16_000)

    def octaves_db(power: np.ndarray) -> float:
        """Fall of the power density from 200-400 Hz to 400-800 Hz."""
        low, high = power[(hz >= 200) & (hz < 400)].mean(), power[(hz >= 400) & (hz < 800)].mean()
        return float(10 * np.log10(low / high))

    assert octaves_db(white) == pytest.approx(0.0, abs=0.3)
    assert octaves_db(pink) == pytest.approx(3.0, abs=0.3)
    assert octaves_db(brown) == pytest.approx(6.0, abs=0.3)
    assert abs(float(hz[np.argmax(hum)]) - 55) <= 6, "the strongest line is the mains frequency"
    assert octaves_db(murmur) > 2.0


def test_noise_is_the_same_on_every_machine() -> None:
    found = np.array([noise[[0, 7777, 160_000, 319_999]] for noise in background_noises([5])])
    assert found == pytest.approx(np.array(PINNED), abs=2e-6)


def test_noise_follows_its_seed() -> None:
    first, again, other = background_noises([1, 0]), background_noises([1, 0]), background_noises([1, 1])
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
