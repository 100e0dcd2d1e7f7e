"""The command around pages: where the report of a run lies, and one page for many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import AsJson, chosen
from pipeline.cli.output import print_answer
from pipeline.config import load_project
from pipeline.engine.recording import run_store
from pipeline.errors import ConfigError
from pipeline.stage import Answer


def report(
    experiments: Annotated[list[str], typer.Argument(help="experiments that have runs", metavar="EXPERIMENT...")],
    every: Annotated[bool, typer.Option("--all", help="one page for all their runs: accuracy against cost")] = False,
    out: Annotated[Path, typer.Option("-o", "--out", help="folder for the page of --all", metavar="DIR")] = Path(
        "pareto"
    ),
    as_json: AsJson = False,
) -> None:
    """Name the report of the newest run; with --all, make a page of all runs with their Pareto fronts."""
    project = load_project(chosen.file)
    store = run_store(project)
    found = [run for run in store.runs() if {run.name, run.facts["experiment"]} & set(experiments) and run.is_whole]
    for name in experiments:
        if not any(name in (run.name, run.facts["experiment"]) for run in found):
            known = ", ".join(store.names()) or "none"
            raise ConfigError(f"{name}: has no whole run here; make one with: pipeline run {name} (with runs: {known})")
    if every:
        if out.exists() and not out.is_dir():
            raise ConfigError(f"--out {out}: is a file, needed a folder; choose another name")
        return print_answer(project.tool("report_all")([run.facts for run in found], out), as_json)
    newest = {run.name: run for run in found}  # the last one of each name
    pages = {name: str(run.path(str(project.show.get("report", "")))) for name, run in newest.items()}
    print_answer(Answer("\n".join(pages.values()), pages), as_json)


def add_to(app: typer.Typer) -> None:
    app.command()(report)
