"""The points of a sweep on the disk: `sweeps/<name>/points/<id>.json`, one for each that has ended, and `results.csv`.

A record appears by rename, so a killed sweep has whole ones or none. The table is made of them: one row for each point,
seed and board; of a point that failed there is one with its error, of one that has not run there is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.errors import ConfigError
from pipeline.files import replace_text
from pipeline.sweeps.spec import Point, Spec
from pipeline.text import csv_text

RESULTS = "results.csv"
_FORMAT = 1
_IDENTITY = ("point", "experiment", "seed", "status", "run", "seconds")


@dataclass(frozen=True)
class PointResult:
    """What came of a point."""

    state: Literal["done", "failed"]
    run: str | None  # '<experiment>/<id>' below `runs`
    seconds: float
    error: str | None
    keys: tuple[str, ...]  # of the entries in the cache that its files come from
    rows: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class SweepFolder:
    """One sweep's files."""

    path: Path

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """By one process at a time."""
        try:
            (self.path / "points").mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be made ({error.strerror}); move away what is there") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise ConfigError(f"{self.path}: another process runs this sweep; wait for it, or give --name") from None
        finally:
            os.close(descriptor)

    def result(self, point: Point) -> PointResult | None:
        """What is known of a point; a torn or foreign record counts as none."""
        try:
            with open(self._file(point), "rb", buffering=0) as file:
                told = json.loads(file.read())
            if told["format"] != _FORMAT:
                return None
            return PointResult(**{**told["result"], "keys": tuple(told["result"]["keys"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, point: Point, result: PointResult) -> None:
        told = {
            **{"format": _FORMAT, "experiment": point.experiment, "settings": dict(point.settings)},
            **{"seed": point.seed, "result": vars(result)},
        }
        replace_text(self._file(point), json.dumps(told))

    def keep_question(self, spec: Spec, command: Sequence[str]) -> None:
        """What the folder is the answer to, for its reader."""
        axes = {key: asdict(axis) for key, axis in spec.axes.items()}
        told = {**asdict(spec), "axes": axes, "command": shlex.join(command)}
        replace_text(f"{self.path}/sweep.json", json.dumps(told, indent=1))

    def write_results(self, spec: Spec, results: Mapping[Point, PointResult]) -> Path:
        """The tidy table of what has ended so far."""
        rows = [row for point, result in results.items() for row in rows_of(point, result)]
        figures = [name for row in rows for name in row]
        factors = dict.fromkeys(factor for one in spec.combinations for factor, _ in one.levels)
        first = [*_IDENTITY[:3], *spec.axes, *factors, *_IDENTITY[3:]]
        replace_text(f"{self.path}/{RESULTS}", csv_text(rows, list(dict.fromkeys([*first, *figures]))))
        return self.path / RESULTS

    def _file(self, point: Point) -> str:
        return f"{self.path}/points/{point.id}.json"


def rows_of(point: Point, result: PointResult) -> list[dict[str, Any]]:
    """One for each board; settings under their dotted names."""
    named = {
        **{"point": point.number, "experiment": point.experiment, "seed": point.seed},
        **dict(point.levels or point.settings),
        **{"status": result.state, "run": result.run, "seconds": result.seconds},
    }
    if result.state == "failed":
        return [{**named, "error": result.error}]
    return [{**row, **named} for row in result.rows] or [named]
