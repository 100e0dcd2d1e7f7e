"""bring: take a .tflite that somebody made elsewhere into the pipeline, with golden values from TensorFlow Lite Micro.

Reads   the file that the configuration names, and perhaps inputs for it (.npy, int8, first axis: which input)
Writes  model.tflite, golden.npz (inputs, outputs)
Fails   StageError when a file changed since it was named, is damaged, or holds an operator that we cannot run
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from pipeline.stage import Config, stage


class BroughtFile(Config):
    """A file outside the project; its digest makes it part of the cache key."""

    path: Path
    sha256: str


class BringConfig(Config):
    """What is brought along."""

    model: BroughtFile
    inputs: BroughtFile | None = None
    random_inputs: int = Field(default=8, ge=1)  # golden inputs where none are given; two extreme ones come on top
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Brought:
    model: Path  # model.tflite, int8 in and out
    golden: Path  # golden.npz: inputs, and the outputs that TensorFlow Lite Micro gives


@stage("bring", packages=("ai-edge-litert", "tflite-micro", "flatbuffers", "numpy"))
def run(*, config: BringConfig, out_dir: Path) -> Brought:
    import numpy as np

    from stages.bring.golden import golden_inputs, pinned_bytes
    from stages.graph.planned_file import without_float_edges
    from stages.graph.tflm import run_tflm

    content, edges = without_float_edges(pinned_bytes(config.model.path, config.model.sha256))
    graph = edges.graph
    given = pinned_bytes(config.inputs.path, config.inputs.sha256) if config.inputs else None
    inputs = golden_inputs(graph, given, config.random_inputs, config.seed)
    np.savez(out_dir / "golden.npz", inputs=inputs, outputs=run_tflm(content, graph, inputs))
    (out_dir / "model.tflite").write_bytes(content)
    return Brought(model=out_dir / "model.tflite", golden=out_dir / "golden.npz")
