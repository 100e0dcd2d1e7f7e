"""Points -> the table of a study: a line for each combination of levels, means ± standard error, the paper's beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from stages.tools.studies.points import Points
from stages.tools.studies.show import PaperConfig, ShowConfig
from stages.tools.studies.statistics import cells, mean_of

NOTHING = "–"
PAPER = "paper: "


@dataclass(frozen=True)
class StudyTable:
    """As text, and as numbers for a CSV file."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    figures: pd.DataFrame

    @property
    def markdown(self) -> str:
        rows = [self.columns, tuple("---" for _ in self.columns), *self.lines]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def study_table(points: Points, show: ShowConfig) -> StudyTable:
    theirs = _paper_columns(show.paper, points.identity)
    lines, figures = [], []
    for levels, rows in cells(points):
        beside = _of_paper(show.paper, levels)
        lines.append(
            (
                *(str(level) for level in levels.values()),
                str(rows["seed"].nunique(dropna=False)),
                *(_cell(rows, column) for column in show.columns),
                *(str(beside.get(column, NOTHING)) for column in theirs),
            )
        )
        figures.append({**levels, "n": len(rows), **_numbers(rows, show.columns), **_prefixed(beside)})
    titles = (*points.identity, "n", *(title(column) for column in show.columns))
    return StudyTable((*titles, *(f"{PAPER}{column}" for column in theirs)), tuple(lines), pd.DataFrame(figures))


def title(column: str) -> str:
    """`size_bytes` as `size B`."""
    words = column.replace("macs", "MACs")
    for ending, unit in (("_accuracy", " accuracy %"), ("_bytes", " B"), ("_ms", " ms"), ("_mj", " mJ")):
        words = words.replace(ending, unit)
    return words.replace("_int8", " int8 %" if column.startswith("accuracy") else " int8").replace("_", " ")


def _cell(rows: pd.DataFrame, column: str) -> str:
    if column not in rows or rows[column].isna().all():
        return NOTHING
    values = list(rows[column].dropna())
    if column == "fits":
        return f"{sum(bool(value) for value in values)} of {len(values)}"
    if isinstance(values[0], str):
        return "; ".join(dict.fromkeys(values))
    found = mean_of(values)
    assert found is not None
    two_sigma = rows.get(f"{column}_2sigma")  # of the measurements of one run, as the paper gives it
    if two_sigma is not None and two_sigma.notna().any():
        return f"{found.value:.3f} ± {two_sigma.mean():.3f} (2 sigma)"
    return f"{_shown(found.value, column)}{'' if found.error is None else f' ± {_shown(found.error, column)}'}"


def _shown(value: float, column: str) -> str:
    if "accuracy" in column:
        return f"{100 * value:.2f}"
    return f"{value:,.0f}" if column.endswith(("_bytes", "macs", "n")) else f"{value:.3g}"


def _numbers(rows: pd.DataFrame, columns: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column in columns:
        values = list(rows[column].dropna()) if column in rows else []
        if any(isinstance(value, str) for value in values):
            found[column] = "; ".join(dict.fromkeys(values))
            continue
        mean = mean_of([float(value) for value in values])
        found |= {column: mean and mean.value, f"{column}_standard_error": mean and mean.error}
    return found


def _paper_columns(paper: PaperConfig | None, identity: Sequence[str]) -> list[str]:
    rows = () if paper is None else paper.rows
    return list(dict.fromkeys(key for row in rows for key in row if key not in identity))


def _of_paper(paper: PaperConfig | None, levels: Mapping[str, str]) -> dict[str, Any]:
    """The figures of the row whose levels are these; a factor that it does not name is any."""
    for row in () if paper is None else paper.rows:
        if all(str(row[factor]) == str(level) for factor, level in levels.items() if factor in row):
            return {key: value for key, value in row.items() if key not in levels}
    return {}


def _prefixed(beside: Mapping[str, Any]) -> dict[str, Any]:
    return {f"paper_{column.replace(' ', '_')}": value for column, value in beside.items()}
