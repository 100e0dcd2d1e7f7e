"""qat: fine-tune the pruned network with int8 rounding in the loop.

Reads   features (.npy splits), network.pt, architecture.json
Writes  qat.pt (the float graph with trained weights and the int8 grid of every tensor), metrics.json
Fails   StageError when the weights do not fit the architecture, or the loss is not finite
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from pipeline.stage import Checkpoint, Config, Progress, stage, write_json


class QatConfig(Config):
    """How long and how to fine-tune."""

    epochs: int = Field(default=10, ge=0)  # 0: calibration only
    batch: int = Field(default=100, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)  # Adam's, at the start of the cosine schedule
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)  # the same as in prune by default
    calibration_samples: int = Field(default=500, ge=1)  # of the training split
    threads: int = Field(default=2, ge=1)  # part of the result: sums are split among them
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """What qat makes."""

    qat_network: Path  # qat.pt
    qat_metrics: Path  # metrics.json


@stage("qat", packages=("torch", "numpy"))
def run(
    features: Path,
    network: Path,
    architecture: Path,
    *,
    config: QatConfig,
    out_dir: Path,
    progress: Progress,
    checkpoint: Checkpoint,
) -> Quantised:
    from stages.nets.registry import read_architecture
    from stages.qat.quantised_network import fake_quant_network, measured, save_quantised
    from stages.qat.training import Recipe, deterministic, load_splits, train

    shape = read_architecture(architecture)
    recipe = Recipe(**config.model_dump(exclude={"threads"}))
    with deterministic(config.threads, config.seed):
        splits = load_splits(features, shape.input_shape, shape.classes)
        trained = fake_quant_network(shape, network)
        before = measured(trained, splits, quantises=False)
        losses = train(trained, splits["train"], recipe, progress, checkpoint)
        after = measured(trained, splits, quantises=True)
    metrics = {"float": before.accuracies, "fake_quant": after.accuracies, "losses": losses}
    return Quantised(
        qat_network=save_quantised(out_dir / "qat.pt", trained, before, after),
        qat_metrics=write_json(out_dir / "metrics.json", metrics),
    )
