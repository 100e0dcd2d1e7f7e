"""study: what came of its points -> table.md, table.csv, points.csv, figures/ and study.html in its folder."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.stage import Answer
from stages.charting.library import chart_library
from stages.report.content import Cell, Row, Table
from stages.report.page.chart import Chart, csv_text, write_figures
from stages.report.page.document import render
from stages.tools.output_file import write_atomically
from stages.tools.studies.charts import study_charts
from stages.tools.studies.points import Points, tidy
from stages.tools.studies.show import ShowConfig, show_config
from stages.tools.studies.statistics import findings
from stages.tools.studies.table import StudyTable, study_table

_QUICK = "The quick profile: synthetic data and a few steps. It shows that the study runs, and nothing else."
_library = functools.cache(chart_library)  # a second of work
_NOT_IN_CSV = ("folder", "error")


def study(about: Mapping[str, Any], shown: Mapping[str, Any], points: Sequence[Mapping[str, Any]], out: Path) -> Answer:
    """`about` has name, title, question and quick; `shown` is what the entry says under `show`."""
    show, told = show_config(about["name"], shown), tidy(points)
    table, charts = study_table(told, show), study_charts(told, show)
    words = _words(about, show, told)
    out.mkdir(parents=True, exist_ok=True)
    page = out / "study.html"
    write_atomically(page, _page(about, show, table, words, charts).encode())
    write_atomically(out / "table.md", _markdown(about, table, words).encode())
    write_atomically(out / "table.csv", csv_text(table.figures).encode())
    kept = told.rows.drop(columns=list(_NOT_IN_CSV))
    write_atomically(out / "points.csv", csv_text(kept).encode())
    write_figures(out / "figures", charts)
    text = f"{_markdown(about, table, words)}\n{page}; table.md, table.csv, points.csv and figures/ beside it"
    record = {
        **{"name": about["name"], "page": str(page), "open": told.open, "failed": len(told.failed)},
        **{"columns": list(table.columns), "lines": [list(line) for line in table.lines], "findings": words},
    }
    return Answer(text, record)


def _words(about: Mapping[str, Any], show: ShowConfig, told: Points) -> list[str]:
    words = findings(told, show.measure, show.baseline)
    words += [f"The paper: {show.paper.about}"] if show.paper else []
    words += [f"{told.open} of {told.total} points have not run yet."] if told.open else []
    words += [f"{len(told.failed)} failed; the first: {told.failed[0]}"] if told.failed else []
    return [*words, *([_QUICK] if about["quick"] else [])]


def _markdown(about: Mapping[str, Any], table: StudyTable, words: Sequence[str]) -> str:
    notes = "".join(f"- {sentence}\n" for sentence in words)
    return (
        f"# {about['title']}\n\n{about['question']}\n\n{table.markdown}\n± is the standard error over seeds.\n\n{notes}"
    )


def _page(
    about: Mapping[str, Any], show: ShowConfig, table: StudyTable, words: Sequence[str], charts: Sequence[Chart]
) -> str:
    are_numbers = [*(False for _ in table.columns[: -len(show.columns) or None]), *(True for _ in show.columns)]
    columns = tuple(zip(table.columns, are_numbers, strict=True))
    rows = tuple(Row(tuple(Cell(text) for text in line)) for line in table.lines)
    return render(
        "study.html",
        _library(),
        charts,
        title=about["title"],
        kicker=f"study {about['name']}{', quick' if about['quick'] else ''}",
        sections=[("answer", "Answer"), ("charts", "Charts")],
        lead=about["question"],
        words=list(words),
        found=Table("Means over seeds ± standard error", columns, rows),
    )
