"""A learning rate from a short training: where the loss falls, by the experiment's own steps."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.errors import ConfigError, StageError
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.qat.config import QatConfig
from stages.tools.training.learning_rate import Sweep, learning_rate, suggestion
from stages.training.config import TrainingConfig
from tests.stages.qat.small_task import SmallTask, small_task

SECTIONS = {
    "network": NetworkConfig(width=12, blocks=1),
    "budget": BudgetConfig(macs="9M"),
    "prune": PruneConfig(batch=20, threads=1, label_smoothing=0.0),
    "qat": QatConfig(batch=20, threads=1, label_smoothing=0.0),
    "training": TrainingConfig(),
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> SmallTask:
    return small_task(tmp_path_factory.mktemp("task"))


@pytest.mark.parametrize(("step", "ends"), [("prune", (1e-4, 1e3)), ("qat", (1e-5, 10.0))])
def test_a_sweep_suggests_a_rate_that_learns_and_finds_where_training_breaks(
    task: SmallTask, tmp_path: Path, step: str, ends: tuple[float, float]
) -> None:
    found = learning_rate(SECTIONS, vars(task), step, 60, ends, tmp_path / "out")
    again = learning_rate(SECTIONS, vars(task), step, 60, ends, tmp_path / "again")
    assert found.record == again.record, "the same sweep, step for step"
    table = pd.read_csv(tmp_path / "out" / "learning_rate.csv")
    losses = table[table["kind"] == "smoothed"]["value"]
    assert losses.min() < 0.95 * losses.iloc[0] and found.record["steps"] <= 60
    assert ends[0] < found.record["suggested"] < found.record["least_loss_at"] <= ends[1]
    assert found.text.startswith(f"{step}.learning_rate: {found.record['suggested']:.2g} suggested")
    assert (tmp_path / "out" / "learning_rate.svg").read_text().startswith("<svg")
    assert (tmp_path / "out" / "learning_rate.png").read_bytes().startswith(b"\x89PNG")


def test_the_suggestion_lies_where_the_loss_falls_most_steeply() -> None:
    sweep = Sweep(200, 1e-5, 10.0)
    rates = np.array([sweep.rate_at(step) for step in range(200)])
    assert (rates[0], rates[-1]) == (1e-5, pytest.approx(10.0)) and np.allclose(np.diff(np.log(rates), 2), 0)
    falls_at = 3e-3
    losses = 2.0 - 1 / (1 + np.exp(-4 * np.log10(rates / falls_at))) + np.where(rates > 1, (rates - 1) ** 2, 0)
    found = suggestion(pd.DataFrame({"rate": rates, "smoothed": losses}), is_cut=False)
    assert abs(math.log10(found.suggested / falls_at)) < 0.1
    assert 0.1 < found.least_loss_at < 1.3 and found.breaks_at is None


def test_a_sweep_that_shows_nothing_says_so(tmp_path: Path) -> None:
    rising = pd.DataFrame({"rate": np.geomspace(1, 100, 50), "smoothed": np.linspace(1, 4, 50)})
    with pytest.raises(StageError, match=r"the loss does not fall between 1 and 1e\+02; lower --lowest"):
        suggestion(rising, is_cut=True)
    with pytest.raises(ConfigError, match="--steps: found 5, needed at least 20"):
        Sweep(5, 1e-5, 1.0)
    with pytest.raises(ConfigError, match="--lowest, --highest: found 1 and 0.1, needed 0 < low < high"):
        Sweep(50, 1.0, 0.1)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file, needed a folder"):
        learning_rate(SECTIONS, {}, "prune", 50, (0.1, 1.0), tmp_path / "file")
