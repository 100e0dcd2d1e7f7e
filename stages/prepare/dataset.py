"""A corpus becomes arrays: features of every split, standardised by the training split, and what `dataset.json` says.

Standardisation is per coefficient over all training frames. Without it the first coefficient (loudness) is ten times
as large as the others and would take up most of the int8 range of the network's input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data import SAMPLE_RATE_HZ, SPLITS, Corpus, Split
from stages.prepare.config import MfccSettings
from stages.prepare.mfcc import Mfcc

BATCH = 64  # fastest on one core: a batch and its spectra stay in the cache


@dataclass(frozen=True, kw_only=True)
class SplitArrays:
    """x: (examples, frames, coefficients, 1) float32, y: (examples,) int64."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The contents of dataset.json."""

    source: str
    classes: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]  # split -> class -> examples
    shapes: Mapping[str, tuple[int, ...]]  # split -> shape of x
    speakers: Mapping[str, tuple[str, ...]]  # split -> voices, or hashes of speakers
    sample_rate_hz: int
    features: MfccSettings
    feature_mean: tuple[float, ...]  # per coefficient, of the training split
    feature_std: tuple[float, ...]
    waveforms_sha256: str  # over all examples, split after split


def featurised(
    corpus: Corpus, settings: MfccSettings, advance: Callable[[int], None]
) -> tuple[dict[Split, SplitArrays], DatasetRecord]:
    """Features, labels and record of a corpus; `advance` hears of every batch."""
    mfcc, digest = Mfcc(settings), hashlib.sha256()
    raw = {split: _features(corpus, split, mfcc, digest.update, advance) for split in SPLITS}
    mean = raw["train"].mean(axis=(0, 1), dtype=np.float64).astype(np.float32)
    std = raw["train"].std(axis=(0, 1), dtype=np.float64).astype(np.float32)
    arrays = {
        split: SplitArrays(x=((raw[split] - mean) / std)[..., np.newaxis], y=corpus.splits[split].labels)
        for split in SPLITS
    }
    return arrays, DatasetRecord(
        source=corpus.source,
        classes=corpus.classes,
        counts={split: _counts(corpus, split) for split in SPLITS},
        shapes={split: arrays[split].x.shape for split in SPLITS},
        speakers={split: corpus.splits[split].speakers for split in SPLITS},
        sample_rate_hz=SAMPLE_RATE_HZ,
        features=settings,
        feature_mean=tuple(float(value) for value in mean),
        feature_std=tuple(float(value) for value in std),
        waveforms_sha256=digest.hexdigest(),
    )


def _features(
    corpus: Corpus, split: Split, mfcc: Mfcc, see: Callable[[bytes], None], advance: Callable[[int], None]
) -> np.ndarray:
    parts = []
    for waveforms in corpus.batches(split, BATCH):
        see(waveforms.astype("<i2").tobytes())
        parts.append(mfcc(waveforms))
        advance(len(waveforms))
    return np.concatenate(parts)


def _counts(corpus: Corpus, split: Split) -> dict[str, int]:
    numbers = np.bincount(corpus.splits[split].labels, minlength=len(corpus.classes))
    return {name: int(number) for name, number in zip(corpus.classes, numbers, strict=True)}


def save_arrays(folder: Path, arrays: Mapping[Split, SplitArrays]) -> Path:
    """Write {split}_x.npy and {split}_y.npy, which can be mapped into memory."""
    folder.mkdir()
    for split, array in arrays.items():
        np.save(folder / f"{split}_x.npy", array.x)
        np.save(folder / f"{split}_y.npy", array.y)
    return folder
