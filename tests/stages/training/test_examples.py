"""Batches that a process beside the training makes anew."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from pipeline.stage import Checkpoint
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.task import Task
from stages.prune.training import Trained, train
from stages.training.examples import Examples, load_examples


def examples(folder: Path) -> Examples:
    rng = np.random.default_rng(0)
    for split, count in (("train", 30), ("validation", 4), ("test", 4)):
        np.save(folder / f"{split}_x.npy", rng.standard_normal((count, 8, 8, 3)).astype(np.float32))
        np.save(folder / f"{split}_y.npy", np.arange(count) % 2)
    return load_examples(folder, 2)


def batches(source: Examples, seed: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(x.clone(), y) for x, y in source.train_batches(torch.arange(30).split(7), [seed])]


def test_prepared_examples_come_as_they_are(tmp_path: Path) -> None:
    source = examples(tmp_path)
    stored = np.load(tmp_path / "train_x.npy").transpose(0, 3, 1, 2)
    found = batches(source)
    assert source.input_shape == (8, 8, 3)
    assert torch.equal(torch.cat([x for x, _ in found]), torch.from_numpy(stored.copy()))
    assert torch.cat([y for _, y in found]).tolist() == [i % 2 for i in range(30)]


def test_fresh_batches_are_those_of_the_augmentation_in_order_and_repeatable(tmp_path: Path) -> None:
    (tmp_path / "augmentation.json").write_text('{"kind": "pictures"}')
    source = examples(tmp_path)
    assert source.augment is not None
    first, again, other = batches(source), batches(source), batches(source, seed=4)
    for (x, y), numbers in zip(first, torch.arange(30).split(7), strict=True):
        assert torch.equal(x, torch.from_numpy(source.augment(numbers.numpy(), [3])).permute(0, 3, 1, 2))
        assert y.tolist() == [int(i) % 2 for i in numbers]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


def test_a_batch_stays_while_it_is_in_use_however_far_ahead_the_next_ones_are(tmp_path: Path) -> None:
    (tmp_path / "augmentation.json").write_text('{"kind": "pictures"}')
    source = dataclasses.replace(examples(tmp_path), workers=2)
    assert source.augment is not None
    chosen = torch.arange(30).split(1)  # more than the slots, so that each is used again
    for (x, _), numbers in zip(source.train_batches(chosen, [3]), chosen, strict=True):
        time.sleep(0.01)
        assert torch.equal(x, torch.from_numpy(source.augment(numbers.numpy(), [3])).permute(0, 3, 1, 2))


def test_making_batches_leaves_the_generator_of_the_training_alone(tmp_path: Path) -> None:
    (tmp_path / "augmentation.json").write_text('{"kind": "pictures"}')
    source = examples(tmp_path)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    batches(source)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_killed_process_is_one_sentence(tmp_path: Path) -> None:
    source = examples(tmp_path)
    dying = Examples(source.train, source.validation, source.test, augment=lambda numbers, seed: os._exit(9))
    with pytest.raises(StageError, match="the process that augments was killed"):
        batches(dying)


class DiesAfter:
    """A progress that stops the run after some epochs."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def start(self, total: int, unit: str) -> None:
        """Nothing to draw."""

    def advance(self, count: int = 1, note: str = "") -> None:
        self.left -= count
        if self.left == 0:
            raise KeyboardInterrupt


def trained(folder: Path, checkpoint: Path, epochs: int = 99) -> Trained:
    settings = {"epochs": 4, "batch": 10, "update_every": 2, "start_step": 2, "settle_updates": 1, "threads": 1}
    network = NetworkConfig(width=16, blocks=2, input_shape=(12, 6, 1), classes=3)
    budget = BudgetConfig(peak_bytes="2000B", size_bytes="3000B", macs="200K")
    task = Task(load_examples(folder, 3), network, budget, PruneConfig(**settings))
    return train(task, DiesAfter(epochs), Checkpoint(checkpoint))


def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = tmp_path / "features"
    features.mkdir()
    for split, count in (("train", 60), ("validation", 20), ("test", 20)):
        np.save(features / f"{split}_x.npy", rng.standard_normal((count, 12, 6, 1)).astype(np.float32))
        np.save(features / f"{split}_y.npy", np.arange(count) % 3)
    plain = trained(features, tmp_path / "0")
    (features / "augmentation.json").write_text('{"kind": "pictures"}')
    undisturbed = trained(features, tmp_path / "1")
    with pytest.raises(KeyboardInterrupt):
        trained(features, tmp_path / "2", epochs=2)
    resumed = trained(features, tmp_path / "2")
    weights, again, other = (each.net.state_dict() for each in (undisturbed, resumed, plain))
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert not all(
        torch.equal(weights[name], other[name]) for name in weights if weights[name].shape == other[name].shape
    )


def test_of_a_class_with_too_many_examples_each_epoch_draws_others(tmp_path: Path) -> None:
    source = examples(tmp_path)
    labels = torch.tensor([0, 1, 1, 1, 1, 1, 1, 1, 2, 2] * 3)  # 3, 21 and 6
    uneven = dataclasses.replace(source, train=dataclasses.replace(source.train, y=labels), class_share=0.5)
    assert (uneven.most_of_class, uneven.epoch_size) == (9, 18)  # 9 of 18; of 19 ten would be too many
    orders = [torch.randperm(30, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    first, second = (uneven.epoch(order) for order in orders)
    assert torch.bincount(labels[first]).tolist() == torch.bincount(labels[second]).tolist() == [3, 9, 6]
    assert len(set(first.tolist())) == len(first)
    assert set(first.tolist()) != set(second.tolist())
    whole = dataclasses.replace(uneven, class_share=1.0)
    assert torch.equal(whole.epoch(orders[0]), orders[0]) and whole.prior is None
    held = dataclasses.replace(uneven, validation=dataclasses.replace(source.validation, y=torch.tensor([0, 0, 1, 2])))
    expected = torch.tensor([(3 / 18) / (2 / 4), (9 / 18) / (1 / 4), (6 / 18) / (1 / 4)]).log()
    assert held.prior is not None and torch.allclose(held.prior, expected)


def test_classes_are_mixed_from_the_first_step_of_an_epoch_to_the_last(tmp_path: Path) -> None:
    source = dataclasses.replace(examples(tmp_path), class_share=0.5)
    labels = torch.tensor([0] * 200 + [1] * 1800)
    uneven = dataclasses.replace(source, train=dataclasses.replace(source.train, y=labels))
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    parts = labels[uneven.epoch(order)].split(100)
    assert [30 < int(part.sum()) < 70 for part in parts] == [True] * 4


def test_training_takes_as_many_steps_as_the_smaller_epoch_has(tmp_path: Path) -> None:
    source = dataclasses.replace(examples(tmp_path), class_share=0.5)
    labels = torch.tensor([0] * 24 + [1] * 6)
    uneven = dataclasses.replace(source, train=dataclasses.replace(source.train, y=labels))
    network = NetworkConfig(name="vgg16", width_multiplier=0.1, input_shape=(8, 8, 3), classes=2)
    task = Task(uneven, network, BudgetConfig(macs="1G"), PruneConfig(batch=4))
    chosen = [y for _, y in task.batches(0)]
    assert task.recipe.steps_per_epoch == len(chosen) == 3  # 6 and 6 examples
    assert torch.bincount(torch.cat(chosen)).tolist() == [6, 6]
