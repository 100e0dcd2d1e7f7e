"""What training needs to augment on the fly: the clips as they are, the noise, and how to mix and standardise.

Pictures need no files of their own: training moves and mirrors the features themselves.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from data import CLIP_SAMPLES, Corpus, ImageSet
from data.examples.augmentation import NOISE, RECORD, TAKES, WAVES, AudioRecord, PictureRecord
from data.sounds.corpus import NO_CLIP
from pipeline.stage import write_json
from stages.prepare.dataset import BATCH, DatasetRecord, allocated
from stages.prepare.workers import spread


def write_augmentation(source: Corpus | ImageSet, record: DatasetRecord, folder: Path) -> None:
    """Write train_wave.npy, train_takes.npy, train_noise.npy and augmentation.json; for pictures the last alone."""
    if isinstance(source, ImageSet):
        write_json(folder / RECORD, PictureRecord(kind="pictures"))
        return
    audio = source.splits["train"]
    waves = allocated(folder / WAVES, (len(audio.takes), CLIP_SAMPLES), np.int16)

    def task(number: int) -> None:
        for i in range(number * BATCH, min((number + 1) * BATCH, len(waves))):
            if audio.takes[i] != NO_CLIP:
                waves[i] = audio.clips[int(audio.takes[i])]

    for _ in spread(task, -(-len(waves) // BATCH)):
        pass
    if isinstance(waves, np.memmap):
        waves.flush()
    np.save(folder / TAKES, np.where(audio.takes == NO_CLIP, NO_CLIP, np.arange(len(audio.takes))))
    np.save(folder / NOISE, np.concatenate(audio.noises).astype(np.float32))
    write_json(
        folder / RECORD,
        AudioRecord(
            kind="audio",
            mixing=asdict(audio.mixing),
            noise_samples=tuple(len(noise) for noise in audio.noises),
            front_end=asdict(record.features),
            mean=record.feature_mean,
            std=record.feature_std,
        ),
    )
