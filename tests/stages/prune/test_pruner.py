"""Pruning as a library, in a training loop of one's own: the same widths as the step, networks that fit, a pace."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipeline.errors import ConfigError
from pipeline.stage import Checkpoint
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import resources
from stages.nets.channels import find_channels
from stages.nets.config import BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.pruner import prune
from stages.prune.schedule import room, scheduled
from stages.prune.signal.task_loss import TaskLoss
from stages.prune.task import Task
from stages.prune.training import train
from stages.prune.width_update import WidthUpdate
from stages.training.determinism import derived_seed, reproducible
from stages.training.examples import Examples, Split, load_examples
from tests.stages.prune.prune_runs import BUDGET, NETWORK, QUICK, Silent


@pytest.fixture(autouse=True)
def on_one_thread():
    with reproducible(1):
        yield


class Draws:
    """The validation batches that the step draws."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __iter__(self):
        update = 0
        while True:
            yield self.task.validation_batch(update)
            update += 1


@pytest.mark.parametrize("settings", [{}, {"task_slope": "secant", "alpha_rule": "first_gradients"}])
def test_the_library_reaches_the_same_widths_and_weights_as_the_step(data, tmp_path, settings):
    given = {**QUICK, **settings}
    task = Task(load_examples(data / "features", 3), NETWORK, BUDGET, PruneConfig(**given))
    expected = train(task, Silent(), Checkpoint(tmp_path / "checkpoint"))

    pace = {key: given[key] for key in ("rate", "update_every", "start_step", "settle_updates")}
    steps = task.config.epochs * task.recipe.steps_per_epoch
    torch.manual_seed(derived_seed(task.config.seed, "weights", 0))
    net = task.build()
    pruner = prune(net, Draws(task), BUDGET, steps=steps, **pace, **settings)
    optimiser = task.optimiser(net)
    for epoch in range(task.config.epochs):
        for x, y in task.batches(epoch):
            optimiser.param_groups[0]["lr"] = task.recipe.learning_rate_at(pruner.steps)
            optimiser.zero_grad()
            F.cross_entropy(pruner(x), y, label_smoothing=0.1).backward()
            optimiser.step()
            pruner.step()
            if pruner.is_settled:
                pruner.shrink(optimiser)
    assert pruner.widths == expected.architecture.widths != expected.unpruned.widths
    assert pruner.fits and pruner.resources == resources(expected.pruned.graph)
    for name, tensor in expected.net.state_dict().items():
        assert torch.equal(pruner.net.state_dict()[name], tensor), name


