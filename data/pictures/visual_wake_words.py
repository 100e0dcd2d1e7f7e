"""Visual Wake Words from COCO: does the photo show a person?

The rule of Chowdhery et al. 2019 (arXiv:1906.05721): yes when the box of at least one person covers more than 0.5 % of
the photo; a smaller one does not count. The published test split, minival, is a list of ids; it is used where it lies
beside the annotations. Without it the hash of a photo's id decides. Validation is always by hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.fetching.manifest import load_manifest
from data.fetching.splits import SPLITS, Split, hash_share
from data.fetching.store import Located
from data.pictures.images import FilePictures, ImageSet, ImageSplit
from pipeline.errors import StageError

NAME = "visual_wake_words"
PERSON_SHARE = 0.005  # of the photo's area
MINIVAL = "mscoco_minival_ids.txt"
_YEARS = ("2017", "2014")
_TEST_SHARE = 1 / 15  # about as many as minival: 8,000 of 123,000
_VALIDATION_SHARE = 1 / 20


@dataclass(frozen=True)
class Photo:
    """One photo of COCO and its label."""

    identity: int
    path: Path
    shows_person: bool


def visual_wake_words_images(where: Located, image_px: int, per_class: int | None = None) -> ImageSet:
    """The data set from the COCO copy below `where`."""
    photos, year = _photos(where.folder)
    split_of, rule = _split_rule(where.folder)
    splits: dict[Split, ImageSplit] = {}
    for split in SPLITS:
        members = _limited([photo for photo in photos if split_of(photo.identity) == split], per_class)
        if len({photo.shows_person for photo in members}) < 2:
            raise StageError(f"{where.folder}: {split} lacks photos with or without a person; is the copy complete?")
        # Squashed, not cropped: a person at the edge must stay in the picture that is labelled with her.
        splits[split] = ImageSplit(
            pictures=FilePictures(tuple(photo.path for photo in members), image_px, "squash"),
            labels=np.array([photo.shows_person for photo in members], dtype=np.int64),
        )
    used = sum(len(split.labels) for split in splits.values())
    return ImageSet(
        source=f"{NAME}, {where.origin} of COCO {year}, {used} photos, {rule}",
        classes=load_manifest(NAME).classes,
        image_px=image_px,
        splits=splits,
    )


def labelled(annotations: dict[str, Any]) -> dict[int, bool]:
    """Id of every photo -> whether it shows a person."""
    person = {category["id"] for category in annotations["categories"] if category["name"] == "person"}
    area_px = {image["id"]: image["width"] * image["height"] for image in annotations["images"]}
    shows = dict.fromkeys(area_px, False)
    for box in annotations["annotations"]:
        if box["category_id"] in person and box["image_id"] in shows:
            _, _, width, height = box["bbox"]
            shows[box["image_id"]] |= width * height > PERSON_SHARE * area_px[box["image_id"]]
    return shows


def _photos(folder: Path) -> tuple[list[Photo], str]:
    """All photos of the newest year that is there, by id."""
    for year in _YEARS:
        files = [folder / "annotations" / f"instances_{part}{year}.json" for part in ("train", "val")]
        if any(path.is_file() for path in files):
            break
    else:
        raise StageError(
            f"{folder}: annotations/instances_train2017.json not found (nor 2014), needed COCO's annotations and photos"
        )
    photos = []
    for path, part in zip(files, ("train", "val"), strict=True):
        annotations = _read(path)
        try:
            shows = labelled(annotations)
            names = {image["id"]: image["file_name"] for image in annotations["images"]}
        except (KeyError, TypeError, ValueError) as error:
            raise StageError(
                f"{path}: lacks {error}, needed COCO's instance annotations; download them again"
            ) from error
        photos += [Photo(i, _photo(folder, f"{part}{year}", name), shows[i]) for i, name in names.items()]
    return sorted(photos, key=lambda photo: photo.identity), year


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise StageError(f"{path}: not found, needed for the labels; unpack the annotations again")
    try:
        # Outlines are nine tenths of the file and are dropped as they are read: 450 MB would become 3 GB.
        found = json.loads(path.read_bytes(), object_hook=_without_outline)
    except ValueError as error:
        raise StageError(f"{path}: not readable as JSON ({error}); unpack the annotations again") from error
    if not isinstance(found, dict):
        raise StageError(f"{path}: no COCO annotations; unpack them again")
    return found


def _without_outline(found: dict[str, Any]) -> dict[str, Any]:
    found.pop("segmentation", None)
    return found


def _photo(folder: Path, part: str, name: str) -> Path:
    if Path(name).name != name:
        raise StageError(f"{folder}: annotations name the photo {name!r}, needed a plain file name")
    return folder / part / name


def _split_rule(folder: Path) -> tuple[Callable[[int], Split], str]:
    listed = next((each / MINIVAL for each in (folder / "annotations", folder) if (each / MINIVAL).is_file()), None)
    if listed is not None:
        minival = {int(line) for line in listed.read_text().split()}
        return lambda i: "test" if i in minival else _kept(i), "test is the published minival"
    return lambda i: "test" if hash_share(f"test {i}") < _TEST_SHARE else _kept(i), "test by the hash of the ids"


def _kept(identity: int) -> Split:
    return "validation" if hash_share(f"validation {identity}") < _VALIDATION_SHARE else "train"


def _limited(photos: list[Photo], per_class: int | None) -> list[Photo]:
    if per_class is None:
        return photos
    chosen = sorted(photos, key=lambda photo: hash_share(f"chosen {photo.identity}"))
    kept = [photo for label in (False, True) for photo in [p for p in chosen if p.shows_person == label][:per_class]]
    return sorted(kept, key=lambda photo: photo.identity)
