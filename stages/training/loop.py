"""The training loop: epochs of steps, a checkpoint after each epoch, and the way back from it.

A step of the pipeline subclasses `Run` and plugs in what is its own: masks and width updates, or int8 grids. A run that
continues from a checkpoint ends with the same bytes as one that was never interrupted. A checkpoint holds tensors,
numbers and strings only, so it is read with weights_only: a file from elsewhere cannot run code. There is no random
state in it, because none is carried from epoch to epoch (see `determinism`).
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import StageError
from pipeline.stage import Checkpoint, Progress
from stages.training.determinism import derived_seed

CHECKPOINT_FORMAT = 5
# What reading a checkpoint raises when the file is torn, of another format or of another network.
UNREADABLE = (
    *(OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError),
    *(pickle.UnpicklingError, zipfile.BadZipFile, StageError),
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train, whatever the network."""

    step: str  # of the pipeline, for messages
    epochs: int
    steps_per_epoch: int
    learning_rate: float
    label_smoothing: float
    seed: int
    warmup_epochs: float = 0.0

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up under a cosine to zero."""
        total = self.epochs * self.steps_per_epoch
        warmup = max(1.0, self.warmup_epochs * self.steps_per_epoch)
        return self.learning_rate * min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / total))


@dataclass(eq=False, kw_only=True)
class Run:
    """A network in training: everything that moves."""

    net: nn.Module
    optimiser: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    losses: list[float] = field(default_factory=list)  # the mean of each epoch
    accuracies: list[float] = field(default_factory=list)  # on the validation examples, behind each epoch

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def begin_epoch(self) -> None:
        """Before the first step of an epoch."""

    def after_step(self, examples: int, loss: float) -> None:
        """Behind every step."""

    def after_epoch(self) -> None:
        """Behind the last step of an epoch, before the checkpoint."""

    def validation_accuracy(self) -> float:
        """Of the network as it is now; neither its state nor the random numbers may depend on this."""
        raise NotImplementedError

    def note(self) -> str:
        """What to tell people about the epoch."""
        return f"loss {self.losses[-1]:.2f} val {100 * self.accuracies[-1]:.1f} %"

    def first_broken_layer(self, x: Tensor) -> str | None:
        """Where the forward pass of these inputs stops being finite, if that can be told."""
        return None

    def own_state(self) -> dict[str, Any]:
        """What a checkpoint needs beside network and optimiser: tensors, numbers, strings."""
        return {}


AnyRun = TypeVar("AnyRun", bound=Run)
# A new run, or one of the same shape as the stored `own_state`, ready for its weights.
Start = Callable[[Mapping[str, Any] | None], AnyRun]
Batches = Callable[[int], Iterator[tuple[Tensor, Tensor]]]  # of an epoch: inputs as the network takes them, labels


def train(recipe: Recipe, start: Start[AnyRun], batches: Batches, progress: Progress, checkpoint: Checkpoint) -> AnyRun:
    """Run all epochs, from the last checkpoint where there is one."""
    run = _resumed(start, checkpoint) or start(None)
    progress.start(recipe.epochs, "epoch")
    if run.epoch:
        progress.advance(run.epoch, note="resumed")
    while run.epoch < recipe.epochs:
        run.begin_epoch()
        run.losses.append(_train_epoch(recipe, run, batches(run.epoch)))
        run.epoch += 1
        run.after_epoch()
        run.accuracies.append(run.validation_accuracy())
        checkpoint.save(lambda path: _save(run, path))
        progress.advance(1, note=run.note())
    return run


def _train_epoch(recipe: Recipe, run: Run, batches: Iterator[tuple[Tensor, Tensor]]) -> float:
    """One pass over the training examples; their mean loss."""
    torch.manual_seed(derived_seed(recipe.seed, "layers", run.epoch))  # what layers draw, such as dropout
    run.net.train()
    total, weights, first = 0.0, 0.0, 0
    for x, y in batches:
        first = first or len(y)
        loss = train_step(recipe, run, x, y)
        total += loss * (len(y) / first)  # the last batch may be smaller
        weights += len(y) / first
        run.after_step(len(y), loss)
    return total / weights


def train_step(recipe: Recipe, run: Run, x: Tensor, y: Tensor) -> float:
    """One step of the optimiser; the loss before it."""
    for group in run.optimiser.param_groups:
        group["lr"] = recipe.learning_rate_at(run.step)
    run.optimiser.zero_grad()
    loss = F.cross_entropy(run.forward(x), y, label_smoothing=recipe.label_smoothing)
    value = float(loss.detach())
    if not math.isfinite(value):
        raise diverged(recipe, run, f"training loss is {value}", x)
    loss.backward()
    run.optimiser.step()
    run.step += 1
    return value


def diverged(recipe: Recipe, run: Run, found: str, x: Tensor) -> StageError:
    """The sentence for a loss that is not finite."""
    layer = run.first_broken_layer(x)
    where = f", first not finite in {layer}" if layer else ""
    return StageError(
        f"{recipe.step}: {found} at step {run.step}{where}; "
        f"lower {recipe.step}.learning_rate (now {recipe.learning_rate:g})"
    )


def _save(run: Run, path: Path) -> None:
    stored = {
        "format": CHECKPOINT_FORMAT,
        "net": run.net.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "epoch": run.epoch,
        "step": run.step,
        "losses": run.losses,
        "accuracies": run.accuracies,
        "own": run.own_state(),
    }
    torch.save(stored, path)


def _resumed(start: Start[AnyRun], checkpoint: Checkpoint) -> AnyRun | None:
    """Where an earlier run stopped; a checkpoint that cannot be used is dropped: starting over costs time only."""
    path = checkpoint.saved()
    if path is None:
        return None
    try:
        stored = torch.load(path, weights_only=True)
        if stored["format"] != CHECKPOINT_FORMAT:
            raise ValueError(f"format {stored['format']}")
        run = start({**stored["own"]})
        run.net.load_state_dict(stored["net"])
        run.optimiser.load_state_dict(stored["optimiser"])
        run.epoch, run.step = stored["epoch"], stored["step"]
        run.losses, run.accuracies = list(stored["losses"]), list(stored["accuracies"])
    except UNREADABLE:
        checkpoint.drop()
        return None
    return run
