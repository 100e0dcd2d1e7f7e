"""prepare: turn a keyword corpus into standardised MFCC features, with the training examples augmented.

Reads   the corpus that `data.source` names: spoken by espeak-ng on the spot, or a local copy in `data.root`
Writes  features/{train,validation,test}_{x,y}.npy, dataset.json
Fails   StageError when the corpus is not there or not whole, ToolError when espeak-ng is missing
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import Progress, stage, write_json
from stages.prepare.config import DataConfig, PrepareConfig


@dataclass(frozen=True, kw_only=True)
class Prepared:
    features: Path  # folder of {train,validation,test}_{x,y}.npy
    dataset: Path  # source, classes, counts, shapes, standardisation, provenance; JSON


@stage(
    "prepare", packages=("torch", "torchaudio", "numpy"), optional_programs=("espeak-ng",), sources=("data/manifests",)
)
def run(*, config: PrepareConfig, data: DataConfig, out_dir: Path, progress: Progress) -> Prepared:
    from stages.prepare.dataset import featurised, save_arrays
    from stages.prepare.source import open_corpus

    corpus = open_corpus(data, progress)
    progress.start(corpus.examples, "clip")
    arrays, record = featurised(corpus, config.settings(), progress.advance)
    return Prepared(
        features=save_arrays(out_dir / "features", arrays),
        dataset=write_json(out_dir / "dataset.json", record),
    )
