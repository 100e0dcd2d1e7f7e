"""report --all: the records of many runs -> a page with their Pareto fronts, its charts as files, and one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.stage import Answer
from stages.charting.library import chart_library
from stages.report.page.chart import csv_text, records, write_figures
from stages.report.pareto_page import pareto, pareto_page
from stages.tools.output_file import write_atomically


def report_all(runs: Sequence[Mapping[str, Any]], out: Path) -> Answer:
    """Write `out`/pareto.html, pareto.csv and figures/; runs without an accuracy are left out."""
    shown = [run for run in runs if any(row.get("accuracy_int8") for row in run.get("rows", ()))]
    if not shown:
        raise ConfigError(f"report: {len(runs)} runs, none of them whole; make one with: pipeline run EXPERIMENT")
    table, charts = pareto(shown)
    out.mkdir(parents=True, exist_ok=True)
    page = out / "pareto.html"
    write_atomically(page, pareto_page(shown, table, charts, chart_library()).encode())
    write_atomically(out / "pareto.csv", csv_text(table).encode())
    write_figures(out / "figures", charts)
    names = ", ".join(dict.fromkeys(str(run["name"]) for run in shown))
    text = f"{len(shown)} runs of {names}, {len(table)} points: {page}, pareto.csv and figures/ beside it"
    return Answer(text, {"page": str(page), "runs": len(shown), "points": records(table)})
