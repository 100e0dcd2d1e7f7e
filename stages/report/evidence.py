"""What the report draws, read from the artifacts of the steps before it. None: this run has no such step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.errors import StageError
from pipeline.stage import PerBoard, read_json

Record = Mapping[str, Any]
_TEXT = ("op", "name", "kernel", "objective")


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Tables and records; by board where they are a device's."""

    classes: tuple[str, ...]
    accuracy: Record | None
    layer_error: pd.DataFrame | None
    memory: Record
    trajectory: pd.DataFrame | None
    pruned_layers: pd.DataFrame | None
    history: Mapping[str, pd.DataFrame]  # by training step
    footprint: Mapping[str, Record]
    firmware_memory: Mapping[str, Record]
    layers: Mapping[str, pd.DataFrame]
    power: Mapping[str, Mapping[str, np.ndarray]]


def read_evidence(
    *,
    dataset: Path | None,
    accuracy: Path | None,
    layer_error: Path | None,
    memory: Path,
    trajectory: Path | None,
    pruned_layers: Path | None,
    history: Mapping[str, Path | None],
    footprint: PerBoard,
    firmware_memory: PerBoard,
    device_layers: PerBoard,
    power: PerBoard,
) -> Evidence:
    return Evidence(
        classes=() if dataset is None else tuple(map(str, read_json(dataset).get("classes", ()))),
        accuracy=None if accuracy is None else read_json(accuracy),
        layer_error=_table(layer_error),
        memory=read_json(memory),
        trajectory=_table(trajectory),
        pruned_layers=_table(pruned_layers),
        history={step: pd.read_csv(path) for step, path in history.items() if path is not None},
        footprint={board: read_json(path) for board, path in footprint.items()},
        firmware_memory={board: read_json(path) for board, path in firmware_memory.items()},
        layers={board: read_table(path) for board, path in device_layers.items()},
        power={board: _trace(path) for board, path in power.items()},
    )


def read_table(path: Path) -> pd.DataFrame:
    """A CSV file of ours: names stay text, whatever they look like; an empty number is missing."""
    table = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(_TEXT, "str"))
    for column in table.columns.intersection(_TEXT):
        table[column] = table[column].fillna("")
    return table


def _table(path: Path | None) -> pd.DataFrame | None:
    return None if path is None else read_table(path)


def _trace(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as stored:
            return dict(stored)
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise StageError(f"{path}: the power trace cannot be read ({error}); run the measure step again") from error
