"""What P_TSK is for: of layers that cost alike it keeps the ones that the task needs.

Two branches of equal shape read the map by columns and by rows, each averages over it and votes for a class. The
classes are orders of the same rows: a column shows the order, a row on its own does not, so the second branch can say
nothing. Size, peak and MACs cannot tell the two apart; the validation loss can.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stages.nets.config import BudgetConfig, NetworkConfig
from tests.stages.prune.prune_runs import metrics_of, prune

SIDE, CLASSES, WIDTH = 8, 4, 24
SOURCE = f"""
from torch import nn

def branch(kernel):
    return nn.Sequential(nn.Conv2d(1, {WIDTH}, kernel, bias=False), nn.BatchNorm2d({WIDTH}), nn.ReLU())

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.columns, self.rows = branch(({SIDE}, 1)), branch((1, {SIDE}))
        self.by_columns, self.by_rows = nn.Linear({WIDTH}, {CLASSES}), nn.Linear({WIDTH}, {CLASSES})

    def forward(self, x):
        return self.by_columns(self.columns(x).mean((2, 3))) + self.by_rows(self.rows(x).mean((2, 3)))
"""


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    patterns = np.stack([rng.permutation(np.linspace(-1, 1, SIDE)) for _ in range(CLASSES)])
    (tmp_path / "features").mkdir()
    for name, count in (("train", 400), ("validation", 200), ("test", 40)):
        y = rng.integers(0, CLASSES, count)
        x = patterns[y][:, :, None, None] + 0.5 * rng.normal(size=(count, SIDE, SIDE, 1))
        np.save(tmp_path / "features" / f"{name}_x.npy", x.astype(np.float32))
        np.save(tmp_path / "features" / f"{name}_y.npy", y)
    (tmp_path / "dataset.json").write_text('{"classes": ["a", "b", "c", "d"]}')
    (tmp_path / "branches.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def widths(data: Path, **settings) -> tuple[int, int]:
    """Channels left of the branch that reads columns and of the one that reads rows."""
    network = NetworkConfig(module="branches:Branches", input_shape=(SIDE, SIDE, 1), classes=CLASSES)
    recipe = {
        "epochs": 12,
        "batch": 20,
        "update_every": 5,
        "start_step": 40,
        "rate": 4.0,
        "validation_batch": 100,
    } | settings
    still = dict.fromkeys(("shift_frames", "masked_frames", "masked_coefficients"), 0)
    prune(data, data / "out", network=network, budget=BudgetConfig(size_bytes="520B"), **recipe, **still)
    by_columns, by_rows = metrics_of(data / "out")["widths"]
    return by_columns, by_rows


@pytest.mark.parametrize("seed", range(3))
def test_resources_alone_cannot_tell_the_branches_apart(orders, seed):
    assert widths(orders, losses="resource", seed=seed) == (15, 15)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", ["initial_losses", "first_gradients", "every_gradient"])
def test_with_the_task_loss_the_branch_that_knows_the_classes_keeps_its_channels(orders, rule, seed):
    assert widths(orders, alpha_rule=rule, seed=seed) == (24, 6)
