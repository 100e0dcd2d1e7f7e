"""Run records (run.json) of one or several experiments -> the page that shows them against each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from stages.report.charts.pareto import COSTS, pareto_charts, points
from stages.report.content import Card, Cell, Row, Table
from stages.report.page.chart import Chart
from stages.report.page.document import NOTHING, render

Record = Mapping[str, Any]
_SPAN = ("latency_ms_modelled_low", "latency_ms_modelled_high", "energy_mj_modelled_uncertainty")
_LIMITS = ("size_bytes", "peak_bytes", "macs", "latency_ms", "energy_mj")


def run_table(records: Sequence[Record]) -> pd.DataFrame:
    """One row per run and board, as `points` takes them; numbers are those of the run's summary.csv."""
    found = []
    for record in records:
        config = record.get("config") or {}
        plain = {name: {**section, "seed": None} for name, section in config.items()}
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:6]
        seeds = json.dumps(
            {name: section["seed"] for name, section in config.items() if "seed" in section}, sort_keys=True
        )
        changed = [each for each in record.get("overrides", ()) if not each.split("=")[0].endswith(".seed")]
        for row in record.get("rows", ()):
            figures = {column: _number(row.get(column)) for column in ("accuracy_int8", *COSTS, *_SPAN)}
            found.append(
                {
                    **{"experiment": record["name"], "variant": " ".join(changed) or "as in pipeline.yaml"},
                    **{"board": row["board"], "source": row["source"], "run": record["id"], "seed": seeds, **figures},
                    **{"digest": digest, "fits": row.get("fits", "")},
                }
            )
    table = pd.DataFrame(found)
    for _, group in table.groupby(["experiment", "variant"]):
        if group["digest"].nunique() > 1:  # the same words, but pipeline.yaml was another one
            table.loc[group.index, "variant"] = group["variant"] + " (" + group["digest"] + ")"
    return table


def budgets(records: Sequence[Record]) -> dict[str, dict[str, int]]:
    """Of each experiment, as its newest run had them."""
    found: dict[str, dict[str, int]] = {}
    for record in records:
        section = (record.get("config") or {}).get("budget", {})
        found[record["name"]] = {key: section[key] for key in _LIMITS if section.get(key) is not None}
    return found


def pareto(records: Sequence[Record]) -> tuple[pd.DataFrame, list[Chart]]:
    """Every variant with its figures, and the charts."""
    table = points(run_table(records))
    return table, list(pareto_charts(table, budgets(records)))


def pareto_page(records: Sequence[Record], table: pd.DataFrame, charts: Sequence[Chart], library: str) -> str:
    names = list(dict.fromkeys(record["name"] for record in records))
    return render(
        "pareto.html",
        library,
        charts,
        title=f"{len(records)} runs of {', '.join(names)}",
        kicker="accuracy against what it costs",
        sections=[("charts", "Charts"), ("runs", "Runs")],
        cards=_cards(table, len(records)),
        lead="A point is one configuration on one board; several seeds of it are one point with its spread.",
        runs=_runs(run_table(records)),
    )


def _cards(table: pd.DataFrame, runs: int) -> list[Card]:
    best = table.loc[table["accuracy_int8"].astype(float).idxmax()]
    smallest = table.loc[table["size_bytes"].astype(float).idxmin()]
    return [
        Card("runs", str(runs), "", f"{len(table.drop_duplicates(['experiment', 'variant']))} configurations"),
        Card("best accuracy", f"{100 * best['accuracy_int8']:.2f}", "%", f"{best['experiment']}, {best['variant']}"),
        Card("smallest", f"{smallest['size_bytes']:,.0f}", "B", f"{smallest['experiment']}, {smallest['variant']}"),
    ]


def _runs(rows: pd.DataFrame) -> Table:
    columns = (
        ("run", False),
        ("experiment", False),
        ("changed", False),
        ("board", False),
        ("accuracy", True),
        ("size B", True),
    )
    columns += (("peak B", True), ("MACs", True), ("ms", True), ("mJ", True), ("fits", False))
    cells = [
        Row(
            (
                *(Cell(row.run), Cell(row.experiment), Cell(row.variant), Cell(row.board, None, row.source)),
                _cell(row.accuracy_int8, "{:.2%}"),
                *(_cell(value, "{:,.0f}") for value in (row.size_bytes, row.peak_bytes, row.macs)),
                _either(row.latency_ms, row.latency_ms_modelled, _likely(row)),
                _either(row.energy_mj, row.energy_mj_modelled, _unsure(row)),
                Cell({"true": "yes", "false": "no"}.get(str(row.fits), NOTHING)),
            ),
            "bad" if str(row.fits) == "false" else "",
        )
        for row in rows.itertuples()
    ]
    return Table("Every run; click a column to sort by it", columns, tuple(cells))


def _cell(value: float | None, shape: str) -> Cell:
    return Cell(NOTHING) if pd.isna(value) else Cell(shape.format(value).replace("%", " %"), value)


def _either(measured: float | None, modelled: float | None, doubt: str) -> Cell:
    if not pd.isna(measured):
        return Cell(f"{measured:.3f}", measured, "measured")
    return Cell(NOTHING) if pd.isna(modelled) else Cell(f"{modelled:.3f}", modelled, f"modelled{doubt}")


def _likely(row: Any) -> str:
    """What a board is likely to take, by what is known of the model; runs of former times do not say it."""
    low, high = row.latency_ms_modelled_low, row.latency_ms_modelled_high
    return "" if pd.isna(low) else f", {low:.3f} to {high:.3f} likely on a board"


def _unsure(row: Any) -> str:
    return "" if pd.isna(row.energy_mj_modelled_uncertainty) else f" ± {row.energy_mj_modelled_uncertainty:.3f}"


def _number(text: str | None) -> float | None:
    return float(text) if text else None
