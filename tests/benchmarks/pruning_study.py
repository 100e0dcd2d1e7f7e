"""Pruning studies on prepared data: one training per call, one row per training, a table of means over seeds.

    python -m tests.benchmarks.pruning_study --data FOLDER --out study.csv --arm uniform --seed 0 --epochs 12
    python -m tests.benchmarks.pruning_study --out study.csv --table
    python -m tests.benchmarks.pruning_study --arms

FOLDER holds what the prepare step made: features/*.npy and dataset.json. The experiment (--experiment, kws_dscnn_s by
default) gives backbone, budgets and recipe; the arm changes the switches that it is named for, --set changes anything
for all arms alike (`--set budget.peak_bytes=20KB`). A row that is already in the CSV is not computed again; a run that
was killed goes on from its last epoch. Choices are made by validation accuracy; test accuracy is reported only.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import fcntl
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError
from pipeline.stage import Checkpoint
from stages.prune.config import PruneConfig
from stages.prune.stage import run as prune_step
from tests.benchmarks.subjects.pruning_experiments import PROJECT, PruneExperiment, prune_experiment

ARMS: dict[str, dict[str, Any]] = {
    "initial_losses": {},  # the paper's rule
    "first_gradients": {"alpha_rule": "first_gradients"},  # the rule of its appendix
    "every_gradient": {"alpha_rule": "every_gradient"},
    "secant": {"alpha_rule": "first_gradients", "task_slope": "secant"},
    "secant_every": {"alpha_rule": "every_gradient", "task_slope": "secant"},
    "uniform": {"method": "uniform"},
    "resource_only": {"losses": "resource"},
    "task_only": {"losses": "task"},
    "sum": {"scalarisation": "sum"},
    "exact_peak": {"peak": "exact"},
    "imprecise_peak": {"peak": "imprecise"},
    "no_peak": {"objectives": ("size_bytes", "macs")},
    "live_masks": {"early_termination": False},
    "late_start": {"start_step": 2000},
    "multiple_2": {"channel_multiple": 2},
    "multiple_4": {"channel_multiple": 4},
}
KEY = ("experiment", "arm", "seed", "epochs", "settings")
COLUMNS = (
    *KEY, "validation_accuracy", "test_accuracy", "size_bytes", "peak_bytes", "macs", "fits", "updates",
    "macs_trained_relative", "seconds", "widths", "commit",
)  # fmt: skip
TITLES = (
    "experiment", "arm", "epochs", "n", "validation %", "test %", "size B", "peak B", "MACs", "within budget",
    "MACs trained",
)  # fmt: skip


@dataclass(frozen=True)
class StudyRun:
    """One training."""

    experiment: str
    arm: str
    seed: int
    epochs: int
    settings: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        return self.experiment, self.arm, str(self.seed), str(self.epochs), " ".join(sorted(self.settings))

    @property
    def folder(self) -> str:
        """A name for its checkpoint; settings may be longer than a file name."""
        digest = hashlib.sha256(" ".join(self.key).encode()).hexdigest()[:8]
        return f"{self.experiment}-{self.arm}-{self.seed}-{self.epochs}-{digest}"

    def resolved(self) -> PruneExperiment:
        """Backbone, budgets and recipe with the arm's switches; one thread, and a missed budget is a finding."""
        found = prune_experiment(self.experiment, self.settings)
        own = {"seed": self.seed, "epochs": self.epochs, "threads": 1, "missed_budgets": "report"}
        recipe = PruneConfig(**{**found.prune.model_dump(), **ARMS[self.arm], **own})
        return PruneExperiment(found.name, found.network, found.budget, recipe)


class Clock:
    """Progress on stderr; keeps the seconds spent so far beside the checkpoint, for a run that is resumed."""

    def __init__(self, file: Path) -> None:
        self.file, self.started = file, time.perf_counter()
        self.before = float(file.read_text()) if file.exists() else 0.0
        self.done = 0

    @property
    def seconds(self) -> float:
        return self.before + time.perf_counter() - self.started

    def start(self, total: int, unit: str) -> None:
        self.total = total

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        self.file.write_text(f"{self.seconds:.1f}")
        sys.stderr.write(f"epoch {self.done}/{self.total} {note} {self.seconds:.0f} s\n")


