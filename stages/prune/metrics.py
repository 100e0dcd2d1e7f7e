"""metrics.json of the prune step, and the network's weights as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from stages.graph.memory.resources import Resources, resources
from stages.nets.config import BudgetConfig
from stages.prune.objectives import exceeded
from stages.prune.training import Trained


@dataclass(frozen=True)
class PruneMetrics:
    """What pruning kept and what it cost."""

    validation_accuracy: float
    test_accuracy: float
    before: Resources
    after: Resources
    budget: dict[str, int]
    fits: bool
    widths: tuple[int, ...]
    updates: int
    macs_trained_relative: float


def prune_metrics(trained: Trained, budget: BudgetConfig) -> PruneMetrics:
    after = resources(trained.pruned.graph, budget.runtime)
    return PruneMetrics(
        validation_accuracy=trained.validation_accuracy,
        test_accuracy=trained.test_accuracy,
        before=resources(trained.unpruned.graph, budget.runtime),
        after=after,
        budget=budget.limits,
        fits=not exceeded(after, budget),
        widths=trained.architecture.widths,
        updates=max((row.update for row in trained.trajectory), default=0),
        macs_trained_relative=trained.macs_trained_relative,
    )


def write_network(path: Path, net: nn.Module) -> Path:
    """The state_dict, contiguous, readable with weights_only."""
    torch.save({name: tensor.cpu().contiguous() for name, tensor in net.state_dict().items()}, path)
    return path
