"""prepare: turn a data set into standardised features: MFCCs of clips, or pictures of one size.

Reads   the data that `data.source` names: made on the spot, a local copy in `data.root`, or a download in
        `data.download_dir`, which is the one thing written outside of out_dir
Writes  features/{train,validation,test}_{x,y}.npy (of pictures x is in shards of bytes, see data.examples.stored),
        dataset.json; with `data.augment: on_the_fly` also what training
        needs to augment: features/train_{wave,takes,noise}.npy and features/augmentation.json
Fails   StageError when the data are not there, not whole or not what was asked for, ToolError when espeak-ng is missing
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import Progress, stage, write_json
from stages.prepare.config import DataConfig, PrepareConfig


@dataclass(frozen=True, kw_only=True)
class Prepared:
    features: Path  # folder of {train,validation,test}_{x,y}.npy, read by data.examples.stored
    dataset: Path  # source, classes, counts, shapes, standardisation, provenance; JSON


@stage(
    "prepare",
    packages=("torch", "torchaudio", "torchvision", "pillow", "numpy"),
    optional_programs=("espeak-ng",),
    sources=("data/manifests",),
)
def run(*, config: PrepareConfig, data: DataConfig, out_dir: Path, progress: Progress) -> Prepared:
    from stages.prepare.dataset import write_features
    from stages.prepare.source import open_data
    from stages.prepare.waveforms import write_augmentation

    source = open_data(data, progress)
    progress.start(source.examples, "example")
    progress.advance(0, note=source.source)
    record = write_features(source, config.settings(), out_dir / "features", progress.advance)
    if data.on_the_fly:
        write_augmentation(source, record, out_dir / "features")
    return Prepared(features=out_dir / "features", dataset=write_json(out_dir / "dataset.json", record))
