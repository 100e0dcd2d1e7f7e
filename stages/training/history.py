"""history.csv: the loss of every epoch, and the accuracy on the validation examples behind it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

COLUMNS = ("epoch", "loss", "validation_accuracy")


def write_history(path: Path, losses: Sequence[float], accuracies: Sequence[float]) -> Path:
    """One row per epoch, from 1; no row where nothing was trained."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True), start=1):
            writer.writerow([number, f"{loss:.6g}", f"{accuracy:.6g}"])
    return path
