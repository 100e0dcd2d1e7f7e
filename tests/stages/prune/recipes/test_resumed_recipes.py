"""Every recipe that goes beyond the paper's: a run killed at any step ends with the bytes of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.stage import Checkpoint
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.training.config import PLAIN, TrainingConfig
from tests.stages.prune.prune_runs import DyingCheckpoint, file_bytes, prune

EVERY_STEP = 1e-9  # minutes between checkpoints
SETTINGS = {"epochs": 2, "update_every": 1, "rate": 12.0, "missed_budgets": "report"}


def switched(name: str, teacher: Path) -> TrainingConfig:
    values = {
        "none": {},
        "average": {"average": 0.9},
        "mixup": {"mixup": 0.4},
        "both": {"mixup": 0.4, "cutmix": 1.0},
        "distillation": {"distillation": {"teacher": teacher}},
        "bfloat16": {"precision": "bfloat16"},
        "stochastic_depth": {"stochastic_depth": 0.5},
    }[name]
    return TrainingConfig(checkpoint_minutes=EVERY_STEP, **values)


@pytest.mark.parametrize("name", ["none", "average", "mixup", "both", "distillation", "bfloat16", "stochastic_depth"])
def test_a_run_killed_at_any_step_ends_with_the_bytes_of_an_undisturbed_one(data, undisturbed, tmp_path, name):
    asked = SETTINGS | {"training": switched(name, undisturbed)}
    if name == "stochastic_depth":
        asked |= {"network": NetworkConfig(name="res8", width=8), "budget": BudgetConfig(size_bytes="2KB")}
    prune(data, tmp_path / "whole", **asked)
    for die_at in (3, 13):  # of 8 steps an epoch, each with its checkpoint, and one behind the epoch
        cut, kept = tmp_path / f"cut_{die_at}", tmp_path / f"kept_{die_at}"
        with pytest.raises(KeyboardInterrupt):
            prune(data, cut, checkpoint=DyingCheckpoint(kept, die_at), **asked)
        prune(data, cut, checkpoint=Checkpoint(kept), **asked)
        assert file_bytes(cut) == file_bytes(tmp_path / "whole")
    if name != "none":
        prune(data, tmp_path / "plain", **(asked | {"training": PLAIN}))
        assert file_bytes(tmp_path / "plain")["network.pt"] != file_bytes(tmp_path / "whole")["network.pt"]
