"""The experiments of pipeline.yaml as the prune step sees them: backbone, budgets, recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import load_experiment, load_project
from pipeline.engine.dag import load_steps, section_models
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig

PROJECT = Path(__file__).parents[3] / "pipeline.yaml"


@dataclass(frozen=True)
class PruneExperiment:
    """What one experiment prunes."""

    name: str
    network: NetworkConfig
    budget: BudgetConfig
    prune: PruneConfig


def experiment_names() -> tuple[str, ...]:
    return tuple(load_project(PROJECT).experiments)


def prune_experiment(name: str, settings: Sequence[str] = ()) -> PruneExperiment:
    """An experiment by name; `settings` as `pipeline run --set` takes them."""
    project = load_project(PROJECT)
    models = section_models(load_steps(project.steps))
    sections = load_experiment(project, name, quick=False, settings=settings, models=models).sections
    network, budget, prune = sections["network"], sections["budget"], sections["prune"]
    assert isinstance(network, NetworkConfig) and isinstance(budget, BudgetConfig) and isinstance(prune, PruneConfig)
    return PruneExperiment(name, network, budget, prune)
