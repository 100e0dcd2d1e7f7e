"""What the prune step refuses, and in which words."""

from __future__ import annotations

import csv
import math
import re

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from pipeline.errors import ConfigError, StageError
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.run import started
from stages.prune.task import Task
from stages.training.examples import Examples, Split
from stages.training.loop import train_step
from tests.stages.prune.prune_runs import (
    BUDGET,
    NETWORK,
    QUICK,
    Silent,
    metrics_of,
    prune,
)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (
            NetworkConfig(input_shape=(49, 10, 1)),
            r"network.input_shape: found 49x10x1 \(.*\), the data are 12x6x1; remove network.input_shape$",
        ),
        (NetworkConfig(classes=12), "network.classes: found 12, the data have 3; remove network.classes"),
    ],
)
def test_a_network_that_is_asked_for_other_data_names_both_sides(network, sentence, data, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        prune(data, tmp_path / "out", network=network)


def test_a_budget_that_no_width_can_meet_is_a_config_error_with_the_smallest_figure(data, tmp_path):
    budget = BudgetConfig(peak_bytes="950B", size_bytes="100B", macs="60K")
    with pytest.raises(
        ConfigError, match=r"budget.size_bytes: 100 B cannot be met, dscnn with 4 channels in every layer needs 368 B"
    ):
        prune(data, tmp_path / "out", budget=budget)


@pytest.mark.parametrize(
    ("settings", "wanted", "way_out"),
    [
        ({}, "368B", None),
        ({}, "100B", r"to at least 368 B or lower prune.min_channels \(1 needs 95 B\)$"),
        ({}, "50B", "to at least 368 B$"),
        (
            {"min_channels": 1, "channel_multiple": 8},
            "100B",
            r"to at least 788 B or lower prune.channel_multiple \(1 needs 95 B\)$",
        ),
    ],
)
def test_the_way_out_of_a_budget_is_one_that_helps(data, tmp_path, settings, wanted, way_out):
    budget = BudgetConfig(size_bytes=wanted)
    if way_out is None:
        prune(data, tmp_path / "out", budget=budget, missed_budgets="report")
        return
    with pytest.raises(ConfigError, match=way_out):
        prune(data, tmp_path / "out", budget=budget, **settings)


def test_numbers_have_to_be_finite():
    for key in ("gradient_cap", "rate", "alpha_resource"):
        with pytest.raises(ValidationError, match="finite"):
            PruneConfig(**{key: math.inf})


def test_budgets_that_the_epochs_have_no_room_for_are_refused_before_the_first(data, tmp_path):
    class Reached(Silent):
        def start(self, total, unit):
            raise AssertionError("the first epoch must not begin")

    sentence = (
        r"prune: 8 training steps have room for 4 updates of the widths \(one in 2 from step 2 on, rate 0.01\), the "
        r"budgets need more than 8; raise prune.epochs \(now 1\), or leave prune.rate"
    )
    with pytest.raises(ConfigError, match=sentence):
        prune(data, tmp_path / "out", epochs=1, rate=0.01, progress=Reached())


def test_a_start_behind_the_end_is_refused_with_the_epochs_that_it_takes(data, tmp_path):
    with pytest.raises(ConfigError, match=r"room for 0 updates .* from step 99 on.* \(now 2\) to at least 15"):
        prune(data, tmp_path / "out", epochs=2, start_step=99)


CONCATENATING = """
import torch
from pydantic import ValidationError
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 8, 3), nn.Linear(16, 3)
        self.a, self.b = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 10, 1)
    def forward(self, x):
        x = self.stem(x)
        return self.head(torch.cat([self.a(x), self.b(x)], 1).mean((2, 3)))
def make():
    return Net()
"""


def test_concatenated_layers_are_pruned_and_the_refusal_knows_how_far(data, tmp_path, monkeypatch):
    (tmp_path / "joined_nets.py").write_text(CONCATENATING)
    monkeypatch.syspath_prepend(str(tmp_path))
    network = NetworkConfig(module="joined_nets:make", input_shape=(12, 6, 1), classes=3)
    with pytest.raises(ConfigError, match=r"4 channels in every layer needs 152 B"):
        prune(data, tmp_path / "out", network=network, budget=BudgetConfig(size_bytes="151B"))
    prune(data, tmp_path / "out", network=network, budget=BudgetConfig(size_bytes="152B"), rate=16.0)
    layers = list(csv.DictReader((tmp_path / "out" / "layers.csv").read_text().splitlines()))
    assert [row["channels_after"] for row in layers if row["op"] == "CONV_2D"] == ["4", "4", "4"]


def test_a_loss_that_is_not_finite_names_step_and_layer(data, tmp_path):
    with pytest.raises(
        StageError, match=r"training loss is \S+ at step \d+, first not finite in \S+; lower prune.learning_rate"
    ):
        prune(data, tmp_path / "out", learning_rate=1e30, warmup_epochs=0)


def test_a_validation_loss_that_is_not_finite_names_step_and_layer(data, tmp_path):
    # An update after every step: weights that one step blew up meet the validation data first.
    settings = {"learning_rate": 1e30, "warmup_epochs": 0, "update_every": 1, "start_step": 1}
    sentence = (
        r"prune: P_TSK is \S+, its largest gradient \S+ at step 1, first not finite in \S+; lower prune.learning_rate"
    )
    with pytest.raises(StageError, match=sentence):
        prune(data, tmp_path / "out", **settings)


def test_what_only_the_running_statistics_break_is_named_too(data, tmp_path):
    # By batch statistics every output is finite; the validation loss is computed with the running ones.
    settings = {"learning_rate": 1e12, "warmup_epochs": 0, "update_every": 1, "start_step": 1}
    with pytest.raises(StageError, match=r"prune: P_TSK is \S+, .* at step 1, first not finite in \S+; lower"):
        prune(data, tmp_path / "out", **settings)


@pytest.mark.parametrize("method", ["differentiable", "uniform"])
def test_a_network_without_a_layer_to_prune_is_trained_or_refused(data, tmp_path, monkeypatch, method):
    (tmp_path / "flat_nets.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(72, 3))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    network = NetworkConfig(module="flat_nets:make", input_shape=(12, 6, 1), classes=3)
    prune(data, tmp_path / "out", network=network, budget=BudgetConfig(size_bytes="300B"), method=method)
    assert metrics_of(tmp_path / "out")["widths"] == [] and metrics_of(tmp_path / "out")["fits"]
    with pytest.raises(
        ConfigError, match=r"200 B cannot be met, flat_nets:make with no layer that can be pruned .* 228 B"
    ):
        prune(data, tmp_path / "out", network=network, budget=BudgetConfig(size_bytes="200B"), method=method)


@pytest.mark.parametrize("layer", ["stem.conv", "blocks.0.pointwise.conv", "blocks.1.depthwise.norm", "classifier"])
def test_a_broken_layer_is_named_with_its_path_and_the_step(layer):
    draw = torch.Generator().manual_seed(0)
    split = Split(torch.randn(10, 1, 12, 6, generator=draw), torch.randint(0, 3, (10,), generator=draw))
    task = Task(Examples(split, split, split), NETWORK, BUDGET, PruneConfig(**QUICK, missed_budgets="report"))
    run_ = started(task)
    for _ in range(3):
        train_step(task.recipe, run_, split.x, split.y)
    run_.net.get_submodule(layer).weight.data[0] = float("nan")
    with pytest.raises(StageError, match=rf"training loss is nan at step 3, first not finite in {re.escape(layer)};"):
        train_step(task.recipe, run_, split.x, split.y)


def one_value(value: float, example: int) -> np.ndarray:
    x = np.zeros((30, 12, 6, 1), np.float32)
    x[example, example, example, 0] = value
    return x


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("train_x.npy", b"not an array", "train_x.npy: not readable as an array"),
        ("test_y.npy", np.full(30, 3), "test has labels 3 to 3, needed 0 to 2"),
        ("validation_x.npy", one_value(np.nan, 0), "validation features hold NaN or infinity"),
        ("test_x.npy", one_value(np.inf, -1), "test features hold NaN or infinity"),
        ("train_y.npy", np.zeros(79, np.int64), r"train has features \(80, 12, 6, 1\) and labels \(79,\)"),
    ],
)
def test_damaged_features_are_refused(data, tmp_path, name, content, sentence):
    features = tmp_path / "features"
    features.mkdir()
    for file in (data / "features").iterdir():
        (features / file.name).write_bytes(file.read_bytes())
    if isinstance(content, bytes):
        (features / name).write_bytes(content)
    else:
        np.save(features / name, content)
    with pytest.raises(StageError, match=sentence):
        prune(data, tmp_path / "out", features=features)


def test_a_budget_below_one_channel_per_layer_offers_no_fewer_channels(data, tmp_path):
    budget = BudgetConfig(size_bytes="60B")
    with pytest.raises(ConfigError, match=r"size_bytes: 60 B cannot be met, .*; raise the budget to at least \d+ B$"):
        prune(data, tmp_path / "out", budget=budget, min_channels=1)
    with pytest.raises(ConfigError, match=r"or lower prune.min_channels \(1 needs \d+ B\)$"):
        prune(data, tmp_path / "out", budget=BudgetConfig(size_bytes="300B"))
