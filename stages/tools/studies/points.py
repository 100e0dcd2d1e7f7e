"""The points of a study as the engine tells them -> a tidy table: a row for each point, and each board if it has some.

Figures are those of the prune step (`metrics.json`) and of the report (`summary.csv`): as far as the study went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.stage import read_json

_RESOURCES = ("size_bytes", "peak_bytes", "peak_bytes_imprecise", "macs")


@dataclass(frozen=True)
class Points:
    """`rows` has the columns of the factors, experiment, seed, board, state, folder, and every figure."""

    factors: tuple[str, ...]
    rows: pd.DataFrame
    total: int
    open: int  # have not run yet
    failed: Sequence[str]  # what each says

    @property
    def done(self) -> pd.DataFrame:
        return self.rows[self.rows["state"] == "done"]

    @property
    def identity(self) -> list[str]:
        """What a line of the table stands for: everything but the seed."""
        return [*self.factors, *(["board"] if self.rows["board"].notna().any() else [])]


def tidy(points: Sequence[Mapping[str, Any]]) -> Points:
    factors = tuple(dict.fromkeys(factor for point in points for factor in point["levels"]))
    found: list[dict[str, Any]] = []
    for point in points:
        named = {
            **point["levels"],
            **{key: point[key] for key in ("experiment", "seed", "state", "folder", "error")},
            "board": None,
        }
        if point["state"] != "done":
            found.append(named)
            continue
        named |= _pruned(point["folder"])
        found += [{**named, **_numbers(row)} for row in point["rows"]] or [named]
    rows = pd.DataFrame(found)
    failed = [str(point["error"]) for point in points if point["state"] == "failed"]
    return Points(factors, rows, len(points), sum(point["state"] == "open" for point in points), failed)


def artifact(folder: Path | None, step: str, name: str) -> Path | None:
    """A file of a point's run."""
    path = None if folder is None else folder / step / name
    return path if path is not None and path.is_file() else None


def _pruned(folder: Path | None) -> dict[str, Any]:
    file = artifact(folder, "prune", "metrics.json")
    if file is None:
        return {}
    told = read_json(file)
    after = {key: told["after"].get(key) for key in _RESOURCES}
    before = {f"{key}_before": told["before"].get(key) for key in _RESOURCES}
    limits = {f"{key}_budget": value for key, value in told["budget"].items()}
    same = ("validation_accuracy", "test_accuracy", "fits", "updates", "macs_trained_relative")
    widths = " ".join(str(width) for width in told["widths"])
    return {**{key: told[key] for key in same}, **after, **before, **limits, "widths": widths}


def _numbers(row: Mapping[str, str]) -> dict[str, Any]:
    """Of summary.csv; a figure that does not exist is None."""
    return {key: _number(text) for key, text in row.items() if key not in ("experiment", "fits")}


def _number(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text
