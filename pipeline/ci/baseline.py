"""Figures of a run against those of a committed baseline: what got worse by more than its tolerance.

A tolerance is relative ('5%') or absolute (0.01). Accuracy is worse when it falls, everything else when it rises. Rows
are told apart by experiment, board and source, so that a twin's figures are never compared with a board's.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from pipeline.errors import ConfigError

IDENTITY = ("experiment", "board", "source")
BETTER_WHEN_HIGHER = ("accuracy_int8",)
Row = Mapping[str, str]
Verdict = Literal["same", "regression", "improved", "new", "lost"]


@dataclass(frozen=True)
class Tolerance:
    """How much worse is still the same."""

    relative: float = 0.0
    absolute: float = 0.0

    def allows(self, worse_by: float, baseline: float) -> bool:
        return worse_by <= self.absolute + self.relative * abs(baseline) + 1e-12 * abs(baseline)

    def __str__(self) -> str:
        return f"{100 * self.relative:g} %" if self.relative else f"{self.absolute:g}"


def parse_tolerance(value: object) -> Tolerance:
    if isinstance(value, Tolerance):
        return value
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError(f"found {value!r}, needed a tolerance such as 5% or 0.01")
    return Tolerance(relative=number / 100) if text.endswith("%") else Tolerance(absolute=number)


ToleranceField = Annotated[Tolerance, BeforeValidator(parse_tolerance)]

DEFAULT_TOLERANCES: Mapping[str, Tolerance] = {
    "accuracy_int8": Tolerance(absolute=0.01),  # the standard error of a 720-clip test set
    "size_bytes": Tolerance(relative=0.01),
    "peak_bytes": Tolerance(relative=0.01),
    "arena_bytes": Tolerance(relative=0.01),
    "flash_bytes": Tolerance(relative=0.01),
    "ram_bytes": Tolerance(relative=0.01),
    "instructions": Tolerance(relative=0.02),
    "cycles_modelled": Tolerance(relative=0.02),
    "latency_ms_modelled": Tolerance(relative=0.02),
    "energy_mj_modelled": Tolerance(relative=0.02),
    "latency_ms": Tolerance(relative=0.05),  # code alignment and flash prefetch move a measured time
    "energy_mj": Tolerance(relative=0.05),
}


@dataclass(frozen=True)
class Comparison:
    """One figure of one row."""

    column: str
    found: float | None
    baseline: float | None
    tolerance: Tolerance
    verdict: Verdict

    def __str__(self) -> str:
        if self.found is None or self.baseline is None:
            return f"{self.column}: {_shown(self.found)}, baseline {_shown(self.baseline)}"
        change = f"{100 * (self.found / self.baseline - 1):+.2f} %" if self.baseline else f"{self.found:+g}"
        known = f"{_shown(self.found)}, baseline {_shown(self.baseline)}"
        return f"{self.column}: {known} ({change}, tolerance {self.tolerance})"


def compared(row: Row, baseline: Row | None, tolerances: Mapping[str, Tolerance]) -> list[Comparison]:
    """Every column that has a tolerance and a figure on either side."""
    found = []
    for column, tolerance in tolerances.items():
        now, before = _number(row, column), None if baseline is None else _number(baseline, column)
        if now is not None or before is not None:
            found.append(Comparison(column, now, before, tolerance, _verdict(column, now, before, tolerance)))
    return found


def read_baseline(path: Path) -> dict[tuple[str, ...], Row]:
    """By identity; no file, no rows."""
    if not path.exists():
        return {}
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        return {identity(row): row for row in rows}
    except (OSError, KeyError, csv.Error) as error:
        raise ConfigError(f"{path}: not readable as a baseline ({error}); write it with --update-baseline") from error


def write_baseline(path: Path, rows: Iterable[Row], columns: Sequence[str]) -> None:
    """Replace the rows of what was run now; those of other boards and experiments stay."""
    kept = {**read_baseline(path), **{identity(row): row for row in rows}}
    ordered = [kept[key] for key in sorted(kept)]
    text = rows_text(ordered, [*IDENTITY, *columns])
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text)
    os.replace(fresh, path)


def rows_text(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """CSV of these columns; what a row has not is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(column, "") for column in columns] for row in rows)
    return stream.getvalue()


def identity(row: Row) -> tuple[str, ...]:
    return tuple(row[column] for column in IDENTITY)


def _verdict(column: str, now: float | None, before: float | None, tolerance: Tolerance) -> Verdict:
    if now is None:
        return "lost"
    if before is None:
        return "new"
    worse_by = before - now if column in BETTER_WHEN_HIGHER else now - before
    if not tolerance.allows(worse_by, before):
        return "regression"
    return "same" if tolerance.allows(-worse_by, before) else "improved"


def _number(row: Row, column: str) -> float | None:
    text = row.get(column, "")
    try:
        return float(text) if text not in ("", None) else None
    except ValueError as error:
        raise ConfigError(f"baseline: {column} is {text!r}, needed a number or nothing") from error


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"
