"""Training examples made anew in every epoch, from what prepare stored; any batch can be made without the others.

Clips are moved, made louder or softer and laid over noise before the front end; silence is other noise each time.
Pictures are mirrored and moved by up to an eighth of their side, the mean moving in, or changed as the training asks
for (`picture_changes`). What comes out depends on the
seed (training gives it seed and epoch) and the number of the example alone, so a run that was stopped and resumed sees
what an undisturbed one sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data.examples.picture_changes import Changes, changed_pictures
from data.examples.stored import PIXELS, StoredRows, StoredSplit, stored_split
from data.sounds.corpus import Mixing, SplitAudio, example
from data.sounds.mfcc import Mfcc, MfccSettings
from pipeline.errors import StageError

RECORD = "augmentation.json"
WAVES, TAKES, NOISE = "train_wave.npy", "train_takes.npy", "train_noise.npy"
_MOVED_SHARE = 8  # of a picture's side
Float32 = npt.NDArray[np.float32]
Augment = Callable[[npt.NDArray[np.int64], Sequence[int]], Float32]  # numbers of examples, seed -> features NHWC


@dataclass(frozen=True, kw_only=True)
class AudioRecord:
    """augmentation.json of clips."""

    kind: Literal["audio"]
    mixing: Mapping[str, Any]
    noise_samples: tuple[int, ...]
    front_end: Mapping[str, Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class PictureRecord:
    """augmentation.json of pictures."""

    kind: Literal["pictures"]


def augmentation(folder: Path, changes: Changes | None = None) -> Augment | None:
    """How to make training examples from a features folder: pictures changed as asked for, else as prepare was told to.

    Pictures that stay as they are still have to be standardised; None for features that can be used as they are.
    """
    path = folder / RECORD
    if (folder / PIXELS).exists() and (changes is not None or not path.exists()):
        return _read_pictures(folder, changes)
    if not path.exists():
        return None
    try:
        stored = json.loads(path.read_text())
        if stored["kind"] == "pictures":
            pictures = stored_split(folder, "train")
            return lambda numbers, seed: _moved_pictures(pictures, numbers, seed)
        return _clips(folder, AudioRecord(**stored))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StageError(f"{path}: what augmentation needs cannot be read ({error}); run prepare again") from error


def _read_pictures(folder: Path, changes: Changes | None) -> Augment:
    pixels = stored_split(folder, "train")
    if changes is None:
        return lambda numbers, _: pixels[numbers]
    changed = changed_pictures(changes, (pixels.shape[1], pixels.shape[2]))
    return lambda numbers, seed: pixels.standardised(changed(pixels.stored(numbers), numbers, seed))


def _clips(folder: Path, record: AudioRecord) -> Augment:
    noise = np.load(folder / NOISE).astype(np.float64)
    mixing: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in record.mixing.items()
    }
    takes = np.load(folder / TAKES)
    audio = SplitAudio(
        clips=StoredRows(folder / WAVES),
        takes=takes,
        labels=takes,
        noises=np.split(noise, np.cumsum(record.noise_samples)[:-1]),
        mixing=Mixing(**mixing),
        speakers=(),
    )
    mfcc = Mfcc(MfccSettings(**record.front_end))
    mean, std = np.array(record.mean, dtype=np.float32), np.array(record.std, dtype=np.float32)

    def augment(numbers: npt.NDArray[np.int64], seed: Sequence[int]) -> Float32:
        waves = np.stack([example(audio, int(i), [*seed, int(i)]) for i in numbers])
        return np.asarray(((mfcc(waves) - mean) / std)[..., np.newaxis], dtype=np.float32)

    return augment


def _moved_pictures(pictures: StoredSplit, numbers: npt.NDArray[np.int64], seed: Sequence[int]) -> Float32:
    """Moved as they are stored, a pixel at once: a quarter of the bytes, and no inner loops of three colours."""
    whole = pictures.stored(numbers)
    moved = np.zeros_like(whole)
    pixel = np.dtype((np.void, whole.itemsize * whole.shape[-1]))
    sources, targets = whole.view(pixel)[..., 0], moved.view(pixel)[..., 0]
    kept: list[tuple[slice, slice]] = []
    for number, source, target in zip(numbers.tolist(), sources, targets, strict=True):
        rng = np.random.default_rng([*seed, number])
        (to_y, from_y), (to_x, from_x) = (_overlap(side, rng) for side in source.shape)
        target[to_y, to_x] = (source[:, ::-1] if rng.random() < 0.5 else source)[from_y, from_x]
        kept.append((to_y, to_x))
    features = pictures.standardised(moved)
    for picture, (rows, columns) in zip(features, kept, strict=True):  # around it, the mean
        picture[: rows.start] = picture[rows.stop :] = 0
        picture[:, : columns.start] = picture[:, columns.stop :] = 0
    return features


def _overlap(side: int, rng: np.random.Generator) -> tuple[slice, slice]:
    """Where the part that stays in the picture goes to, and where it comes from, along one side."""
    reach = side // _MOVED_SHARE
    move = int(rng.integers(-reach, reach + 1))
    return slice(max(0, move), side + min(0, move)), slice(max(0, -move), side - max(0, move))
