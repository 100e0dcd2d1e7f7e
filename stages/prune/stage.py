"""prune: train the backbone and shrink it, while it trains, until it meets the budgets of the device.

Reads   features/{train,validation,test}_{x,y}.npy, dataset.json (classes, kind of data)
Writes  network.pt (weights of the small float network), architecture.json, trajectory.csv, metrics.json, layers.csv,
        history.csv
Fails   ConfigError for a budget that no width can meet or a network that is not made for the data; StageError for a
        loss that is not finite, or for budgets not met by the last epoch (unless a study was told not to look at them)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.stage import Checkpoint, Progress, read_json, stage, write_json
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.training.config import PLAIN, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Pruned:
    network: Path  # network.pt: state_dict of the shrunk float network
    architecture: Path  # architecture.json: rebuilds it
    trajectory: Path  # trajectory.csv: one row per update, then one per epoch
    prune_metrics: Path  # metrics.json: accuracy, resources before and after
    pruned_layers: Path  # layers.csv: what each op needs before and after
    prune_history: Path  # history.csv: loss and validation accuracy of every epoch


@stage("prune", packages=("torch", "numpy"), check="stages.prune.training:check")
def run(
    features: Path,
    dataset: Path,
    *,
    config: PruneConfig,
    network: NetworkConfig,
    budget: BudgetConfig,
    training: TrainingConfig = PLAIN,
    out_dir: Path,
    progress: Progress,
    checkpoint: Checkpoint,
) -> Pruned:
    from stages.nets.registry import save_architecture
    from stages.prune.signal.layer_table import write_layers
    from stages.prune.task import Task
    from stages.prune.training import prune_metrics, train, write_network
    from stages.prune.trajectory import group_names, write_trajectory
    from stages.training.examples import load_examples
    from stages.training.history import write_history
    from stages.training.parallel import together

    record = read_json(dataset)
    classes = len(record["classes"])
    are_pictures = "image_px" in record.get("features", ())
    examples = load_examples(features, classes, are_pictures=are_pictures, training=training)
    task = Task(examples, network.for_data(examples.input_shape, classes), budget, config, training)
    given = {"config": config, "network": network, "budget": budget, "training": training, "checkpoint": checkpoint}
    with together(training, "stages.prune.stage", {"features": features, "dataset": dataset, **given}):
        trained = train(task, progress, checkpoint)
    return Pruned(
        network=write_network(out_dir / "network.pt", trained.net),
        architecture=save_architecture(out_dir / "architecture.json", trained.architecture),
        trajectory=write_trajectory(
            out_dir / "trajectory.csv", trained.trajectory, group_names(trained.unpruned.graph)
        ),
        prune_metrics=write_json(out_dir / "metrics.json", prune_metrics(trained, budget)),
        pruned_layers=write_layers(
            out_dir / "layers.csv", trained.unpruned.graph, trained.pruned.graph, budget.runtime
        ),
        prune_history=write_history(out_dir / "history.csv", trained.losses, trained.accuracies),
    )
