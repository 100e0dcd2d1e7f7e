"""Speech Commands from a local copy in the official layout: WORD/SPEAKER_nohash_N.wav, two lists, background noise.

The protocol of Warden 2018 (arXiv:1804.03209): clips in validation_list.txt and testing_list.txt are held out, all
others train; unknown and silence are each a tenth as many as the keyword clips of their split, unknown drawn by seed.
Training may be given more of the unknown ones (`unknown_share`): what is said to a device is mostly none of its words.
Refuses a copy that lacks a word, a list, a listed clip or the noise, has words of neither version, or in which a
speaker is in two splits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from data.fetching.manifest import SILENCE, UNKNOWN, Manifest, load_manifest
from data.fetching.splits import SPLITS, Split
from data.sounds.audio import SAMPLE_RATE_HZ, Float, WavClips, padded
from data.sounds.corpus import AS_RECORDED, NO_CLIP, Corpus, Mixing, SplitAudio
from data.sounds.noise import NOISE_FOLDER, recorded_noises
from pipeline.errors import StageError

LISTS: Mapping[Split, str] = {"validation": "validation_list.txt", "test": "testing_list.txt"}
VERSIONS = ("speech_commands_v0.01", "speech_commands_v0.02")
SHARE = 0.1  # of the keyword clips: as many examples of unknown, and of silence

_TRAIN = Mixing(
    shift_samples=SAMPLE_RATE_HZ // 10,
    gain_db=(0.0, 0.0),  # the recordings differ enough
    noise_share=0.8,
    snr_db=(5.0, 40.0),
    silence_dbfs=(-65.0, -10.0),
    tempo=1.15,
)


def speech_commands_corpus(
    name: str, root: Path, *, copies: int, seed: int, unknown_share: float = SHARE, origin: str = "local copy"
) -> Corpus:
    """The corpus below `root`, or below `root/NAME` where that exists.

    A copy of the other version is recognised by its words and used; the source line says so.
    """
    manifest, folder = _recognised(name, root)
    _refuse_other_words(manifest, folder)
    names = _names_per_split(manifest, folder)
    _refuse_shared_speakers(names)
    noises = recorded_noises(folder / NOISE_FOLDER)
    splits = {
        split: _split_audio(
            manifest,
            WavClips(folder, names[split], padded),
            noises,
            split,
            copies=copies if split == "train" else 1,
            seed=seed,
            unknown_share=unknown_share if split == "train" else SHARE,
        )
        for split in SPLITS
    }
    clips = sum(len(names[split]) for split in SPLITS)
    source = f"{manifest.name}, {origin} of {clips} clips"
    if manifest.name != name:
        source += f" (in place of {name}, which data.source names)"
    return Corpus(source=source, classes=manifest.classes, seed=seed, splits=splits)


def _recognised(name: str, root: Path) -> tuple[Manifest, Path]:
    """The version that lies there and its folder; the one that was asked for when neither can be recognised."""
    manifests = [load_manifest(version) for version in (name, *(other for other in VERSIONS if other != name))]
    folders = [root / name, *([root] if (root / NOISE_FOLDER).is_dir() else [root / each for each in VERSIONS]), root]
    present = [folder for folder in folders if folder.is_dir()]
    for folder in present:
        for manifest in manifests:
            if _words(folder) == {*manifest.keywords, *manifest.unknown_words}:
                return manifest, folder
    return manifests[0], present[0] if present else root


def _words(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir() and path.name != NOISE_FOLDER}


def _split_audio(
    manifest: Manifest,
    clips: WavClips,
    noises: Sequence[Float],
    split: Split,
    *,
    copies: int,
    seed: int,
    unknown_share: float,
) -> SplitAudio:
    label_of = {word: manifest.classes.index(word) for word in manifest.keywords}
    words = [name.partition("/")[0] for name in clips.names]
    said = [i for i, word in enumerate(words) if word in label_of]
    others = [i for i, word in enumerate(words) if word not in label_of]
    silent, strange = (math.ceil(len(said) * share) for share in (SHARE, unknown_share))
    drawn = np.random.default_rng([seed, SPLITS.index(split)]).permutation(others)[:strange]
    takes = [*said, *sorted(int(i) for i in drawn), *[NO_CLIP] * silent]
    unknown, silence = manifest.classes.index(UNKNOWN), manifest.classes.index(SILENCE)
    labels = [silence if take == NO_CLIP else label_of.get(words[take], unknown) for take in takes]
    return SplitAudio(
        clips=clips,
        takes=np.repeat(np.asarray(takes, dtype=np.int64), copies),
        labels=np.repeat(np.asarray(labels, dtype=np.int64), copies),
        noises=noises,
        mixing=_TRAIN if split == "train" else AS_RECORDED,
        speakers=tuple(sorted({_speaker(name) for name in clips.names})),
    )


def _names_per_split(manifest: Manifest, folder: Path) -> dict[Split, tuple[str, ...]]:
    words = sorted([*manifest.keywords, *manifest.unknown_words])
    present = [f"{word}/{path.name}" for word in words for path in sorted((folder / word).glob("*.wav"))]
    held_out = {split: _listed(folder / file, set(present)) for split, file in LISTS.items()}
    anywhere = frozenset[str]().union(*held_out.values())
    train = tuple(name for name in present if name not in anywhere)
    names: dict[Split, tuple[str, ...]] = {"train": train}
    for split, listed in held_out.items():
        names[split] = tuple(name for name in present if name in listed)
    for split in SPLITS:
        if not names[split]:
            raise StageError(f"{folder}: no clips in the {split} split, needed some; is the copy complete?")
    return names


def _listed(path: Path, present: set[str]) -> frozenset[str]:
    if not path.is_file():
        raise StageError(f"{path}: not found, needed for the official split; unpack the archive again")
    listed = frozenset(line.strip() for line in path.read_text().splitlines() if line.strip())
    missing = sorted(listed - present)
    if missing:
        raise StageError(
            f"{path}: {len(missing)} of its clips are not there, first {missing[0]}; unpack the archive again"
        )
    return listed


def _refuse_other_words(manifest: Manifest, folder: Path) -> None:
    if not folder.is_dir():
        raise StageError(f"{folder}: no such folder, needed a copy of {manifest.name}; set data.root to it")
    found = _words(folder)
    needed = {*manifest.keywords, *manifest.unknown_words}
    missing, extra = sorted(needed - found), sorted(found - needed)
    if missing or extra:
        raise StageError(
            f"{folder}: found words {extra or 'none'} too many, {missing or 'none'} missing for {manifest.name};"
            " is the copy complete? unpack the archive again"
        )


def _refuse_shared_speakers(names: Mapping[Split, Sequence[str]]) -> None:
    split_of: dict[str, Split] = {}
    for split in SPLITS:
        for name in names[split]:
            speaker = _speaker(name)
            if split_of.setdefault(speaker, split) != split:
                raise StageError(
                    f"{name}: speaker is in {split_of[speaker]} and in {split}; the list files were changed"
                )


def _speaker(name: str) -> str:
    return name.partition("/")[2].partition("_nohash_")[0].removesuffix(".wav")