def train(study: StudyRun, data: Path, work: Path) -> dict[str, Any]:
    """Run the prune step; its row."""
    out_dir = work / "out"
    shutil.rmtree(out_dir, ignore_errors=True)
    out_dir.mkdir(parents=True)
    clock, found = Clock(work / "seconds"), study.resolved()
    made = prune_step.function(
        data / "features",
        data / "dataset.json",
        config=found.prune,
        network=found.network,
        budget=found.budget,
        out_dir=out_dir,
        progress=clock,
        checkpoint=Checkpoint(work),
    )
    metrics = json.loads(made.prune_metrics.read_text())
    after = metrics["after"]
    return {
        **dict(zip(KEY, study.key, strict=True)),
        **{name: f"{metrics[name]:.5f}" for name in ("validation_accuracy", "test_accuracy", "macs_trained_relative")},
        **{name: after[name] for name in ("size_bytes", "peak_bytes", "macs")},
        "fits": "true" if metrics["fits"] else "false",
        "updates": metrics["updates"],
        "seconds": f"{clock.seconds:.0f}",
        "widths": " ".join(str(width) for width in metrics["widths"]),
        "commit": commit(),
    }


def commit() -> str:
    """The revision that trained, with a mark when files differ from it."""
    asked = ["git", "-C", str(PROJECT.parent), "describe", "--always", "--dirty", "--abbrev=10"]
    found = subprocess.run(asked, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def has_row(path: Path, study: StudyRun) -> bool:
    return any(tuple(row[name] for name in KEY) == study.key for row in read_rows(path))


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row; the file is replaced whole, so a reader or a kill never meets half of it."""
    with locked(path):
        rows: list[dict[str, Any]] = [*read_rows(path), row]
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with fresh.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(fresh, path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def table(rows: Sequence[dict[str, str]]) -> str:
    """Mean and standard error over the seeds, one line per arm."""
    lines = [
        f"| {' | '.join(TITLES)} |",
        f"|{'---|' * len(TITLES)}",
    ]
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["experiment"], row["arm"], row["epochs"], row["settings"]), []).append(row)
    for (experiment, arm, epochs, settings), found in groups.items():
        title = f"{arm} ({settings})" if settings else arm
        accuracies = [mean_and_error(found, name) for name in ("validation_accuracy", "test_accuracy")]
        used = [
            f"{statistics.fmean(float(row[name]) for row in found):,.0f}"
            for name in ("size_bytes", "peak_bytes", "macs")
        ]
        fitting = f"{sum(row['fits'] == 'true' for row in found)} of {len(found)}"
        spent = f"{statistics.fmean(float(row['macs_trained_relative']) for row in found):.3f}"
        cells = [experiment, title, epochs, str(len(found)), *accuracies, *used, fitting, spent]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def mean_and_error(rows: Sequence[dict[str, str]], column: str) -> str:
    """In percent; the standard error needs two seeds."""
    values = [100 * float(row[column]) for row in rows]
    mean = statistics.fmean(values)
    return f"{mean:.2f}" if len(values) < 2 else f"{mean:.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--experiment", default="kws_dscnn_s")
    parser.add_argument("--arm", choices=ARMS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--arms", action="store_true")
    given = parser.parse_args()
    if given.arms:
        sys.stdout.write("".join(f"{name:16} {changes or 'as configured'}\n" for name, changes in ARMS.items()))
        return 0
    if given.table:
        if given.out is None:
            parser.error("--table needs --out")
        sys.stdout.write(table(read_rows(given.out)))
        return 0
    if None in (given.data, given.out, given.arm, given.epochs):
        parser.error("a training needs --data, --out, --arm and --epochs")
    study = StudyRun(given.experiment, given.arm, given.seed, given.epochs, tuple(given.settings))
    if has_row(given.out, study):
        sys.stderr.write(f"{' '.join(study.key)}: already in {given.out}\n")
        return 0
    work = given.out.with_name(f"{given.out.name}.runs") / study.folder
    try:
        row = train(study, given.data, work)
    except PipelineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    append_row(given.out, row)
    shutil.rmtree(work)
    sys.stdout.write(f"{row}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
