"""Whether pruning reaches the budgets of every experiment in pipeline.yaml, from its unpruned backbone.

    python -m tests.benchmarks.pruning_budgets [NAME ...] [--csv table.csv]

The prune step's own training loop on noise instead of data: two pictures a batch, an update of the widths after every
step, the shrink as soon as the budgets hold. Rules and floors are the experiment's, the rate is higher. The figures
after pruning are those of the rebuilt small network, traced anew. Exit code 1 unless every network is within all its
budgets and uses at least 90 % of the tightest one. About ten minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.stage import Checkpoint
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import Resources, resources
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.objectives import exceeded
from stages.prune.task import Task
from stages.prune.training import train
from stages.training.examples import Examples, Split
from tests.benchmarks.subjects.pruning_experiments import PruneExperiment, experiment_names, prune_experiment

STEPS, BATCH, NEEDED_SHARE = 240, 2, 0.9
RATE = 12.0  # three times the default, to save time: a training has thousands of updates, this has 240
QUICK = {
    "epochs": 1, "batch": BATCH, "validation_batch": BATCH, "update_every": 1, "start_step": 1, "settle_updates": 0,
    "threads": 1, "learning_rate": 1e-3, "missed_budgets": "report", "shift_frames": 0, "masked_frames": 0,
    "masked_coefficients": 0, "noise": 0.0, "rate": RATE,
}  # fmt: skip
FIGURES = ("size_bytes", "peak_bytes", "macs")


@dataclass(frozen=True)
class Reached:
    """One experiment's line."""

    experiment: str
    before: Resources
    after: Resources
    budget: BudgetConfig
    updates: int
    seconds: float

    @property
    def shares(self) -> dict[str, float]:
        return {name: getattr(self.after, name) / limit for name, limit in self.budget.limits.items()}

    @property
    def tightest(self) -> str:
        return max(self.shares, key=self.shares.__getitem__)

    @property
    def is_within(self) -> bool:
        return not exceeded(self.after, self.budget)

    @property
    def is_good(self) -> bool:
        return self.is_within and self.shares[self.tightest] >= NEEDED_SHARE


class Quiet:
    """A progress that nobody watches."""

    def start(self, total: int, unit: str) -> None: ...

    def advance(self, count: int = 1, note: str = "") -> None: ...


def noise(network: NetworkConfig) -> Examples:
    """Pictures of noise; few of them are different, to save memory."""
    height, width, channels = network.input_shape
    draw = torch.Generator().manual_seed(0)
    pictures = torch.randn(2 * BATCH, channels, height, width, generator=draw)

    def split(count: int) -> Split:
        return Split(pictures[torch.arange(count) % len(pictures)], torch.arange(count) % network.classes)

    return Examples(split(STEPS * BATCH), split(2 * BATCH), split(BATCH))


def reached(found: PruneExperiment) -> Reached:
    """Prune one experiment's backbone."""
    started = time.perf_counter()
    config = PruneConfig(**{**found.prune.model_dump(), **QUICK})
    with tempfile.TemporaryDirectory() as folder:
        trained = train(
            Task(noise(found.network), found.network, found.budget, config), Quiet(), Checkpoint(Path(folder))
        )
    after = resources(graph_from_torch(trained.net, found.network.input_shape))
    seconds = time.perf_counter() - started
    updates = sum(row.objective != "none" for row in trained.trajectory)
    return Reached(found.name, trained.unpruned.resources, after, found.budget, updates, seconds)


def cells(line: Reached) -> dict[str, str]:
    """A line of the table; a resource without a budget has no share."""
    shown = {"experiment": line.experiment}
    for name in FIGURES:
        allowed = line.budget.limits.get(name)
        shown[f"{name} before"] = f"{getattr(line.before, name)}"
        shown[f"{name} after"] = f"{getattr(line.after, name)}"
        shown[f"{name} budget"] = "" if allowed is None else str(allowed)
        shown[f"{name} share"] = "" if allowed is None else f"{line.shares[name]:.3f}"
    return shown | {
        "tightest": line.tightest.removesuffix("_bytes"),
        "within": "yes" if line.is_within else "no",
        "updates": str(line.updates),
        "seconds": f"{line.seconds:.0f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    lines: list[Reached] = []
    for name in given.names or experiment_names():
        lines.append(reached(prune_experiment(name)))
        shown = cells(lines[-1])
        if len(lines) == 1:
            sys.stdout.write(f"| {' | '.join(shown)} |\n|{'---|' * len(shown)}\n")
        sys.stdout.write(f"| {' | '.join(shown.values())} |\n")
        sys.stdout.flush()
    if given.csv:
        with given.csv.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(cells(lines[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(cells(line) for line in lines)
    return 0 if all(line.is_good for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
