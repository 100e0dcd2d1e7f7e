"""Background noise: recorded, or from a seeded generator as the stand-in for it.

Coloured noise is white noise whose spectrum is divided by a power of the frequency (pink: 1/f, brown: 1/f^2 in power).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from data.sounds.audio import CLIP_SAMPLES, FULL_SCALE, SAMPLE_RATE_HZ, Float, read_wav
from pipeline.errors import StageError

NOISE_FOLDER = "_background_noise_"  # where Speech Commands keeps its recordings; a user's own folder may too
NOISE_S = 20  # length of each recording: long enough that two clips rarely share a stretch
_LOWEST_HZ = 20.0  # below it a colour would have no bound
_SYLLABLES_HZ = 4.0  # rate at which speech swells and fades


def background_noises(seed: Sequence[int]) -> tuple[Float, ...]:
    """One recording of each kind, each with an RMS of 1; another seed gives other recordings."""
    count = NOISE_S * SAMPLE_RATE_HZ
    kinds: tuple[Callable[[np.random.Generator, int], Float], ...] = (_white, _pink, _brown, _hum, _murmur)
    return tuple(_unit_rms(kind(np.random.default_rng([*seed, i]), count)) for i, kind in enumerate(kinds))


def recorded_noises(folder: Path) -> tuple[Float, ...]:
    """The recordings of a folder, each brought to an RMS of 1."""
    noises = []
    for path in sorted(folder.glob("*.wav")):
        samples = read_wav(path).astype(np.float64) / FULL_SCALE
        if len(samples) < CLIP_SAMPLES or not np.any(samples):
            raise StageError(f"{path}: {len(samples)} samples or all zero, needed a second of noise; replace the file")
        noises.append(_unit_rms(samples))
    if not noises:
        raise StageError(f"{folder}: no .wav files, needed background noise for silence; unpack the archive again")
    return tuple(noises)


def _white(rng: np.random.Generator, count: int) -> Float:
    return rng.standard_normal(count)


def _pink(rng: np.random.Generator, count: int) -> Float:
    return _coloured(rng, count, exponent=0.5)


def _brown(rng: np.random.Generator, count: int) -> Float:
    return _coloured(rng, count, exponent=1.0)


def _hum(rng: np.random.Generator, count: int) -> Float:
    """Mains: harmonics of 50 Hz in the first half, of 60 Hz in the second, over a faint hiss."""
    time_s = np.arange(count) / SAMPLE_RATE_HZ
    mains_hz = np.where(np.arange(count) < count // 2, 50.0, 60.0)
    hum = 0.02 * rng.standard_normal(count)
    for harmonic in range(1, 9):
        hum += np.sin(2 * np.pi * (harmonic * mains_hz * time_s + rng.random())) / harmonic
    return hum


def _murmur(rng: np.random.Generator, count: int) -> Float:
    """A room full of people: noise of speech-like spectrum that swells at the rate of syllables."""
    swell = np.interp(
        np.arange(count) / SAMPLE_RATE_HZ * _SYLLABLES_HZ,
        np.arange(NOISE_S * _SYLLABLES_HZ + 1),
        rng.random(int(NOISE_S * _SYLLABLES_HZ) + 1),
    )
    frequency_hz = np.fft.rfftfreq(count, 1 / SAMPLE_RATE_HZ)
    speech_like = 1.0 / (1.0 + (frequency_hz / 500.0) ** 2)
    return (0.1 + swell) * np.fft.irfft(np.fft.rfft(rng.standard_normal(count)) * speech_like, count)


def _coloured(rng: np.random.Generator, count: int, exponent: float) -> Float:
    frequency_hz = np.maximum(np.fft.rfftfreq(count, 1 / SAMPLE_RATE_HZ), _LOWEST_HZ)
    return np.fft.irfft(np.fft.rfft(rng.standard_normal(count)) / frequency_hz**exponent, count)


def _unit_rms(samples: Float) -> Float:
    return np.asarray(samples / np.sqrt(np.mean(samples**2)), dtype=np.float64)
