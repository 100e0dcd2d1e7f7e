"""Pictures: files or arrays in, square uint8 RGB of one size out, by torchvision.transforms.v2.

Greyscale, palette and CMYK files become RGB. Refused with the file's name: what is no picture, or was cut off.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from data.compat import import_torchvision
from data.fetching.splits import DataSet, Labelled, Split
from pipeline.errors import StageError

if TYPE_CHECKING:
    from PIL.Image import Image

UInt8 = npt.NDArray[np.uint8]
Fit = Literal["squash", "crop"]  # whole picture with its sides changed | shorter side fits, the middle is kept
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".webp")


class Pictures(Protocol):
    """Pictures that can be asked for by number."""

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> UInt8:
        """(pictures, image_px, image_px, 3)."""


@dataclass(frozen=True, kw_only=True)
class ImageSplit(Labelled):
    """Pictures and their classes."""

    pictures: Pictures


@dataclass(frozen=True, kw_only=True)
class ImageSet(DataSet[ImageSplit]):
    """A data set as pictures."""

    image_px: int

    def rows(self, split: Split, start: int, stop: int) -> UInt8:
        """Pictures `start` to `stop` of a split."""
        return self.splits[split].pictures.rows(start, stop)


@dataclass(frozen=True)
class ArrayPictures:
    """Pictures in memory, brought to size when they are asked for."""

    pixels: UInt8
    image_px: int

    def __len__(self) -> int:
        return len(self.pixels)

    def rows(self, start: int, stop: int) -> UInt8:
        pixels = self.pixels[start:stop]
        if pixels.shape[1:3] == (self.image_px, self.image_px):
            return pixels
        return np.stack([resized(picture, self.image_px, "squash") for picture in pixels])


@dataclass(frozen=True)
class FilePictures:
    """Pictures that are read when they are asked for."""

    paths: tuple[Path, ...]
    image_px: int
    fit: Fit

    def __len__(self) -> int:
        return len(self.paths)

    def rows(self, start: int, stop: int) -> UInt8:
        return np.stack(
            [resized(decoded(path, self.image_px), self.image_px, self.fit) for path in self.paths[start:stop]]
        )


def decoded(path: Path, at_least_px: int = 0) -> UInt8:
    """A file as (height, width, 3); a large JPEG may come smaller, but never below `at_least_px`."""
    with _opened(path) as picture:
        if at_least_px:
            picture.draft("RGB", (2 * at_least_px, 2 * at_least_px))  # the decoder halves for free
        return np.array(picture.convert("RGB"), dtype=np.uint8)


def shorter_side_px(path: Path) -> int:
    """Of the picture as it is stored."""
    with _opened(path) as picture:
        return min(picture.size)


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """A picture file; StageError for what is none, also while it is decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            yield picture
    except UnidentifiedImageError as error:
        size = path.stat().st_size
        raise StageError(f"{path}: {size} bytes that are no picture, needed JPEG or PNG; replace the file") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise StageError(f"{path}: cannot be decoded ({error}), needed a whole picture; replace the file") from error


def resized(picture: UInt8, image_px: int, fit: Fit) -> UInt8:
    """A square picture of `image_px`, with antialiasing."""
    functional = _transforms()
    tensor = importlib.import_module("torch").from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)
    if fit == "squash":
        tensor = functional.resize(tensor, [image_px, image_px], antialias=True)
    else:
        tensor = functional.center_crop(functional.resize(tensor, [image_px], antialias=True), [image_px, image_px])
    return np.asarray(tensor.permute(1, 2, 0).contiguous().numpy(), dtype=np.uint8)


def _transforms() -> Any:
    import_torchvision()
    return importlib.import_module("torchvision.transforms.v2.functional")
