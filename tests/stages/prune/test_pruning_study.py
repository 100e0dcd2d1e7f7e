"""The study runner of tests/benchmarks: one training, one row, no row twice."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from stages.prune.config import OBJECTIVES
from tests.benchmarks import pruning_study
from tests.benchmarks.pruning_study import ARMS, StudyRun, append_row, has_row, read_rows, table

SETTINGS = (
    "network.width=8", "network.blocks=1", "network.input_shape=[12, 6, 1]", "network.classes=3",
    "budget.peak_bytes=500B", "budget.size_bytes=250B", "budget.macs=8K",
    "prune.batch=10", "prune.update_every=1", "prune.start_step=1", "prune.rate=20", "prune.min_channels=1",
)  # fmt: skip


@pytest.fixture
def data(tmp_path):
    draw = np.random.default_rng(0)
    (tmp_path / "data" / "features").mkdir(parents=True)
    for name in ("train", "validation", "test"):
        np.save(tmp_path / "data" / "features" / f"{name}_x.npy", draw.normal(size=(40, 12, 6, 1)).astype(np.float32))
        np.save(tmp_path / "data" / "features" / f"{name}_y.npy", draw.integers(0, 3, 40))
    (tmp_path / "data" / "dataset.json").write_text('{"classes": ["a", "b", "c"]}')
    return tmp_path / "data"


def call(monkeypatch, *arguments: str) -> int:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    monkeypatch.setattr(sys, "argv", ["pruning_study", *arguments, *settings])
    return pruning_study.main()


def test_a_run_makes_one_row_and_is_not_made_again(data, tmp_path, monkeypatch, capsys):
    out = tmp_path / "study.csv"
    wanted = ("--data", str(data), "--out", str(out), "--seed", "3", "--epochs", "2")
    for arm in ("resource_only", "uniform", "resource_only"):
        assert call(monkeypatch, *wanted, "--arm", arm) == 0
    assert "already in" in capsys.readouterr().err
    rows = read_rows(out)
    assert [(row["arm"], row["seed"], row["epochs"], row["fits"]) for row in rows] == [
        ("resource_only", "3", "2", "true"),
        ("uniform", "3", "2", "true"),
    ]
    assert all(int(row["size_bytes"]) <= 250 and 0 <= float(row["test_accuracy"]) <= 1 for row in rows)
    assert rows[1]["updates"] == "0" and len(set(rows[1]["widths"].split())) == 1
    assert not list((tmp_path / "study.csv.runs").iterdir())


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_a_valid_configuration(arm):
    found = StudyRun("kws_dscnn_s", arm, 1, 7, ()).resolved().prune
    assert (found.seed, found.epochs, found.threads, found.may_miss(OBJECTIVES)) == (1, 7, 1, True)
    assert all(getattr(found, name) == value for name, value in ARMS[arm].items())


def row_of(arm: str, seed: int, accuracy: float, fits: str = "true") -> dict[str, object]:
    return {
        "experiment": "kws", "arm": arm, "seed": seed, "epochs": 5, "settings": "", "validation_accuracy": accuracy,
        "test_accuracy": accuracy - 0.1, "size_bytes": 1000 * seed, "peak_bytes": 10, "macs": 7, "fits": fits,
        "updates": 1, "macs_trained_relative": 0.5, "seconds": 1, "widths": "1", "commit": "x",
    }  # fmt: skip


def test_the_table_has_mean_and_standard_error_per_arm(tmp_path):
    out = tmp_path / "study.csv"
    for seed, accuracy in ((1, 0.90), (2, 0.92), (3, 0.97)):
        append_row(out, row_of("a", seed, accuracy, "true" if seed < 3 else "false"))
    append_row(out, row_of("b", 1, 0.8))
    assert has_row(out, StudyRun("kws", "a", 2, 5, ())) and not has_row(out, StudyRun("kws", "a", 4, 5, ()))
    lines = table(read_rows(out)).splitlines()
    error = np.std([90, 92, 97], ddof=1) / 3**0.5
    assert f"| kws | a | 5 | 3 | 93.00 ± {error:.2f} | 83.00 ± {error:.2f} | 2,000 |" in lines[2]
    assert "| 2 of 3 | 0.500 |" in lines[2] and "| kws | b | 5 | 1 | 80.00 | 70.00 |" in lines[3]
