"""Names and examples -> train, validation or test, and what every data set that is split so has in common."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
HELD_OUT_SHARE = 0.1  # of the names, for validation and for test each


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """One split of a data set: example i belongs to class `labels[i]`."""

    labels: Int64


Part = TypeVar("Part", bound=Labelled)


@dataclass(frozen=True, kw_only=True)
class DataSet(Generic[Part]):
    """Clips or pictures with their classes, split."""

    source: str  # one line for people: what it is and where it came from
    classes: tuple[str, ...]
    splits: Mapping[Split, Part]

    @property
    def examples(self) -> int:
        """How many there are in all splits."""
        return sum(len(split.labels) for split in self.splits.values())


def hash_share(name: str) -> float:
    """A number from 0 to 1 that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def hashed_split(name: str) -> Split:
    """Where a name belongs; it stays there whatever else is added."""
    place = hash_share(name)
    return "test" if place < HELD_OUT_SHARE else "validation" if place < 2 * HELD_OUT_SHARE else "train"
