"""Quantisation-aware fine-tuning: calibrate the grids, train through the rounding, stop and continue at any epoch.

The grids are chosen anew at the start of every epoch, from the same samples and the weights of that moment, except in
the last epoch: its weights learn on the grids that the device will use. Adam, cosine schedule, cross-entropy. The order
of the samples, and what `data.augment: on_the_fly` makes of them, depend on seed and epoch alone, so that a continued
run takes the very steps of an undisturbed one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from data.examples.augmentation import Augment, augmentation
from pipeline.errors import StageError
from pipeline.stage import Checkpoint, Progress
from stages.qat.fake_quant import FakeQuantNetwork

SPLITS = ("train", "validation", "test")
_EVALUATED_AT_ONCE = 32  # samples: the doubles of a layer stay near the cache


@dataclass(frozen=True)
class Split:
    """Samples and labels; x is NCHW with the channels last in memory."""

    x: Tensor
    y: Tensor
    augment: Augment | None = None  # makes samples anew; None: they are used as they were prepared

    def fresh(self, numbers: Tensor, seed: Sequence[int]) -> Tensor:
        """These samples, augmented where prepare left what that needs."""
        if self.augment is None:
            return self.x[numbers]
        return torch.from_numpy(self.augment(numbers.numpy(), seed)).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    epochs: int
    batch: int
    learning_rate: float
    label_smoothing: float
    calibration_samples: int
    seed: int


@contextmanager
def deterministic(threads: int, seed: int) -> Iterator[None]:
    """The same bits on every run: fixed threads (sums are split among them) and seed."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_splits(features: Path, input_shape: tuple[int, int, int], classes: int) -> dict[str, Split]:
    """All splits of the prepared features."""
    splits = {name: _load_split(features, name, input_shape, classes) for name in SPLITS}
    return splits | {"train": replace(splits["train"], augment=augmentation(features))}


def _load_split(features: Path, name: str, input_shape: tuple[int, int, int], classes: int) -> Split:
    try:
        x, y = (np.load(features / f"{name}_{part}.npy", mmap_mode="r") for part in "xy")
    except (OSError, ValueError) as error:
        raise StageError(f"{features}: split '{name}' cannot be read ({error}); run prepare again") from error
    if len(x) != len(y) or x[:1].size != math.prod(input_shape) or len(x) == 0:
        raise StageError(f"{features}: split '{name}' has {x.shape} and {y.shape}, needed (N, *{input_shape}) and (N,)")
    if y.min() < 0 or y.max() >= classes:
        raise StageError(f"{features}: split '{name}' has labels {y.min()} to {y.max()}, needed 0 to {classes - 1}")
    samples = torch.from_numpy(np.array(x, np.float32).reshape(-1, *input_shape))
    return Split(samples.permute(0, 3, 1, 2), torch.from_numpy(np.array(y, np.int64)))


def predictions(network: FakeQuantNetwork, x: Tensor) -> Tensor:
    """The class of every sample, every rounding as the device does it."""
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            return torch.cat([network(part).argmax(1) for part in x.split(_EVALUATED_AT_ONCE)])
    finally:
        network.train(training)


def accuracy(predicted: Tensor, y: Tensor) -> float:
    return float((predicted == y).double().mean())


def train(
    network: FakeQuantNetwork, split: Split, recipe: Recipe, progress: Progress, checkpoint: Checkpoint
) -> list[float]:
    """Fine-tune in place; returns the mean loss of every epoch."""
    optimiser = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    losses = _resume(network, optimiser, recipe, checkpoint)
    progress.start(recipe.epochs, "epoch")
    progress.advance(len(losses))
    for epoch in range(len(losses), recipe.epochs):
        if epoch == 0 or epoch < recipe.epochs - 1:
            _calibrate(network, split, recipe)
        losses.append(_epoch(network, optimiser, split, recipe, epoch))
        _save(network, optimiser, losses, checkpoint)
        progress.advance(note=f"loss {losses[-1]:.3f}")
    if recipe.epochs == 0:
        _calibrate(network, split, recipe)
    return losses


def _calibrate(network: FakeQuantNetwork, split: Split, recipe: Recipe) -> None:
    chosen = _permutation(len(split.x), recipe.seed, -1)[: recipe.calibration_samples]
    network.calibrate(split.x[chosen])


def _epoch(
    network: FakeQuantNetwork, optimiser: torch.optim.Optimizer, split: Split, recipe: Recipe, epoch: int
) -> float:
    batches = _permutation(len(split.x), recipe.seed, epoch).split(recipe.batch)
    total = 0.0
    for number, batch in enumerate(batches):
        done = (epoch + number / len(batches)) / recipe.epochs
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        optimiser.zero_grad(set_to_none=True)
        x = split.fresh(batch, [recipe.seed, epoch])
        loss = F.cross_entropy(network(x), split.y[batch], label_smoothing=recipe.label_smoothing)
        loss.backward()
        optimiser.step()
        total += loss.item() * len(batch)
    mean = total / len(split.x)
    if not math.isfinite(mean):
        raise StageError(f"qat: the loss of epoch {epoch + 1} is {mean}; lower qat.learning_rate")
    return mean


def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    order = np.random.default_rng([seed, epoch + 1]).permutation(count)
    return torch.from_numpy(order)


def _save(
    network: FakeQuantNetwork, optimiser: torch.optim.Optimizer, losses: list[float], checkpoint: Checkpoint
) -> None:
    state = {"network": network.state_dict(), "optimiser": optimiser.state_dict(), "losses": losses}
    checkpoint.save(lambda path: torch.save(state, path))


def _resume(
    network: FakeQuantNetwork, optimiser: torch.optim.Optimizer, recipe: Recipe, checkpoint: Checkpoint
) -> list[float]:
    """Continue from a checkpoint: the losses of its epochs, none when there is none that can be used."""
    saved = checkpoint.saved()
    if saved is None:
        return []
    untouched = deepcopy((network.state_dict(), optimiser.state_dict()))
    try:
        state = torch.load(saved, weights_only=True)
        losses = [float(loss) for loss in state["losses"]][: recipe.epochs]
        network.load_state_dict(state["network"])
        optimiser.load_state_dict(state["optimiser"])
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, UnpicklingError):
        # Not ours, or torn: starting over costs time only.
        checkpoint.drop()
        network.load_state_dict(untouched[0])
        optimiser.load_state_dict(untouched[1])
        return []
    return losses
