"""The features folder that prepare filled: any examples of a split by their numbers, none of it kept in memory.

    {split}_x.npy              features of sounds, float32 and standardised
    {split}_x-00000.npy, ...   pictures in shards of bytes, standardised when they are read by what pixels.json says
    {split}_y.npy              classes

Files are read, not mapped: the pages of a mapped file count as memory of every process that looks at them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data.fetching.splits import Split
from pipeline.errors import StageError

PIXELS = "pixels.json"
SHARD_BYTES = 256 << 20  # small enough to copy around, large enough that ImageNet at 160 px has 400 of them
Numbers = npt.NDArray[np.int64]


def shard_path(folder: Path, split: str, number: int) -> Path:
    return folder / f"{split}_x-{number:05d}.npy"


class StoredRows:
    """The rows of one .npy file, which is open only while it is read: a set may have more shards than files may be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_columns, self.dtype = read(file)
            self._start = file.tell()
        if by_columns or self.dtype.hasobject or not shape:
            raise ValueError(f"{path.name} is no plain array of rows")
        self.shape: tuple[int, ...] = shape
        self._row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        if path.stat().st_size < self._start + self._row_bytes * shape[0]:
            raise ValueError(f"{path.name} was cut off")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, number: int) -> npt.NDArray[Any]:
        row = np.empty((1, *self.shape[1:]), self.dtype)
        self.read(np.array([range(len(self))[number]]), row)
        return np.asarray(row[0])

    def read(self, numbers: Numbers, into: npt.NDArray[Any]) -> None:
        """Fill `into` with these rows."""
        flat = into.view(np.uint8).reshape(len(numbers), self._row_bytes)
        with self.path.open("rb", buffering=0) as file:
            for row, number in zip(flat, numbers.tolist(), strict=True):
                done = os.preadv(file.fileno(), [row.data], self._start + number * self._row_bytes)
                if done != self._row_bytes:
                    raise StageError(f"{self.path}: row {number} ended after {done} of {self._row_bytes} bytes")


@dataclass(frozen=True, eq=False)
class StoredSplit:
    """Examples (N, H, W, C), read when they are asked for."""

    parts: tuple[StoredRows, ...]  # all but the last of equal length
    mean: npt.NDArray[np.float32] | None = None  # per colour; None: what is stored is standardised already
    std: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.parts[0].shape[1:])

    def __getitem__(self, chosen: Numbers | Sequence[int] | slice) -> npt.NDArray[Any]:
        """Features of these examples."""
        return self.standardised(self.stored(chosen))

    def stored(self, chosen: Numbers | Sequence[int] | slice) -> npt.NDArray[Any]:
        """The same as they are stored: bytes, of pictures."""
        numbers = np.arange(*chosen.indices(len(self))) if isinstance(chosen, slice) else np.asarray(chosen)
        rows = np.empty((len(numbers), *self.shape[1:]), self.parts[0].dtype)
        if len(self.parts) == 1:
            self.parts[0].read(numbers, rows)
            return rows
        shard, within = np.divmod(numbers, len(self.parts[0]))
        for number in np.unique(shard).tolist():
            here = np.flatnonzero(shard == number)
            found = np.empty((len(here), *self.shape[1:]), rows.dtype)
            self.parts[number].read(within[here], found)
            rows[here] = found
        return rows

    def standardised(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.mean is None or self.std is None:
            return rows
        lines = rows.reshape(*rows.shape[:2], -1).astype(np.float32)  # a line at once, not three colours at once
        lines -= np.tile(self.mean, rows.shape[2])
        lines /= np.tile(self.std, rows.shape[2])
        return lines.reshape(rows.shape)

    def batches(self, size: int) -> Iterator[npt.NDArray[Any]]:
        """All features in their order, `size` at once."""
        for start in range(0, len(self), size):
            yield self[start : start + size]


def stored_split(folder: Path, split: Split | str) -> StoredSplit:
    """A split of a features folder; StageError when it cannot be read or is not whole."""
    try:
        if (folder / f"{split}_x.npy").exists() or not (folder / PIXELS).exists():
            return StoredSplit((StoredRows(folder / f"{split}_x.npy"),))
        record: Mapping[str, Any] = json.loads((folder / PIXELS).read_text())
        parts = tuple(StoredRows(shard_path(folder, split, number)) for number in range(record["shards"][split]))
        if any(len(part) != len(parts[0]) for part in parts[:-1]) or len(parts[-1]) > len(parts[0]):
            raise ValueError(f"shards have {[len(part) for part in parts]} examples")
        mean, std = (np.array(record[key], dtype=np.float32) for key in ("mean", "std"))
        return StoredSplit(parts, mean, std)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise _unreadable(folder / f"{split}_x.npy", error) from error


def _unreadable(path: Path, error: Exception) -> StageError:
    return StageError(f"{path}: not readable as an array ({error}); run the prepare step again")


def stored_labels(folder: Path, split: Split | str) -> Numbers:
    """The classes of a split."""
    try:
        labels: Numbers = np.load(folder / f"{split}_y.npy", allow_pickle=False).astype(np.int64)
        return labels
    except (OSError, ValueError) as error:
        raise _unreadable(folder / f"{split}_y.npy", error) from error
