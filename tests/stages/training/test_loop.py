"""The loop that prune and qat share: schedule, mean loss, hooks in their order, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.errors import StageError
from pipeline.stage import Checkpoint
from stages.training.loop import Recipe, Run, train, train_step
from tests.stages.prune.prune_runs import Silent

RECIPE = Recipe(step="prune", epochs=3, steps_per_epoch=4, learning_rate=0.5, label_smoothing=0.0, seed=7)


@dataclass(eq=False, kw_only=True)
class Noted(Run):
    """Writes down what happens to it."""

    seen: list[str] = field(default_factory=list)

    def begin_epoch(self) -> None:
        self.seen.append(f"begin {self.epoch}")

    def after_step(self, examples: int, loss: float) -> None:
        self.seen.append(f"step {self.step} of {examples}")

    def after_epoch(self) -> None:
        self.seen.append(f"end {self.epoch}")

    def validation_accuracy(self) -> float:
        return self.epoch / 4

    def own_state(self) -> dict[str, Any]:
        return {"seen": self.seen}


def start(stored: Mapping[str, Any] | None) -> Noted:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    optimiser = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    return Noted(net=net, optimiser=optimiser, seen=[] if stored is None else list(stored["seen"]))


def batches(epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(epoch)
    for number, size in enumerate((5, 5, 5, 2)):
        x = torch.randn(size, 3, generator=draw)
        if number >= first:
            yield x, (x[:, 0] > 0).long()


def trained(folder: Path, progress: Silent | None = None) -> Noted:
    return train(RECIPE, start, batches, progress or Silent(), Checkpoint(folder))


def test_the_learning_rate_warms_up_and_falls_to_zero_along_a_cosine():
    recipe = Recipe(
        step="qat", epochs=5, steps_per_epoch=4, learning_rate=2.0, label_smoothing=0, seed=0, warmup_epochs=0.5
    )
    rates = [recipe.learning_rate_at(step) for step in range(20)]
    assert rates[0] == pytest.approx(1.0) and rates[1] == pytest.approx(1 + math.cos(math.pi / 20))
    assert rates[10] == pytest.approx(1.0)
    assert rates[1:] == sorted(rates[1:], reverse=True) and 0 < rates[-1] < 0.02
    assert RECIPE.learning_rate_at(0) == 0.5  # no warm-up: it starts at the top


def test_what_is_plugged_in_is_called_in_order(tmp_path):
    run = trained(tmp_path)
    first = ["begin 0", "step 1 of 5", "step 2 of 5", "step 3 of 5", "step 4 of 2", "end 1"]
    assert run.seen[:7] == [*first, "begin 1"] and run.seen[-1] == "end 3"
    assert (run.epoch, run.step, len(run.losses), run.accuracies) == (3, 12, 3, [0.25, 0.5, 0.75])


def test_the_loss_of_an_epoch_weighs_every_example_alike(tmp_path):
    run = start(None)
    torch.manual_seed(0)
    run.net[1].p = 0.0
    recipe = Recipe(step="qat", epochs=1, steps_per_epoch=4, learning_rate=1e-30, label_smoothing=0, seed=7)
    found = train(recipe, lambda stored: run, batches, Silent(), Checkpoint(tmp_path))
    x, y = (torch.cat(parts) for parts in zip(*batches(0), strict=True))
    assert found.losses == [pytest.approx(float(nn.functional.cross_entropy(run.net(x), y).detach()), rel=1e-5)]


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(tmp_path, epochs):
    undisturbed = trained(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", Silent(die_after=epochs))
    progress = Silent()
    resumed = trained(tmp_path / "cut", progress)
    assert progress.notes[0] == "resumed" and progress.done == 3
    assert resumed.accuracies == undisturbed.accuracies
    assert resumed.losses == undisturbed.losses and resumed.seen == undisturbed.seen
    for one, other in zip(resumed.net.parameters(), undisturbed.net.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("key", ["format", "own", "net", "optimiser", "losses", "accuracies"])
def test_a_checkpoint_that_does_not_fit_is_dropped(tmp_path, key):
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, Silent(die_after=2))
    checkpoint = Checkpoint(tmp_path)
    state = torch.load(checkpoint.saved(), weights_only=True)
    checkpoint.save(lambda path: torch.save(state | {key: None}, path))
    progress = Silent()
    trained(tmp_path, progress)
    assert "resumed" not in progress.notes and len(progress.notes) == 3


def test_a_loss_that_is_not_finite_stops_the_run_before_the_step():
    run = start(None)
    with pytest.raises(
        StageError, match=r"^prune: training loss is nan at step 0; lower prune.learning_rate \(now 0.5\)$"
    ):
        train_step(RECIPE, run, torch.full((2, 3), math.nan), torch.tensor([0, 1]))
    assert run.step == 0 and all(parameter.grad is None for parameter in run.net.parameters())


@pytest.mark.parametrize("prior, learned", [(None, math.log(4)), (torch.tensor([0.8 / 0.5, 0.2 / 0.5]).log(), 0.0)])
def test_a_network_does_not_learn_shares_that_it_shall_not_expect(prior, learned):
    net = nn.Linear(1, 2)
    run = Run(net=net, optimiser=torch.optim.SGD(net.parameters(), lr=1.0), prior=prior)
    recipe = Recipe(step="prune", epochs=1, steps_per_epoch=300, learning_rate=1.0, label_smoothing=0.0, seed=0)
    for _ in range(200):
        train_step(recipe, run, torch.zeros(10, 1), torch.tensor([0] * 8 + [1] * 2))
    said = net(torch.zeros(1)).tolist()
    assert said[0] - said[1] == pytest.approx(learned, abs=1e-3)
