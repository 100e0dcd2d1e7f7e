"""Your own data: a folder of class sub-folders of .wav files or of pictures.

    ROOT/CLASS/FILE                       split by the hash of CLASS/FILE: 80 % train, 10 % validation, 10 % test
    ROOT/{train,validation,test}/CLASS/FILE   split as it lies there; validation is a tenth of train where it is missing

Clips are one second at 16 kHz: another rate is converted, several channels are averaged, a longer clip keeps its
middle, a shorter one is centred. `_background_noise_`, where present, is mixed into the training clips. Pictures get
the size that is asked for, else that of their shorter side, at most 96 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.fetching.splits import HELD_OUT_SHARE, SPLITS, Int64, Split, hash_share, hashed_split
from data.pictures.images import IMAGE_SUFFIXES, FilePictures, ImageSet, ImageSplit, shorter_side_px
from data.sounds.audio import SAMPLE_RATE_HZ, Float, WavClips, centred
from data.sounds.corpus import AS_RECORDED, Corpus, Mixing, SplitAudio
from data.sounds.noise import NOISE_FOLDER, background_noises, recorded_noises
from pipeline.errors import StageError

_ALIASES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}
_SMALLEST_PX, _LARGEST_PX = 8, 96
_LOOKED_AT = 100  # pictures
_TRAIN = Mixing(
    shift_samples=SAMPLE_RATE_HZ // 10,
    gain_db=(-6.0, 3.0),
    noise_share=0.8,
    snr_db=(5.0, 40.0),
    silence_dbfs=(-65.0, -10.0),
)


@dataclass(frozen=True)
class Files:
    """The files of each split with their classes."""

    classes: tuple[str, ...]
    paths: dict[Split, tuple[Path, ...]]
    labels: dict[Split, tuple[int, ...]]
    rule: str  # how it was split, for the record

    def label_array(self, split: Split) -> Int64:
        return np.asarray(self.labels[split], dtype=np.int64)


def folder_data(
    root: Path, *, image_px: int | None, copies: int, seed: int, per_class: int | None = None
) -> Corpus | ImageSet:
    """What the folder holds: a corpus of clips, or a set of pictures; at most `per_class` of a class and split."""
    files = found_files(root, per_class)
    suffixes = {path.suffix.lower() for split in SPLITS for path in files.paths[split]}
    count = sum(len(files.paths[split]) for split in SPLITS)
    source = f"folder {root.name}, {count} files, {files.rule}"
    if suffixes == {".wav"}:
        return _corpus(root, files, source, copies, seed)
    if ".wav" in suffixes:
        raise StageError(f"{root}: holds both .wav files and pictures, needed one kind; move one of them away")
    image_px = image_px or _usual_side_px(files.paths["train"])
    splits = {
        split: ImageSplit(pictures=FilePictures(files.paths[split], image_px, "crop"), labels=files.label_array(split))
        for split in SPLITS
    }
    return ImageSet(source=source, classes=files.classes, image_px=image_px, splits=splits)


def _usual_side_px(paths: Sequence[Path]) -> int:
    """The shorter side of most pictures, within what a microcontroller has room for; some of them tell."""
    sides = sorted(shorter_side_px(path) for path in paths[:: max(1, len(paths) // _LOOKED_AT)])
    return min(max(sides[len(sides) // 2], _SMALLEST_PX), _LARGEST_PX)


def found_files(root: Path, per_class: int | None = None) -> Files:
    """Every file of every class, split; at most `per_class` of each class and split."""
    if not root.is_dir():
        raise StageError(f"{root}: no such folder, needed class sub-folders of .wav files or pictures")
    split_folders = {split: _split_folder(root, split) for split in SPLITS}
    if split_folders["train"] is not None and split_folders["test"] is not None:
        return _laid_out(root, split_folders, per_class)
    members = _class_members(root)
    split_of = {path: hashed_split(f"{path.parent.name}/{path.name}") for paths in members.values() for path in paths}
    return _files(root, members, split_of, "split by the hash of the file names", per_class)


def _split_folder(root: Path, split: Split) -> Path | None:
    return next((root / name for name in _ALIASES[split] if (root / name).is_dir()), None)


def _laid_out(root: Path, folders: dict[Split, Path | None], per_class: int | None) -> Files:
    members: dict[str, list[Path]] = {}
    split_of: dict[Path, Split] = {}
    for split, folder in folders.items():
        if folder is None:
            continue
        for name, paths in _class_members(folder).items():
            members.setdefault(name, []).extend(paths)
            for path in paths:
                is_spared = split == "train" and folders["validation"] is None
                spared = is_spared and hash_share(f"{name}/{path.name}") < HELD_OUT_SHARE
                split_of[path] = "validation" if spared else split
    return _files(root, members, split_of, "split by its sub-folders", per_class)


def _class_members(folder: Path) -> dict[str, list[Path]]:
    """Class -> its files, both in alphabetical order."""
    members: dict[str, list[Path]] = {}
    for each in sorted(folder.iterdir()):
        if each.is_dir() and each.name != NOISE_FOLDER and not each.name.startswith("."):
            suffixes = (".wav", *IMAGE_SUFFIXES)
            members[each.name] = sorted(path for path in each.iterdir() if path.suffix.lower() in suffixes)
    return members


def _files(
    root: Path, members: dict[str, list[Path]], split_of: dict[Path, Split], rule: str, per_class: int | None
) -> Files:
    classes = tuple(sorted(members))
    if len(classes) < 2:
        raise StageError(f"{root}: {len(classes)} class sub-folders found, needed two or more, each with its files")
    paths: dict[Split, list[Path]] = {split: [] for split in SPLITS}
    labels: dict[Split, list[int]] = {split: [] for split in SPLITS}
    for label, name in enumerate(classes):
        for split in SPLITS:
            chosen = [path for path in members[name] if split_of[path] == split][:per_class]
            paths[split] += chosen
            labels[split] += [label] * len(chosen)
    for split in SPLITS:
        missing = sorted(set(classes) - {classes[label] for label in labels[split]})
        if missing:
            raise StageError(
                f"{root}: class {missing[0]!r} has no files in the {split} split, needed at least one; add some, or lay"
                " the splits out as train/, validation/ and test/"
            )
    return Files(
        classes,
        {split: tuple(paths[split]) for split in SPLITS},
        {split: tuple(labels[split]) for split in SPLITS},
        rule,
    )


def _corpus(root: Path, files: Files, source: str, copies: int, seed: int) -> Corpus:
    noises: Sequence[Float] = recorded_noises(root / NOISE_FOLDER) if (root / NOISE_FOLDER).is_dir() else ()
    splits = {}
    for number, split in enumerate(SPLITS):
        times = copies if split == "train" else 1
        splits[split] = SplitAudio(
            clips=WavClips(root, tuple(path.relative_to(root).as_posix() for path in files.paths[split]), centred),
            takes=np.repeat(np.arange(len(files.paths[split]), dtype=np.int64), times),
            labels=np.repeat(files.label_array(split), times),
            noises=noises or background_noises([seed, number]),
            mixing=_TRAIN if split == "train" else AS_RECORDED,
            speakers=(),
        )
    return Corpus(source=source, classes=files.classes, seed=seed, splits=splits)
