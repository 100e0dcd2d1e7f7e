"""Two processes that train together learn what one learns from the same batches."""

from __future__ import annotations

import json

import pytest

from pipeline.stage import Checkpoint
from stages.qat.config import QatConfig
from stages.qat.stage import run as qat
from stages.training.config import PLAIN, TrainingConfig
from tests.stages.prune.prune_runs import Silent, prune, trajectory_of

TWO = TrainingConfig(processes=2)
SETTINGS = {"epochs": 7, "update_every": 1, "rate": 4.0, "early_termination": False, "start_step": 1}


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
        pruned, config = tmp_path / "one", QatConfig(epochs=2, batch=16, learning_rate=0.01, threads=1)
        qat.function(data / "features", pruned / "network.pt", pruned / "architecture.json", config=config,
                     training=training, out_dir=out_dir, progress=Silent(),
                     checkpoint=Checkpoint(tmp_path / f"c_{name}"))  # fmt: skip
        losses[name] = json.loads((out_dir / "metrics.json").read_text())["losses"]
    assert losses["two"] == pytest.approx(losses["one"], abs=1e-3)
