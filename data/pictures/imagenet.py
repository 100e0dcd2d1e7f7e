"""ImageNet in the usual layout: train/WNID/*.JPEG and val/WNID/*.JPEG.

The held-out photos are test; validation is a twentieth of train, by the hash of the file names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data.fetching.splits import SPLITS, Split, hash_share
from data.fetching.store import Located
from data.pictures.images import IMAGE_SUFFIXES, FilePictures, ImageSet, ImageSplit
from pipeline.errors import StageError

NAME = "imagenet"
_VALIDATION_SHARE = 1 / 20


def imagenet_images(where: Located, image_px: int, per_class: int | None = None) -> ImageSet:
    """The data set below `where`; `per_class` keeps that many photos of every class and split."""
    classes = _classes(where.folder / "train")
    if _classes(where.folder / "val") != classes:
        raise StageError(f"{where.folder}: train and val have different classes; is the copy complete?")
    members: dict[Split, list[tuple[Path, int]]] = {split: [] for split in SPLITS}
    for label, name in enumerate(classes):
        by_split: dict[Split, list[Path]] = {split: [] for split in SPLITS}
        for path in _photos(where.folder / "train" / name):
            spared = hash_share(f"{name}/{path.name}") < _VALIDATION_SHARE
            by_split["validation" if spared else "train"].append(path)
        by_split["test"] = _photos(where.folder / "val" / name)
        for split in SPLITS:
            chosen = sorted(by_split[split], key=lambda path: hash_share(path.name))[:per_class]
            members[split] += [(path, label) for path in sorted(chosen)]
    for split in SPLITS:
        if not members[split]:
            raise StageError(f"{where.folder}: no photos in the {split} split, needed some; is the copy complete?")
    photos = sum(len(each) for each in members.values())
    return ImageSet(
        source=f"{NAME}, {where.origin} of {photos} photos, {len(classes)} classes",
        classes=classes,
        image_px=image_px,
        splits={
            split: ImageSplit(
                pictures=FilePictures(tuple(path for path, _ in members[split]), image_px, "crop"),
                labels=np.array([label for _, label in members[split]], dtype=np.int64),
            )
            for split in SPLITS
        },
    )


def _classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise StageError(f"{folder}: no such folder, needed one sub-folder of photos for each class")
    names = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
    if len(names) < 2:
        raise StageError(f"{folder}: {len(names)} class folders, needed two or more")
    return names


def _photos(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
