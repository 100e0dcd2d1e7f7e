"""The prune step as the engine calls it, on a tiny task; and ways to stop it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from pipeline.stage import Checkpoint
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.stage import run
from stages.training.config import PLAIN

NETWORK = NetworkConfig(width=16, blocks=2, input_shape=(12, 6, 1), classes=3)
BUDGET = BudgetConfig(peak_bytes="950B", size_bytes="1000B", macs="60K")
QUICK = {
    "epochs": 8,
    "batch": 10,
    "validation_batch": 10,
    "update_every": 2,
    "start_step": 2,
    "rate": 4.0,
    "settle_updates": 1,
    "threads": 1,
}
FILES = ("network.pt", "architecture.json", "trajectory.csv", "metrics.json", "layers.csv")


class Silent:
    """A progress that remembers, and can stop the run."""

    def __init__(self, die_after: int | None = None) -> None:
        self.done, self.die_after, self.notes = 0, die_after, []

    def start(self, total: int, unit: str) -> None:
        self.total, self.unit = total, unit

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        self.notes.append(note)
        if self.done == self.die_after:
            raise KeyboardInterrupt


class DyingCheckpoint(Checkpoint):
    """Dies in the place of its n-th save: the epoch was computed, but nothing of it is on the disk."""

    def __init__(self, folder: Path, die_at: int) -> None:
        super().__init__(folder)
        self.left = die_at

    def save(self, write) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        super().save(write)


def prune(
    data: Path,
    out_dir: Path,
    *,
    progress=None,
    checkpoint=None,
    network=NETWORK,
    budget=BUDGET,
    features=None,
    training=PLAIN,
    **settings,
):
    out_dir.mkdir(parents=True, exist_ok=True)
    return run.function(
        features or data / "features",
        data / "dataset.json",
        config=PruneConfig(**(QUICK | settings)),
        network=network,
        budget=budget,
        training=training,
        out_dir=out_dir,
        progress=progress or Silent(),
        checkpoint=checkpoint or Checkpoint(out_dir.parent / f"{out_dir.name}_checkpoint"),
    )


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def trajectory_of(folder):
    """All rows, and those of updates."""
    rows = list(csv.DictReader((folder / "trajectory.csv").read_text().splitlines()))
    return rows, [row for row in rows if row["masks_changed"] != ""]


def metrics_of(out_dir: Path) -> dict:
    return json.loads((out_dir / "metrics.json").read_text())
