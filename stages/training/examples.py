"""Examples as tensors, read from the disk when they are asked for: no split is ever in memory whole.

Where training examples are pictures or made anew (`data.augment: on_the_fly`, `training.pictures`), processes beside
the training make each batch before it is needed; what they make depends on the seed and the example's number alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from mmap import mmap
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from data.examples.augmentation import Augment, augmentation
from data.examples.stored import StoredSplit, stored_labels, stored_split
from pipeline.errors import StageError
from stages.training.config import PLAIN, TrainingConfig, most_of_class

SPLITS = ("train", "validation", "test")
AHEAD = 2  # batches of each process that wait for the training; more would only fill the shared memory
CHECKED_AT_ONCE = 4096  # examples


@dataclass(frozen=True, eq=False)
class StoredFeatures:
    """Features NCHW on the disk; what training asks of a tensor, it can ask of them."""

    stored: StoredSplit

    @property
    def shape(self) -> tuple[int, int, int, int]:
        count, height, width, channels = self.stored.shape
        return count, channels, height, width

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, chosen: Tensor | slice) -> Tensor:
        rows = self.stored[chosen if isinstance(chosen, slice) else chosen.numpy()]
        return torch.from_numpy(rows.astype(np.float32, copy=False)).permute(0, 3, 1, 2)

    def split(self, size: int) -> Iterator[Tensor]:
        return (self[start : start + size] for start in range(0, len(self), size))


@dataclass(frozen=True, eq=False)
class Split:
    """Features NCHW float32 and their class numbers."""

    x: Tensor | StoredFeatures
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
    workers: int = 1  # processes that `augment`
    class_share: float = 1.0  # of an epoch that one class may have

    @cached_property
    def most_of_class(self) -> int:
        """Examples of one class that an epoch takes at most."""
        return most_of_class(torch.bincount(self.train.y).tolist(), self.class_share)

    @cached_property
    def prior(self) -> Tensor | None:
        """How much likelier each class is in an epoch than in validation, as a logarithm, where a share was set."""
        if self.class_share == 1.0:
            return None
        counts = [
            torch.bincount(split.y, minlength=int(self.train.y.max()) + 1) for split in (self.train, self.validation)
        ]
        trained, met = counts[0].clamp(max=self.most_of_class), counts[1].clamp(min=1)
        return (trained / trained.sum()).log() - (met / met.sum()).log()

    @cached_property
    def epoch_size(self) -> int:
        """Training examples of an epoch."""
        return int(torch.bincount(self.train.y).clamp(max=self.most_of_class).sum())

    def epoch(self, order: Tensor) -> Tensor:
        """Of all training examples in this order those that an epoch takes: of a class with too many, the first.

        What is left is put in another order, or an epoch would begin with all that it takes of the large classes.
        """
        if self.class_share == 1.0:
            return order
        of_class = F.one_hot(self.train.y[order])
        nth = of_class.cumsum(0)[of_class.bool()]  # of its class, from 1
        taken = order[nth <= self.most_of_class]
        return taken[order[taken].argsort()]

    @property
    def input_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.x.shape[1:]
        return height, width, channels

    def train_batches(self, chosen: Sequence[Tensor], seed: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and labels of the chosen training examples, batch after batch; `seed` is the augmentation's.

        A batch may be used until the next one is asked for: those made anew lie in memory that is used again.
        """
        if self.augment is None:
            for numbers in chosen:
                yield self.train.x[numbers], self.train.y[numbers]
            return
        # One is in use, and DataLoader asks for the next as soon as it hands one out.
        slots = _shared_slots(AHEAD * self.workers + 1, (max(map(len, chosen), default=0), *self.input_shape))
        loader = DataLoader(
            _FreshBatches(self.augment, chosen, seed, slots),
            batch_size=None,
            num_workers=self.workers,
            prefetch_factor=AHEAD,
            multiprocessing_context="fork",
            generator=torch.Generator(),  # its draws must not move the generator of the training
        )
        try:
            for numbers, slot in zip(chosen, loader, strict=True):
                yield slots[slot, : len(numbers)].permute(0, 3, 1, 2), self.train.y[numbers]
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise StageError("training: the process that augments was killed; was there enough memory?") from error


def _shared_slots(count: int, shape: tuple[int, ...]) -> Tensor:
    """Memory that processes forked from here share; it goes with the last of them, and needs no file."""
    values = count * math.prod(shape)
    return torch.frombuffer(mmap(-1, max(1, values) * 4), dtype=torch.float32, count=values).reshape(count, *shape)


@dataclass(frozen=True, eq=False)
class _FreshBatches(Dataset):
    """Batches by number, each put into its slot: handing over a tensor would cost the training 7 % of a small step."""

    augment: Augment
    chosen: Sequence[Tensor]
    seed: Sequence[int]
    slots: Tensor  # NHWC

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, batch: int) -> int:
        slot, numbers = batch % len(self.slots), self.chosen[batch].numpy()
        self.slots[slot, : len(numbers)] = torch.from_numpy(self.augment(numbers, self.seed))
        return slot


def load_examples(
    folder: Path, classes: int, *, are_pictures: bool = False, training: TrainingConfig = PLAIN
) -> Examples:
    """What prepare left in `folder`."""
    return Examples(
        *(_load_split(folder, name, classes) for name in SPLITS),
        augment=augmentation(folder, training.pictures),
        are_pictures=are_pictures,
        workers=training.workers,
        class_share=training.class_share,
    )


def _load_split(folder: Path, name: str, classes: int) -> Split:
    x, y = stored_split(folder, name), stored_labels(folder, name)
    if len(x.shape) != 4 or len(x) != len(y) or len(y) == 0:
        raise StageError(f"{folder}: {name} has features {x.shape} and labels {y.shape}, needed (N, H, W, C) and (N,)")
    if y.min() < 0 or y.max() >= classes:
        raise StageError(f"{folder}: {name} has labels {y.min()} to {y.max()}, needed 0 to {classes - 1}")
    if x.mean is None and not all(np.isfinite(part).all() for part in x.batches(CHECKED_AT_ONCE)):
        raise StageError(f"{folder}: {name} features hold NaN or infinity; run the prepare step again")
    return Split(StoredFeatures(x), torch.from_numpy(y))
