"""A data set becomes arrays: features of every split, standardised by the training split, and what `dataset.json` says.

Examples are computed in batches by several processes, straight into files that are mapped into memory: nothing is held
twice, and a set may be larger than the memory. Clips become MFCCs, pictures stay bytes, in shards, until they are read
(`data.examples.stored`). Standardisation is per coefficient (per colour): without it the first coefficient, loudness,
is ten times as large as the others and would take up most of the int8 range of the network's input.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data import CLIP_SAMPLES, SAMPLE_RATE_HZ, SPLITS, Corpus, ImageSet, Split
from data.examples.stored import PIXELS, SHARD_BYTES, shard_path
from data.sounds.mfcc import Mfcc, MfccSettings
from pipeline.errors import StageError
from pipeline.stage import write_json
from stages.prepare.workers import spread

BATCH = 64  # examples a task; also what one digest covers
_SPARE_BYTES = 64 << 20  # left free on the disk
_SMALLEST_STD = 1e-6  # of a colour that never changes


@dataclass(frozen=True, kw_only=True)
class PictureSettings:
    """Pictures instead of audio."""

    image_px: int


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """The contents of dataset.json."""

    source: str
    classes: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]  # split -> class -> examples
    shapes: Mapping[str, tuple[int, ...]]  # split -> shape of x
    speakers: Mapping[str, tuple[str, ...]]  # split -> voices, or hashes of speakers; none for pictures
    sample_rate_hz: int | None  # None: pictures
    features: MfccSettings | PictureSettings
    feature_mean: tuple[float, ...]  # per coefficient or colour, of the training split
    feature_std: tuple[float, ...]
    examples_sha256: str  # over the digests of all batches of clips or pictures, split after split


@dataclass(frozen=True)
class Recipe:
    """How a batch of clips or pictures becomes what is stored, examples of `shape`."""

    rows: Callable[[Split, int, int], np.ndarray]
    convert: Callable[[np.ndarray], np.ndarray]
    shape: tuple[int, int, int]
    standardised_axis: int  # the coefficients, or the colours
    dtype: type = np.float32

    @property
    def in_shards(self) -> bool:
        return self.dtype == np.uint8

    @property
    def example_bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def allocate(self, folder: Path, split: Split, count: int) -> list[np.ndarray]:
        """Files for `count` examples."""
        if not self.in_shards:
            return [allocated(folder / f"{split}_x.npy", (count, *self.shape), self.dtype)]
        most = max(1, SHARD_BYTES // self.example_bytes // BATCH) * BATCH  # no batch lies in two of them
        sizes = [min(most, count - start) for start in range(0, count, most)]
        return [
            allocated(shard_path(folder, split, number), (size, *self.shape), self.dtype)
            for number, size in enumerate(sizes)
        ]


@dataclass(frozen=True)
class BatchResult:
    """What a process tells of the batch it wrote."""

    count: int
    digest: bytes
    total: np.ndarray  # float64, over everything but the standardised axis
    squares: np.ndarray


def recipe_for(source: Corpus | ImageSet, settings: MfccSettings) -> Recipe:
    """The front end for clips; pictures as they are."""
    if isinstance(source, ImageSet):
        return Recipe(source.rows, lambda pixels: pixels, (source.image_px, source.image_px, 3), 3, np.uint8)
    frames = 1 + (CLIP_SAMPLES - settings.window_samples) // settings.hop_samples
    mfcc = Mfcc(settings)
    return Recipe(source.rows, lambda clips: mfcc(clips)[..., np.newaxis], (frames, settings.columns, 1), 2)


def write_features(
    source: Corpus | ImageSet,
    settings: MfccSettings,
    folder: Path,
    advance: Callable[[int], None],
    workers: int | None = None,
) -> DatasetRecord:
    """Fill `folder` with the examples and {split}_y.npy; `advance` hears of every batch."""
    folder.mkdir()
    recipe = recipe_for(source, settings)
    labels = {split: source.splits[split].labels for split in SPLITS}
    _refuse_too_large(folder, sum(len(y) for y in labels.values()), recipe)
    arrays = {split: recipe.allocate(folder, split, len(labels[split])) for split in SPLITS}
    results = {split: _fill(recipe, split, arrays[split], advance, workers) for split in SPLITS}
    examples = len(labels["train"])
    mean, std = _moments(results["train"], examples * int(np.prod(recipe.shape)) // len(results["train"][0].total))
    for split in SPLITS:
        np.save(folder / f"{split}_y.npy", labels[split])
        if not recipe.in_shards:
            standardise(arrays[split][0], recipe.standardised_axis, mean, std)
    if recipe.in_shards:
        shards = {split: len(arrays[split]) for split in SPLITS}
        write_json(folder / PIXELS, {"mean": mean.tolist(), "std": std.tolist(), "shards": shards})
    digests = b"".join(result.digest for split in SPLITS for result in results[split])
    is_audio = isinstance(source, Corpus)
    return DatasetRecord(
        source=source.source,
        classes=source.classes,
        counts={split: _counts(labels[split], source.classes) for split in SPLITS},
        shapes={split: (len(labels[split]), *recipe.shape) for split in SPLITS},
        speakers={split: source.splits[split].speakers for split in SPLITS} if isinstance(source, Corpus) else {},
        sample_rate_hz=SAMPLE_RATE_HZ if is_audio else None,
        features=settings if is_audio else PictureSettings(image_px=source.image_px),
        feature_mean=tuple(float(value) for value in mean),
        feature_std=tuple(float(value) for value in std),
        examples_sha256=hashlib.sha256(digests).hexdigest(),
    )


def allocated(path: Path, shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """A .npy file mapped into memory. Its blocks are reserved: a full disk is an error now, not a signal later."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _fill(
    recipe: Recipe, split: Split, arrays: list[np.ndarray], advance: Callable[[int], None], workers: int | None
) -> list[BatchResult]:
    axes = tuple(axis for axis in range(4) if axis != recipe.standardised_axis)
    count = sum(len(array) for array in arrays)

    def task(number: int) -> BatchResult:
        start = number * BATCH
        rows = recipe.rows(split, start, start + BATCH)
        features = recipe.convert(rows)
        shard, within = divmod(start, len(arrays[0]))
        arrays[shard][within : within + len(rows)] = features
        exact = features.astype(np.float64)
        return BatchResult(
            len(rows), hashlib.sha256(rows).digest(), exact.sum(axis=axes), np.square(exact).sum(axis=axes)
        )

    results = []
    for result in spread(task, -(-count // BATCH), workers):
        results.append(result)
        advance(result.count)
    for array in arrays:
        if isinstance(array, np.memmap):
            array.flush()
    return results


def _moments(results: list[BatchResult], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation from the sums of the batches, added up in order."""
    mean = sum(result.total for result in results) / count
    variance = sum(result.squares for result in results) / count - np.square(mean)
    std = np.maximum(np.sqrt(np.maximum(variance, 0.0)), _SMALLEST_STD)
    return mean.astype(np.float32), std.astype(np.float32)


def standardise(array: np.ndarray, axis: int, mean: np.ndarray, std: np.ndarray) -> None:
    """In place: what is stored, and what a network is fed later."""
    shape = [1] * array.ndim
    shape[axis] = len(mean)
    for start in range(0, len(array), BATCH):
        part = array[start : start + BATCH]
        part -= mean.reshape(shape)
        part /= std.reshape(shape)
    if isinstance(array, np.memmap):
        array.flush()


def _refuse_too_large(folder: Path, examples: int, recipe: Recipe) -> None:
    needed, free = examples * recipe.example_bytes, shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise StageError(
            f"prepare: {examples} examples of {recipe.shape} take {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free;"
            " lower data.image_px or data.per_class, or free some space with: pipeline gc --max-size 1GB"
        )


def _counts(labels: np.ndarray, classes: tuple[str, ...]) -> dict[str, int]:
    numbers = np.bincount(labels, minlength=len(classes))
    return {name: int(number) for name, number in zip(classes, numbers, strict=True)}
