"""Every study of the project for real, in its quick profile, through the command line: table, words, charts."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.__main__ import main
from pipeline.config import load_project

ROOT = Path(__file__).resolve().parents[4]
STUDIES = load_project(ROOT / "pipeline.yaml").studies
ONLY_FROM_A_BOARD = ("latency_ms", "energy_mj")

Study = Callable[[str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one cache for all of them: what several studies ask for is trained once."""
    folder = tmp_path_factory.mktemp("studies")
    shutil.copy(ROOT / "pipeline.yaml", folder)
    return folder


@pytest.fixture
def study(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Study:
    """The command, in this process: torch is for the steps, but what draws the charts takes a second to begin."""

    def answer(name: str) -> Mapping[str, Any]:
        monkeypatch.delenv("PIPELINE_CACHE", raising=False)
        monkeypatch.chdir(project)
        monkeypatch.setattr(sys, "argv", ["pipeline", "study", name, "--quick", "--virtual", "-j", "1", "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        assert ended.value.code in (0, None), told.err
        record: Mapping[str, Any] = json.loads(told.out)
        return record

    return answer


def table(project: Path, name: str, file: str = "table.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((project / "sweeps" / f"study-{name}-quick" / file).read_text().splitlines()))


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_answers_in_its_quick_profile(name: str, study: Study, project: Path) -> None:
    told, folder = study(name), project / "sweeps" / f"study-{name}-quick"
    show = STUDIES[name]["show"]
    assert (told["name"], told["open"], told["failed"]) == (name, 0, 0)
    rows = table(project, name)
    assert len(rows) == len(told["lines"]) > 0
    for column in show["columns"]:
        assert any(row[column] for row in rows) or column in ONLY_FROM_A_BOARD, column
    words = " ".join(told["findings"])
    assert "significan" in words or "nothing to compare" in words
    assert "The quick profile" in words and ("paper" not in show or "The paper:" in words)
    charts = sorted((folder / "figures").glob("*.svg"))
    assert len(charts) >= len(show["charts"]) and all("<svg" in chart.read_text()[:200] for chart in charts)
    page = (folder / "study.html").read_text()
    assert STUDIES[name]["title"] in page and STUDIES[name]["title"] in (folder / "table.md").read_text()


@pytest.mark.slow
def test_the_layers_of_the_chart_add_up_to_the_table(study: Study, project: Path) -> None:
    told = study("layers")
    assert told["lines"][0][0] == "DS-CNN"
    (row,) = table(project, "layers")
    assert float(row["size_bytes"]) <= 1636 < float(row["size_bytes_before"]) and float(row["fits"]) == 1
    layers = table(project, "layers", "figures/pruning_macs_0.csv")
    assert sum(float(layer["after"]) for layer in layers) == float(row["macs"])
