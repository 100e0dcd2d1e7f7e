"""Runs as lines of a table: when, what was changed, and the figures one looks for first."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.records.store import StoredRun
from pipeline.text import aligned

_TITLES = ("id", "when", "state", "changed", "accuracy", "size B", "peak B", "ms", "fits", "source")
_LEFT = (0, 1, 2, 3)
_LATENCIES = (("latency_ms", ""), ("latency_ms_modelled", "m"))  # measured before modelled


def run_table(runs: Sequence[StoredRun]) -> list[str]:
    """A group of lines per experiment, oldest run first."""
    lines: list[str] = []
    for name in sorted({run.name for run in runs}):
        if lines:
            lines.append("")
        own = [run for run in runs if run.name == name]
        cells = [_TITLES, *(_cells(run) for run in own)]
        lines += [name, *(f"  {line}" for line in aligned(cells, _LEFT))]
        lines += [f"  {run.id}: {run.facts['error'].splitlines()[0]}" for run in own if run.facts["error"]]
    if any(cell.endswith("m") for run in runs for cell in [_latency(run)]):
        lines += ["", "m: modelled, on a virtual twin; several boards are parted by a slash"]
    return lines or ["no runs yet; make one with: pipeline run EXPERIMENT"]


def run_brief(run: StoredRun) -> dict[str, Any]:
    """The same for a program: everything of run.json but the files."""
    steps = [{key: value for key, value in step.items() if key != "files"} for step in run.facts["steps"]]
    return {**run.facts, "steps": steps, "folder": str(run.folder)}


def _cells(run: StoredRun) -> tuple[str, ...]:
    rows: Sequence[Mapping[str, str]] = run.facts["rows"]
    state = run.state if run.state != "done" or run.is_whole else "part"
    fits = sorted({row["fits"] for row in rows if row.get("fits")})
    return (
        *(run.id, _when(run), state, " ".join(run.facts["overrides"]) or "-"),
        *(_share(rows), _first(rows, "size_bytes"), _first(rows, "peak_bytes"), _latency(run)),
        *({"true": "yes", "false": "no"}.get("".join(fits), "partly" if fits else "-"), run.facts["source"] or "-"),
    )


def _when(run: StoredRun) -> str:
    return datetime.datetime.fromisoformat(run.facts["start"]).astimezone().strftime("%Y-%m-%d %H:%M")


def _share(rows: Sequence[Mapping[str, str]]) -> str:
    found = [row["accuracy_int8"] for row in rows if row.get("accuracy_int8")]
    return f"{100 * float(found[0]):.2f} %" if found else "-"


def _first(rows: Sequence[Mapping[str, str]], column: str) -> str:
    found = [row[column] for row in rows if row.get(column)]
    return f"{int(float(found[0])):,}" if found else "-"


def _latency(run: StoredRun) -> str:
    parts = []
    for row in run.facts["rows"]:
        found = [f"{float(row[column]):.3f}{mark}" for column, mark in _LATENCIES if row.get(column)]
        parts += found[:1]
    return "/".join(parts) or "-"
