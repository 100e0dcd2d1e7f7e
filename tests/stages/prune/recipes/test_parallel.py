"""Two processes that train together learn what one learns from the same batches."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.stage import Checkpoint
from stages.qat.config import QatConfig
from stages.qat.stage import run as qat
from stages.training.config import PLAIN, TrainingConfig
from tests.stages.prune.prune_runs import Silent, file_bytes, prune, trajectory_of

TWO = TrainingConfig(processes=2)
SETTINGS = {"epochs": 7, "update_every": 1, "rate": 4.0, "early_termination": False, "start_step": 1}

LEARNED = {"epochs": 2, "ranges": "learned"}


def test_two_processes_follow_the_loss_curve_and_the_widths_of_one(data, tmp_path):
    for name, training in (("one", PLAIN), ("two", TWO)):
        prune(data, tmp_path / name, training=training, **SETTINGS)
    (_, one), (_, two) = (trajectory_of(tmp_path / name) for name in ("one", "two"))
    assert len(one) == len(two) > 50
    for here, there in zip(one, two, strict=True):
        assert float(there["train_loss"]) == pytest.approx(float(here["train_loss"]), abs=1e-4), here["step"]
        widths = [key for key in here if key.startswith("width_")]
        assert [there[key] for key in widths] == [here[key] for key in widths]
    losses = {}
    for name, training in (("one", PLAIN), ("two", TWO)):
        out_dir = tmp_path / f"qat_{name}"
        out_dir.mkdir()
        pruned, config = tmp_path / "one", QatConfig(batch=16, learning_rate=0.01, threads=1, **LEARNED)
        qat.function(data / "features", pruned / "network.pt", pruned / "architecture.json", config=config,
                     training=training, out_dir=out_dir, progress=Silent(),
                     checkpoint=Checkpoint(tmp_path / f"c_{name}"))  # fmt: skip
        losses[name] = json.loads((out_dir / "metrics.json").read_text())["losses"]
    assert losses["two"] == pytest.approx(losses["one"], abs=1e-3)


ROOT = Path(__file__).resolve().parents[4]
FEW = SETTINGS | {"epochs": 2, "missed_budgets": "report"}


def one_of_two(data: Path, work: Path) -> None:
    """What each of two processes does that torchrun starts, one on each machine: its own folder, its own checkpoint."""
    folder = work / f"machine_{os.environ['RANK']}"
    prune(data, folder / "pruned", training=TWO, checkpoint=Checkpoint(folder / "checkpoint"), **FEW)


def test_processes_that_torchrun_started_resume_together_and_end_with_the_same_files(data, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        kept = Checkpoint(tmp_path / "machine_0" / "checkpoint")  # the second machine has none
        prune(data, tmp_path / "cut", progress=Silent(die_after=1), checkpoint=kept, **FEW)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = "import sys; from pathlib import Path; from tests.stages.prune.recipes.test_parallel import one_of_two; "
    code += "one_of_two(Path(sys.argv[1]), Path(sys.argv[2]))"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(data), str(tmp_path)], cwd=ROOT, env={**os.environ, **told, "RANK": "1"}
    ) as second:
        try:
            with monkeypatch.context() as environment:
                for name, value in {**told, "RANK": "0"}.items():
                    environment.setenv(name, value)
                one_of_two(data, tmp_path)
            assert second.wait(timeout=60) == 0
        finally:
            second.kill()
    first, other = (file_bytes(tmp_path / f"machine_{number}" / "pruned") for number in (0, 1))
    assert first == other
    prune(data, tmp_path / "alone", **FEW)
    (_, one), (_, two) = (trajectory_of(tmp_path / name) for name in ("alone", "machine_0/pruned"))
    losses = [[float(row["train_loss"]) for row in rows] for rows in (one, two)]
    assert len(losses[0]) > 10 and losses[1] == pytest.approx(losses[0], abs=1e-4)


def test_torchrun_and_the_configuration_have_to_agree(data, tmp_path, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="training.processes: is 2, torchrun started 4; make them the same"):
        prune(data, tmp_path, training=TWO, **FEW)
