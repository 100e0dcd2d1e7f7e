"""Does a switch of `training` pay? Short trainings on real Speech Commands, one at a time, mean and standard error.

    python -m tests.benchmarks.training.recipes --root FOLDER --work WORK                 # trains what is missing
    python -m tests.benchmarks.training.recipes --root FOLDER --work WORK --arms plain,bfloat16 --seeds 9
    python -m tests.benchmarks.training.recipes --work WORK --table

FOLDER is Speech Commands v0.01 in its official layout. Every training is the DS-CNN of MLPerf Tiny (64 channels, never
pruned: its budget is its own size), one thread, few epochs, so the accuracies are below those of a full training; what
counts is the difference to `plain`, seed by seed. Killed, it goes on where it was. Test accuracy of the float network.

    python -m tests.benchmarks.training.recipes --work WORK --int8 [--seeds 3]

fine-tunes the `plain` networks with int8 rounding in the loop (one epoch), one time for each kind of ranges, and tells
int8 less float accuracy. The fake-quant network stands for int8: in eval mode its roundings are the device's own.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.stage import Checkpoint
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prepare.config import DataConfig, PrepareConfig
from stages.prepare.stage import run as prepare
from stages.prune.config import PruneConfig
from stages.prune.stage import run as prune
from stages.qat.config import QatConfig
from stages.qat.stage import run as qat
from stages.training.config import TrainingConfig

ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "average": {"average": 0.995},
    "mixup": {"mixup": 0.2},
    "distillation": {"distillation": {"weight": 0.5, "temperature": 4.0}},
    "bfloat16": {"precision": "bfloat16"},
}
INT8_ARMS: dict[str, dict[str, Any]] = {
    "calibrated only": {"epochs": 0},
    "calibrated only, biases corrected": {"epochs": 0, "bias_correction": True},
    "least error": {},
    "least error, biases corrected": {"bias_correction": True},
    "percentile 99.99": {"ranges": "percentile"},
    "learned": {"ranges": "learned"},
}
SEEDS = 3
EPOCHS, TEACHER_EPOCHS, TEACHER_WIDTH = 3, 4, 128


class Told:
    """Progress on stderr."""

    def start(self, total: int, unit: str) -> None:
        self.done = 0

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        if note:
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {self.done} {note}\n")


def data_folder(root: Path, work: Path) -> Path:
    """What prepare makes of the recordings; made once."""
    folder = work / "data"
    if not (folder / "dataset.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("features/*"):
            old.unlink()
        (folder / "features").rmdir() if (folder / "features").exists() else None
        data = DataConfig(source="speech_commands_v0.01", root=root, copies=1, augment="copies")
        prepare.function(config=PrepareConfig(), data=data, out_dir=folder, progress=Told())
    return folder


def trained(data: Path, work: Path, name: str, seed: int, width: int, epochs: int, training: TrainingConfig) -> Path:
    """The prune folder of one training; what is already there is taken."""
    done, out_dir = work / name, work / f"{name}.new"
    if done.exists():
        return done
    out_dir.mkdir(exist_ok=True)
    started_s = time.process_time()
    prune.function(
        data / "features",
        data / "dataset.json",
        config=PruneConfig(epochs=epochs, seed=seed, threads=1, batch=100),
        network=NetworkConfig(name="dscnn_mlperf", width=width),
        budget=BudgetConfig(size_bytes="1MB"),
        training=training,
        out_dir=out_dir,
        progress=Told(),
        checkpoint=Checkpoint(work / f"{name}.checkpoint"),
    )
    (out_dir / "seconds").write_text(f"{time.process_time() - started_s:.0f}")
    out_dir.rename(done)
    return done


def train_missing(data: Path, work: Path, arms: Sequence[str], seeds: int) -> None:
    for seed in range(seeds):
        for arm in arms:
            switches = ARMS[arm]
            chosen = dict(switches)
            if arm == "distillation":
                teacher = trained(data, work, "teacher", 0, TEACHER_WIDTH, TEACHER_EPOCHS, TrainingConfig(device="cpu"))
                chosen["distillation"] = {**switches["distillation"], "teacher": teacher}
            sys.stderr.write(f"{arm}, seed {seed}\n")
            trained(data, work, f"{arm}-{seed}", seed, 64, EPOCHS, TrainingConfig(device="cpu", **chosen))


def tuned(work: Path, arm: str, seed: int) -> dict[str, float]:
    """Float and int8 test accuracy in percent of one fine-tuning; what is already there is taken."""
    done, pruned = work / f"int8-{arm.replace(' ', '_')}-{seed}", work / f"plain-{seed}"
    if not done.exists():
        out_dir = work / f"{done.name}.new"
        out_dir.mkdir(exist_ok=True)
        qat.function(
            work / "data" / "features",
            pruned / "network.pt",
            pruned / "architecture.json",
            config=QatConfig(**{"epochs": 1, "threads": 1, "seed": seed, **INT8_ARMS[arm]}),
            training=TrainingConfig(device="cpu"),
            out_dir=out_dir,
            progress=Told(),
            checkpoint=Checkpoint(work / f"{done.name}.checkpoint"),
        )
        out_dir.rename(done)
    found = json.loads((done / "metrics.json").read_text())
    return {kind: 100 * found[kind]["test"] for kind in ("float", "fake_quant")}


def int8_table(work: Path, seeds: int) -> str:
    lines = ["| ranges | n | float test % | int8 test % | int8 less float, seed by seed |", "|---|---|---|---|---|"]
    for arm in INT8_ARMS:
        found = [tuned(work, arm, seed) for seed in range(seeds)]
        exact, rounded = ([each[kind] for each in found] for kind in ("float", "fake_quant"))
        apart = [one - other for one, other in zip(rounded, exact, strict=True)]
        by_seed = " ".join(f"{each:+.2f}" for each in apart)
        lines.append(f"| {arm} | {seeds} | {spread(exact)} | {spread(rounded)} | {spread(apart)} ({by_seed}) |")
    return "\n".join(lines)


def accuracies(work: Path, arm: str, seeds: int) -> dict[int, float]:
    """Test accuracy in percent by seed, of those that are there."""
    files = {seed: work / f"{arm}-{seed}" / "metrics.json" for seed in range(seeds)}
    return {s: 100 * json.loads(file.read_text())["test_accuracy"] for s, file in files.items() if file.exists()}


def spread(values: list[float]) -> str:
    """Mean and standard error."""
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else "-"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def table(work: Path, arms: Sequence[str], seeds: int) -> str:
    plain = accuracies(work, "plain", seeds)
    lines = ["| arm | n | test % | by seed | less plain, seed by seed |", "|---|---|---|---|---|"]
    for arm in arms:
        found = accuracies(work, arm, seeds)
        apart = [found[seed] - plain[seed] for seed in found.keys() & plain.keys()]
        by_seed = " ".join(f"{found[seed]:.2f}" for seed in sorted(found))
        lines.append(f"| {arm} | {len(found)} | {spread(list(found.values()))} | {by_seed} | {spread(apart)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    arms = given.arms.split(",")
    if given.int8:
        sys.stdout.write(int8_table(given.work, given.seeds) + "\n")
        return
    if not given.table:
        train_missing(data_folder(given.root, given.work), given.work, arms, given.seeds)
    sys.stdout.write(table(given.work, arms, given.seeds) + "\n")


if __name__ == "__main__":
    main()