def task_of(seed: int = 0, count: int = 64):
    """Three classes of pictures, and a network with a shortcut and a concatenation for them."""
    draw = torch.Generator().manual_seed(seed)
    pictures = torch.randn(3, 2, 8, 8, generator=draw)
    y = torch.arange(count) % 3
    return pictures[y] + 0.5 * torch.randn(count, 2, 8, 8, generator=draw), y


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.left = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12))
        self.right = nn.Sequential(nn.Conv2d(12, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([torch.relu(x + self.left(x)), self.right(x)], 1)
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_a_plain_loop_ends_with_a_network_that_fits_and_has_learnt(make):
    torch.manual_seed(0)
    x, y = task_of()
    net = Joined()
    whole = resources(graph_from_torch(net, (8, 8, 2)))
    optimiser = make(net.parameters(), lr=0.1 if make is torch.optim.SGD else 0.01)
    limits = {"size_bytes": whole.size_bytes // 3, "macs": whole.macs // 2}
    pruner = prune(net, [task_of(1), task_of(2)], limits, steps=60, min_channels=2)
    for step in range(60):
        chosen = torch.arange(step * 16, step * 16 + 16) % len(y)
        optimiser.zero_grad()
        F.cross_entropy(pruner(x[chosen]), y[chosen]).backward()
        optimiser.step()
        moved = pruner.step()
        assert moved is None or moved.widths == pruner.widths
        if pruner.is_settled:
            before = pruner(x)
            small = pruner.shrink(optimiser)
            assert small is pruner.net and torch.allclose(pruner(x), before, atol=1e-5)
    assert pruner.pruning is None and pruner.masks == [], "settled long before the end"
    found = resources(graph_from_torch(pruner.net, (8, 8, 2)))
    assert pruner.resources == found and all(getattr(found, name) <= limit for name, limit in limits.items())
    assert float((pruner(x).argmax(1) == y).float().mean()) > 0.9


@pytest.mark.parametrize("stop", [20, 50])
def test_a_stored_pruner_goes_on_as_if_it_had_not_stopped(stop):
    x, y = task_of()
    limits = {"size_bytes": 700}

    def start():
        torch.manual_seed(0)
        net = Joined()
        return prune(net, [task_of(1)], limits, steps=60, min_channels=2), torch.optim.SGD(net.parameters(), 0.05, 0.9)

    def go(pruner, optimiser, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            F.cross_entropy(pruner(x), y).backward()
            optimiser.step()
            pruner.step()
            if pruner.is_settled:
                pruner.shrink(optimiser)

    whole, optimiser = start()
    go(whole, optimiser, 60)
    first, optimiser = start()
    go(first, optimiser, stop)
    assert (first.pruning is None) == (stop == 50)
    stored = first.state_dict(), first.net.state_dict(), optimiser.state_dict()
    second, _ = start()
    second.load_state_dict(stored[0])
    second.net.load_state_dict(stored[1])
    optimiser = torch.optim.SGD(second.net.parameters(), 0.05, 0.9)
    optimiser.load_state_dict(stored[2])
    go(second, optimiser, 60 - stop)
    assert second.widths == whole.widths
    assert torch.allclose(second(x), whole(x), atol=1e-6)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda net: prune(net, [], {"macs": 1000}), "the loader is empty"),
        (lambda net: prune(net, [task_of()], {}), "found no budget"),
        (lambda net: prune(net, [task_of()], {"size_bytes": "60"}), "size_bytes: found '60': missing unit"),
        (lambda net: prune(net, [task_of()], {"macs": 10}), "budget.macs: 10 cannot be met, Joined with 4 channels"),
        (lambda net: prune(net, [task_of()], {"macs": "40K"}, rat=3), "prune: rat: "),
        (
            lambda net: prune(net, [task_of()], {"macs": "40K"}, steps=2, rate=1.0),
            r"2 training steps have room for \d+ updates .* raise steps \(now 2\)",
        ),
    ],
)
def test_mistakes_are_one_sentence(call, sentence):
    with pytest.raises(ConfigError, match=sentence):
        call(Joined())


def pruning_of(config: PruneConfig) -> WidthUpdate:
    return WidthUpdate(find_channels(Joined(), (8, 8, 2)), config, BudgetConfig(size_bytes="700B", macs="40K"))


@pytest.mark.parametrize("steps", [6, 15, 60, 200, 1000, 20_000])
def test_any_training_but_the_shortest_has_room_for_the_updates_it_needs(steps):
    config = PruneConfig(min_channels=2)
    pruning = pruning_of(config)
    pace = scheduled(pruning, config, may_miss=False, steps=steps)
    needed = pruning.moves_needed(steps + 1, pace.rate)
    assert needed <= room(pace, steps)
    if steps >= 60:
        assert pace.start_step + pace.update_every * needed <= steps / 2
    if steps == 20_000:
        assert pace == config.with_usual_pace()


def test_what_is_given_is_kept_and_the_rest_adapts():
    config = PruneConfig(min_channels=2, rate=5.0)
    pace = scheduled(pruning_of(config), config, may_miss=False, steps=150)
    assert pace.rate == 5.0 and pace.update_every < 20
    config = PruneConfig(min_channels=2, update_every=7, start_step=3)
    pace = scheduled(pruning_of(config), config, may_miss=False, steps=100)
    assert (pace.update_every, pace.start_step) == (7, 3) and pace.rate > 4


def test_updates_needed_are_those_that_resources_alone_take():
    config = PruneConfig(min_channels=2, losses="resource")
    pruning, net = pruning_of(config), Joined()
    needed = pruning.moves_needed(1000)
    for left in range(needed, 0, -1):
        assert not pruning.state.reached and pruning.moves_needed(1000) == left
        pruning.update(net, *task_of())
    assert pruning.state.reached


def test_a_task_that_resists_gives_way_when_time_runs_out():
    config, net = PruneConfig(min_channels=2), Joined()
    free, hurried = pruning_of(config), pruning_of(config)
    for pruning in (free, hurried):  # a task for which no layer could ever become narrower
        pruning.task_loss = lambda *_: TaskLoss(1.0, np.full(len(free.rule.full), -1e9))
    updates = hurried.moves_needed(1000) + 8
    for left in range(updates, 0, -1):
        free.update(net, *task_of())
        hurried.update(net, *task_of(), left=left)
    assert hurried.state.reached and not free.state.reached


def test_small_sets_get_small_batches_and_large_ones_the_usual():
    def task(count: int, **given) -> Task:
        split = Split(torch.zeros(count, 1, 12, 6), torch.zeros(count, dtype=torch.long))
        return Task(Examples(split, split, split), NETWORK, BUDGET, PruneConfig(**given))

    assert [task(count).batch for count in (10, 160, 480, 2000, 9000)] == [10, 16, 24, 100, 100]
    assert task(9000).learning_rate == 0.1 == task(480, batch=24).learning_rate
    assert task(480).learning_rate == pytest.approx(0.024)
    assert task(480, learning_rate=0.3).learning_rate == 0.3


def test_the_loop_of_the_readme_runs_as_written():
    text = (Path(__file__).parents[3] / "stages/prune/README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None and len(code.group(1).splitlines()) <= 16
    x, y = task_of()
    batches = [(x[i : i + 16], y[i : i + 16]) for i in range(0, 64, 16)]
    names = {"net": Joined(), "train_loader": batches, "validation_loader": [task_of(1)]}
    exec(code.group(1).replace("60KB", "700B").replace('"2M"', '"50K"'), names)
    assert resources(graph_from_torch(names["net"], (8, 8, 2))).size_bytes <= 700
