"""A corpus ready to be listened to: clips, labels and background noise per split, mixed into examples on demand.

An example is a clip that was played faster or slower, moved in time, made louder or softer and laid over noise; or, for
silence, noise alone.
Each example has a random generator of its own, seeded by (seed, split, index): any one can be made without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.fetching.splits import SPLITS, DataSet, Int64, Labelled, Split
from data.sounds.audio import CLIP_SAMPLES, FULL_SCALE, Clips, Float, Int16, to_int16

NO_CLIP = -1  # in `takes`: an example of silence


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """How examples are made from clips; every range is drawn from evenly."""

    shift_samples: int  # at most this far earlier or later
    gain_db: tuple[float, float]
    noise_share: float  # part of the clips that get noise at all
    snr_db: tuple[float, float]  # speech over noise
    silence_dbfs: tuple[float, float]  # loudness of silence
    tempo: float = 1.0  # at most so many times as fast, or as slow, and as high or low: other speakers, in effect

    @property
    def leaves_clips_alone(self) -> bool:
        """Whether a clip comes out as it went in."""
        return not self.shift_samples and self.gain_db == (0.0, 0.0) and not self.noise_share and self.tempo == 1.0


# Recordings are held out as they are.
AS_RECORDED = Mixing(
    shift_samples=0, gain_db=(0.0, 0.0), noise_share=0.0, snr_db=(0.0, 0.0), silence_dbfs=(-60.0, -15.0)
)


@dataclass(frozen=True, kw_only=True)
class SplitAudio(Labelled):
    """One split: example i is clip `takes[i]`, or silence, and belongs to class `labels[i]`."""

    clips: Clips
    takes: Int64
    noises: Sequence[Float]
    mixing: Mixing
    speakers: tuple[str, ...]  # voices, or hashes of speakers; no one is in two splits


@dataclass(frozen=True, kw_only=True)
class Corpus(DataSet[SplitAudio]):
    """A data set as audio."""

    seed: int

    def rows(self, split: Split, start: int, stop: int) -> Int16:
        """Examples `start` to `stop` of a split, one second a row."""
        audio, number = self.splits[split], SPLITS.index(split)
        return np.stack([example(audio, i, [self.seed, number, i]) for i in range(start, min(stop, len(audio.takes)))])


def example(audio: SplitAudio, index: int, seed: Sequence[int]) -> Int16:
    """One example of a split; its randomness comes from `seed` alone."""
    mixing, take = audio.mixing, int(audio.takes[index])
    if take != NO_CLIP and mixing.leaves_clips_alone:
        return audio.clips[take]
    rng = np.random.default_rng(seed)
    if take == NO_CLIP:
        return to_int16(_stretch(audio.noises, rng) * _amplitude(mixing.silence_dbfs, rng))
    gain = _amplitude(mixing.gain_db, rng)
    shift = int(rng.integers(-mixing.shift_samples, mixing.shift_samples + 1))
    speech = audio.clips[take].astype(np.float64) * (gain / FULL_SCALE)
    if mixing.tempo != 1.0:
        speech = _played(speech, mixing.tempo ** rng.uniform(-1.0, 1.0))
    speech = _moved(speech, shift)
    if rng.random() < mixing.noise_share:
        noise = _stretch(audio.noises, rng)
        speech = speech + noise * (_speech_rms(speech) / _amplitude(mixing.snr_db, rng))
    return to_int16(speech)


def _stretch(noises: Sequence[Float], rng: np.random.Generator) -> Float:
    """One second of one of the recordings."""
    noise = noises[int(rng.integers(len(noises)))]
    start = int(rng.integers(len(noise) - CLIP_SAMPLES + 1))
    return noise[start : start + CLIP_SAMPLES]


def _amplitude(range_db: tuple[float, float], rng: np.random.Generator) -> float:
    return float(10.0 ** (rng.uniform(*range_db) / 20.0))


def _played(samples: Float, tempo: float) -> Float:
    """So many times as fast, the middle staying where it is; zeros move in, or both ends move out.

    Straight lines between samples: 2 dB are lost at 4 kHz at most, less than recordings differ by.
    """
    time, middle = np.arange(len(samples)), (len(samples) - 1) / 2
    position = (time - middle) * tempo + middle
    return np.asarray(np.interp(position, time, samples, left=0.0, right=0.0), dtype=np.float64)


def _moved(samples: Float, shift: int) -> Float:
    """Later by `shift` samples (earlier when negative); zeros move in."""
    moved = np.zeros_like(samples)
    if shift >= 0:
        moved[shift:] = samples[: len(samples) - shift]
    else:
        moved[:shift] = samples[-shift:]
    return moved


def _speech_rms(samples: Float) -> float:
    """RMS where there is sound at all: the padding around a short word does not count."""
    sounding = samples[samples != 0.0]
    return float(np.sqrt(np.mean(sounding**2))) if len(sounding) else 0.0
