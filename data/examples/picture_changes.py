"""Pictures cut out, mirrored, turned and coloured otherwise, by torchvision.transforms.v2.

What becomes of a picture depends on the seed and its number alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from data.compat import import_torchvision

UInt8 = npt.NDArray[np.uint8]


class Changes(Protocol):
    """How much may change; the neutral value turns a kind off."""

    @property
    def crop_scale(self) -> tuple[float, float]: ...
    @property
    def crop_ratio(self) -> tuple[float, float]: ...
    @property
    def mirror(self) -> float: ...
    @property
    def colour(self) -> float: ...
    @property
    def rotate_degrees(self) -> float: ...


def changed_pictures(wanted: Changes, side_px: tuple[int, int]) -> Callable[[UInt8, npt.NDArray[np.int64], Any], UInt8]:
    """A function of pictures (N, H, W, 3), their numbers and a seed."""
    import_torchvision()
    transforms, torch = importlib.import_module("torchvision.transforms.v2"), importlib.import_module("torch")
    steps: list[Any] = []
    if wanted.crop_scale != (1.0, 1.0):
        steps.append(
            transforms.RandomResizedCrop(side_px, scale=wanted.crop_scale, ratio=wanted.crop_ratio, antialias=True)
        )
    if wanted.rotate_degrees:
        steps.append(transforms.RandomRotation(wanted.rotate_degrees))
    if wanted.mirror:
        steps.append(transforms.RandomHorizontalFlip(wanted.mirror))
    if wanted.colour:
        steps.append(transforms.ColorJitter(wanted.colour, wanted.colour, wanted.colour))
    change = transforms.Compose(steps) if steps else transforms.Identity()

    def changed(pictures: UInt8, numbers: npt.NDArray[np.int64], seed: Sequence[int]) -> UInt8:
        result = np.empty_like(pictures)
        with torch.random.fork_rng(devices=[]):
            for row, number in enumerate(numbers.tolist()):
                torch.manual_seed(int(np.random.default_rng([*seed, number]).integers(2**62)))
                picture = torch.from_numpy(pictures[row]).permute(2, 0, 1)
                result[row] = change(picture).permute(1, 2, 0).numpy()
        return result

    return changed
