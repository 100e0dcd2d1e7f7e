"""qat: fine-tune the pruned network with int8 rounding in the loop.

Reads   features (.npy splits), network.pt, architecture.json
Writes  qat.pt (the float graph with trained weights and the int8 grid of every tensor), metrics.json,
        history.csv
Fails   StageError when the weights do not fit the architecture, or the loss is not finite
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import Checkpoint, Progress, stage, write_json
from stages.qat.config import QatConfig
from stages.training.config import PLAIN, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """What qat makes."""

    qat_network: Path  # qat.pt
    qat_metrics: Path  # metrics.json
    qat_history: Path  # history.csv: loss and validation accuracy of every epoch


@stage("qat", packages=("torch", "numpy"))
def run(
    features: Path,
    network: Path,
    architecture: Path,
    *,
    config: QatConfig,
    training: TrainingConfig = PLAIN,
    out_dir: Path,
    progress: Progress,
    checkpoint: Checkpoint,
) -> Quantised:
    from stages.nets.registry import read_architecture
    from stages.qat.quantised_network import fake_quant_network, measured, save_quantised
    from stages.qat.training import Tuning, train
    from stages.training.determinism import reproducible
    from stages.training.device import chosen_device
    from stages.training.distillation import load_teacher
    from stages.training.examples import load_examples
    from stages.training.history import write_history
    from stages.training.parallel import rank, together

    shape = read_architecture(architecture)
    examples = load_examples(features, shape.classes, training=training)
    shape.network.for_data(examples.input_shape, shape.classes)
    given = {"features": features, "network": network, "architecture": architecture, "config": config}
    others = together(training, "stages.qat.stage", {**given, "training": training, "checkpoint": checkpoint})
    with others, reproducible(config.threads, chosen_device(training.device).type):
        device = chosen_device(training.device, rank())
        pruned = fake_quant_network(shape, network, config).to(device)
        teacher = load_teacher(training.distillation, shape.input_shape, shape.classes, device)
        before = measured(pruned, examples, quantises=False)
        trained = train(Tuning(pruned, examples, config, training, teacher), progress, checkpoint)
        after = measured(trained.net, examples, quantises=True)
    metrics = {"float": before.accuracies, "fake_quant": after.accuracies, "losses": trained.losses}
    return Quantised(
        qat_network=save_quantised(out_dir / "qat.pt", trained.net, before, after),
        qat_metrics=write_json(out_dir / "metrics.json", metrics),
        qat_history=write_history(out_dir / "history.csv", trained.losses, trained.accuracies),
    )
