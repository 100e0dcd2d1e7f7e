"""Features and labels as tensors.

The files stay on the disk and are mapped into memory, so a set may be larger than the memory. Where prepare stored
waveforms (`data.augment: on_the_fly`), a process beside the training makes each batch anew before it is needed; what it
makes depends on the seed and the number of the example alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from data.examples.augmentation import Augment, augmentation
from pipeline.errors import StageError

SPLITS = ("train", "validation", "test")
AHEAD = 2  # batches that wait for the training; more would only fill the shared memory
CHECKED_AT_ONCE = 4096  # examples


@dataclass(frozen=True, eq=False)
class Split:
    """Features NCHW float32 and their class numbers."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Examples:
    """A data set."""

    train: Split
    validation: Split
    test: Split
    augment: Augment | None = None  # makes training examples anew; None: they are used as they were prepared
    are_pictures: bool = False  # what shifts and masks frames of sounds is not for them

    @property
    def input_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.x.shape[1:]
        return height, width, channels

    def train_batches(self, chosen: Sequence[Tensor], seed: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and labels of the chosen training examples, batch after batch; `seed` is the augmentation's."""
        if self.augment is None:
            for numbers in chosen:
                yield self.train.x[numbers], self.train.y[numbers]
            return
        loader = DataLoader(
            _FreshBatches(self.augment, chosen, seed),
            batch_size=None,
            num_workers=1,
            prefetch_factor=AHEAD,
            multiprocessing_context="fork",
            generator=torch.Generator(),  # its draws must not move the generator of the training
        )
        try:
            for numbers, x in zip(chosen, loader, strict=True):
                yield x.permute(0, 3, 1, 2), self.train.y[numbers]
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise StageError("training: the process that augments was killed; was there enough memory?") from error


@dataclass(frozen=True, eq=False)
class _FreshBatches(Dataset):
    augment: Augment
    chosen: Sequence[Tensor]
    seed: Sequence[int]

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, batch: int) -> Tensor:
        return torch.from_numpy(self.augment(self.chosen[batch].numpy(), self.seed))


def load_examples(folder: Path, classes: int, *, are_pictures: bool = False) -> Examples:
    """Read {train,validation,test}_{x,y}.npy."""
    splits = (_load_split(folder, name, classes) for name in SPLITS)
    return Examples(*splits, augment=augmentation(folder), are_pictures=are_pictures)


def _load_split(folder: Path, name: str, classes: int) -> Split:
    arrays = []
    for part in ("x", "y"):
        path = folder / f"{name}_{part}.npy"
        try:
            arrays.append(np.load(path, mmap_mode="c", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise StageError(f"{path}: not readable as an array ({error}); run the prepare step again") from error
    x, y = arrays
    if x.ndim != 4 or len(x) != len(y) or len(y) == 0:
        raise StageError(f"{folder}: {name} has features {x.shape} and labels {y.shape}, needed (N, H, W, C) and (N,)")
    if y.min() < 0 or y.max() >= classes:
        raise StageError(f"{folder}: {name} has labels {y.min()} to {y.max()}, needed 0 to {classes - 1}")
    if not all(np.isfinite(x[i : i + CHECKED_AT_ONCE]).all() for i in range(0, len(x), CHECKED_AT_ONCE)):
        raise StageError(f"{folder}: {name} features hold NaN or infinity; run the prepare step again")
    features = torch.from_numpy(x.astype(np.float32, copy=False)).permute(0, 3, 1, 2)
    return Split(features, torch.from_numpy(y.astype(np.int64)))
