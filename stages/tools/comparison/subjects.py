"""What is compared: the folder of a run, or a CSV file of rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.stage import read_json

Rows = list[dict[str, str]]
Place = tuple[str, str]  # board and source: a twin is never compared with a board
_TEST_INPUTS = "features/test_x.npy"
_LATEST_ROW = "date"


@dataclass(frozen=True, eq=False)
class Subject:
    """One side of a comparison; what a CSV file does not tell is empty."""

    name: str
    rows: Mapping[Place, Mapping[str, str]]
    config: Mapping[str, Any] = field(default_factory=dict)
    layers: Mapping[Place, Rows] = field(default_factory=dict)
    labels: Sequence[int] = ()
    chosen: Sequence[int] = ()  # by the int8 network, for each test example
    test_inputs: str = ""  # digest of the test examples
    library: Path | None = None  # vega.js, for pages

    def number(self, place: Place, column: str) -> float | None:
        return number(self.rows.get(place, {}).get(column))


def read_subject(name: str, path: Path) -> Subject:
    """A run's folder, or a CSV file: of several rows for a board the last one."""
    if path.is_dir():
        return _run(name, path)
    return Subject(name, _by_place(_read(path), str(path)))


def number(text: str | None) -> float | None:
    try:
        return None if text in (None, "") else float(text)
    except ValueError:
        return None


def _run(name: str, folder: Path) -> Subject:
    facts = read_json(folder / "run.json")
    paths: dict[tuple[str, str | None], Path] = {}
    digests: dict[str, str] = {}
    for step in facts["steps"]:
        digests |= step["files"]
        for artifact, place in step["outputs"].items():
            paths[artifact, step["board"]] = folder / step["folder"] / place
    if not facts["rows"]:
        raise ConfigError(f"{folder}: the run is {facts['state']} and has no rows to compare; choose another one")
    predictions = _read(paths["predictions", None]) if ("predictions", None) in paths else []
    boards = [(board["board"], board["source"]) for board in facts["boards"]]
    layers = {place: paths.get(("device_layers", place[0])) for place in boards}
    return Subject(
        name=name,
        rows=_by_place(facts["rows"], str(folder)),
        config=_flat(facts["config"]) | _circumstances(facts),
        layers={place: _read(path) for place, path in layers.items() if path is not None},
        labels=[int(row["label"]) for row in predictions],
        chosen=[int(row["int8"]) for row in predictions],
        test_inputs=digests.get(_TEST_INPUTS, ""),
        library=paths.get(("chart_library", None)),
    )


def _circumstances(facts: Mapping[str, Any]) -> dict[str, Any]:
    git = facts["git"] or {}
    changed = " with changes" if git.get("dirty") else ""
    found = {f"version of {name}": version for name, version in facts["versions"].items()}
    return found | {"commit": f"{git['commit'][:12]}{changed}" if git else None, "experiment": facts["name"]}


def _by_place(rows: Sequence[Mapping[str, str]], where: str) -> dict[Place, Mapping[str, str]]:
    if not rows or not {"board", "source"} <= rows[0].keys():
        raise ConfigError(f"{where}: has no rows with columns board and source, needed a run or its summary.csv")
    return {(row["board"], row["source"]): row for row in sorted(rows, key=lambda row: row.get(_LATEST_ROW) or "")}


def _read(path: Path) -> Rows:
    try:
        with path.open(newline="") as stream:
            return list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: cannot be read as CSV ({error}); needed a run or its summary.csv") from error


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
