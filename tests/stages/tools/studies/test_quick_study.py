"""One study of the project for real, in its quick profile; all of them: python -m tests.benchmarks.studies."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from pipeline.engine.assembly import RunOptions, Workshop
from pipeline.engine.executor import LocalExecutor
from pipeline.sweeps.display import PlainBoard
from pipeline.sweeps.study import study_spec, tabulated
from pipeline.sweeps.sweep import Sweep

ROOT = Path(__file__).resolve().parents[4]


def test_a_training_of_the_project_becomes_a_table_and_charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIPELINE_CACHE", raising=False)
    shutil.copy(ROOT / "pipeline.yaml", tmp_path)
    board = PlainBoard()
    workshop = Workshop(tmp_path / "pipeline.yaml", board.message)
    spec = study_spec(workshop.project, "layers", quick=True)
    sweep = Sweep(workshop, spec, RunOptions(boards=(), virtual=True, settings=()), board)
    with sweep.folder.held():
        results = sweep.run(LocalExecutor(), 1, sweep.plan())
    answer = tabulated(sweep, "layers", results)
    assert [result.error for result in results.values()] == [None]
    (row,) = csv.DictReader((sweep.folder.path / "table.csv").read_text().splitlines())
    assert float(row["size_bytes"]) <= 1200 < float(row["size_bytes_before"]) and float(row["fits"]) == 1
    assert answer.record["lines"][0][0] == "DS-CNN"
    layers = list(csv.DictReader((sweep.folder.path / "figures" / "pruning_macs_0.csv").read_text().splitlines()))
    assert sum(float(layer["after"]) for layer in layers) == float(row["macs"])
