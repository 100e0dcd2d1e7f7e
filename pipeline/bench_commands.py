"""Commands around the bench: which boards are attached."""

from __future__ import annotations

import typer

from pipeline.config import load_project
from pipeline.options import AsJson, chosen
from pipeline.output import print_answer

BENCH_FILE = "bench.yaml"  # beside pipeline.yaml


def boards(as_json: AsJson = False) -> None:
    """List debug probes by serial number: board, port, drive, instrument of bench.yaml, and who uses them."""
    project = load_project(chosen.file)
    print_answer(project.tool("boards")(project.root / BENCH_FILE), as_json)


def add_to(app: typer.Typer) -> None:
    app.command()(boards)
