"""The built-in pictures: ten shapes in any colour, place, size and angle, over a busy background.

Offline stand-in for photos. Colour tells nothing about the class, shapes are partly hidden by noise and by a bar that
crosses the picture, and some classes differ in detail only (disc and ring, square and frame): a small convolutional
network has to learn, and a linear one cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.fetching.manifest import load_manifest
from data.fetching.splits import SPLITS
from data.pictures.images import ImageSet, ImageSplit, UInt8

NAME = "builtin_images"
TRAIN_PER_CLASS = 500
_CONTRAST = 0.25  # in brightness; with either sign a small network needs ten times the pictures
_HELD_OUT_SHARE = 5  # training pictures for each one of validation and of test
Plane = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DrawnPictures:
    """Pictures that are drawn when they are asked for: picture i shows class i modulo the number of classes."""

    count: int
    classes: int
    image_px: int
    seed: tuple[int, int]  # of the data set and of the split

    def __len__(self) -> int:
        return self.count

    def rows(self, start: int, stop: int) -> UInt8:
        numbers = range(start, min(stop, self.count))
        return np.stack(
            [drawn(i % self.classes, self.image_px, np.random.default_rng([*self.seed, i])) for i in numbers]
        )


def builtin_images(*, classes: int, image_px: int, per_class: int | None, seed: int) -> ImageSet:
    """The first `classes` shapes; validation and test have a fifth of the training pictures each."""
    names = load_manifest(NAME).classes[:classes]
    train = per_class or TRAIN_PER_CLASS
    splits = {}
    for number, split in enumerate(SPLITS):
        count = len(names) * (train if split == "train" else max(1, train // _HELD_OUT_SHARE))
        splits[split] = ImageSplit(
            pictures=DrawnPictures(count, len(names), image_px, (seed, number)),
            labels=np.arange(count, dtype=np.int64) % len(names),
        )
    return ImageSet(source=f"{NAME}, {len(names)} shapes, drawn", classes=names, image_px=image_px, splits=splits)


def drawn(label: int, image_px: int, rng: np.random.Generator) -> UInt8:
    """One picture of a class."""
    # From -1 to 1 across the picture; shapes are drawn in coordinates of their own: moved, turned and scaled.
    y, x = (np.mgrid[0:image_px, 0:image_px] + 0.5) * (2.0 / image_px) - 1.0
    angle, size = rng.uniform(0, 2 * np.pi), rng.uniform(0.4, 0.75)
    place_x, place_y = rng.uniform(-0.3, 0.3, 2)
    u = ((x - place_x) * np.cos(angle) + (y - place_y) * np.sin(angle)) / size
    v = ((y - place_y) * np.cos(angle) - (x - place_x) * np.sin(angle)) / size
    edge = 2.0 / image_px / size
    cover = np.clip(0.5 - _SHAPES[label](u, v) / edge, 0.0, 1.0)  # distance to the outline, softened over a pixel

    background, ink = _two_colours(rng)
    picture = background + _clouds(x, y, rng)[..., np.newaxis] * 0.25
    picture = picture + cover[..., np.newaxis] * (ink - picture)
    bar = np.abs(x * np.cos(place_x * 9) + y * np.sin(place_x * 9) - rng.uniform(-0.8, 0.8)) < 0.08
    picture = np.where(bar[..., np.newaxis], rng.uniform(0, 1, 3), picture)
    picture = picture + rng.normal(0, rng.uniform(0.02, 0.08), picture.shape)
    return np.asarray(np.rint(np.clip(picture, 0, 1) * 255), dtype=np.uint8)


def _two_colours(rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A darker one for the background and a brighter one for the shape; their hues tell nothing."""
    while True:
        darker, brighter = rng.uniform(0, 1, (2, 3))
        if np.mean(brighter) - np.mean(darker) > _CONTRAST:
            return darker, brighter


def _clouds(x: Plane, y: Plane, rng: np.random.Generator) -> Plane:
    """Smooth light and shade: a few waves in random directions."""
    waves = np.zeros_like(x)
    for _ in range(4):
        towards, length, phase = rng.uniform(0, 2 * np.pi), rng.uniform(1.5, 6.0), rng.uniform(0, 2 * np.pi)
        waves += np.sin(length * (x * np.cos(towards) + y * np.sin(towards)) + phase)
    return waves / 4


def _box(u: Plane, v: Plane, width: float, height: float) -> Plane:
    return np.maximum(np.abs(u) - width, np.abs(v) - height)


def _ring(u: Plane, v: Plane) -> Plane:
    return np.asarray(np.abs(np.hypot(u, v) - 0.72) - 0.22, dtype=np.float64)


def _triangle(u: Plane, v: Plane) -> Plane:
    sides = [u * np.cos(turn) + v * np.sin(turn) - 0.5 for turn in (np.pi / 2, np.pi * 7 / 6, np.pi * 11 / 6)]
    return np.asarray(np.max(sides, axis=0), dtype=np.float64)


def _star(u: Plane, v: Plane) -> Plane:
    return np.asarray(np.hypot(u, v) - (0.62 + 0.35 * np.cos(5 * np.arctan2(v, u))), dtype=np.float64)


def _crescent(u: Plane, v: Plane) -> Plane:
    return np.maximum(np.hypot(u, v) - 0.95, 0.75 - np.hypot(u - 0.45, v))


def _stripes(u: Plane, v: Plane) -> Plane:
    return np.maximum(_box(u, v, 0.9, 0.9), np.abs((v + 0.9) % 0.6 - 0.3) - 0.15)


def _checks(u: Plane, v: Plane) -> Plane:
    squares = np.where(np.floor(u / 0.45) % 2 == np.floor(v / 0.45) % 2, -0.2, 0.2)
    return np.maximum(_box(u, v, 0.9, 0.9), squares)


_SHAPES: tuple[Callable[[Plane, Plane], Plane], ...] = (  # in the order of the manifest's classes
    lambda u, v: np.asarray(np.hypot(u, v) - 0.85, dtype=np.float64),
    lambda u, v: _box(u, v, 0.75, 0.75),
    _triangle,
    _ring,
    lambda u, v: np.minimum(_box(u, v, 0.95, 0.28), _box(u, v, 0.28, 0.95)),
    _star,
    _crescent,
    _stripes,
    _checks,
    lambda u, v: np.maximum(_box(u, v, 0.85, 0.85), -_box(u, v, 0.5, 0.5)),
)
