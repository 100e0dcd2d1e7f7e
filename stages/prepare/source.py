"""From the `data` section to a corpus of clips or a set of pictures: built in, local, or downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from data import (
    Corpus,
    CorpusSize,
    ImageSet,
    Listener,
    Located,
    builtin_images,
    cifar10_images,
    folder_data,
    imagenet_images,
    keyword_corpus,
    load_manifest,
    located,
    speech_commands_corpus,
    visual_wake_words_images,
)
from pipeline.errors import ConfigError
from pipeline.stage import Progress
from stages.prepare.config import DataConfig


def open_data(data: DataConfig, progress: Progress) -> Corpus | ImageSet:
    """The data that were asked for, or a sentence on how to get them."""
    source = _opened(data, progress)
    if data.mixing is None:
        return source
    if isinstance(source, ImageSet):
        raise ConfigError(f"data.mixing: found with {data.source}, which are pictures, needed sounds; leave it out")
    train = source.splits["train"]
    mixed = replace(train, mixing=data.mixing.applied_to(train.mixing))
    return replace(source, splits={**source.splits, "train": mixed})


def _opened(data: DataConfig, progress: Progress) -> Corpus | ImageSet:
    if data.source == "builtin_keywords":
        size = CorpusSize(voices=data.voices, prosodies=data.prosodies, copies=data.clip_copies, seed=data.seed)
        return keyword_corpus(size, start=lambda total: progress.start(total, "clip"), advance=progress.advance)
    if data.source == "builtin_images":
        return builtin_images(
            classes=data.image_classes, image_px=data.side_px, per_class=data.per_class, seed=data.seed
        )
    if data.source == "folder":
        assert data.root is not None, "DataConfig refuses this"
        kept = {"copies": data.clip_copies, "seed": data.seed, "per_class": data.per_class}
        return folder_data(data.root, image_px=data.image_px, **kept)
    listener = Listener(start=progress.start, advance=progress.advance)
    progress.start(1, "data set")
    where = located(load_manifest(data.source), data.root, data.download_dir, listener)
    progress.advance(1, note=where.note)
    return _OPENERS[data.source](where, data)


def _speech_commands(where: Located, data: DataConfig) -> Corpus:
    return speech_commands_corpus(
        data.source,
        where.folder,
        copies=data.clip_copies,
        seed=data.seed,
        unknown_share=data.unknown_share,
        origin=where.origin,
    )


_OPENERS: dict[str, Callable[[Located, DataConfig], Corpus | ImageSet]] = {
    "speech_commands_v0.01": _speech_commands,
    "speech_commands_v0.02": _speech_commands,
    "cifar10": lambda where, data: cifar10_images(where, data.side_px, data.per_class),
    "visual_wake_words": lambda where, data: visual_wake_words_images(where, data.side_px, data.per_class),
    "imagenet": lambda where, data: imagenet_images(where, data.side_px, data.per_class),
}
