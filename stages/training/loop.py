"""The training loop: epochs of steps, a checkpoint after each epoch and in long ones within, and the way back from it.

A step of the pipeline subclasses `Run` and plugs in what is its own: masks and width updates, or int8 grids. A run that
continues from a checkpoint ends with the same bytes as one that was never interrupted. A checkpoint holds tensors,
numbers and strings only, so it is read with weights_only: a file from elsewhere cannot run code. Its one random state
is that of layers such as dropout in the middle of an epoch; none is carried from epoch to epoch (see `determinism`).
"""

from __future__ import annotations

import io
import math
import pickle
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.errors import StageError
from pipeline.stage import Checkpoint, Progress
from stages.training.averaging import Average
from stages.training.config import PLAIN, TrainingConfig
from stages.training.determinism import derived_seed
from stages.training.device import gradient_scaler
from stages.training.distillation import Teacher
from stages.training.mixing import Labels, mixed
from stages.training.parallel import (
    add_up_gradients,
    bytes_of_first,
    examples_of_all,
    is_first,
    shared_loss,
    told_by_first,
)

CHECKPOINT_FORMAT = 6
CPU = torch.device("cpu")
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
    training: TrainingConfig = PLAIN
    precision: str = "float32"

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up under a cosine to zero."""
        total = self.epochs * self.steps_per_epoch
        warmup = max(1.0, self.warmup_epochs * self.steps_per_epoch)
        return self.learning_rate * min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / total))


@dataclass
class EpochSoFar:
    """What an epoch has come to between two of its steps."""

    steps: int = 0
    total: float = 0.0  # of the losses, each with its weight
    weights: float = 0.0
    first: int = 0  # examples of the first batch, the measure of the others


@dataclass(eq=False, kw_only=True)
class Run:
    """A network in training: everything that moves."""

    net: nn.Module
    optimiser: torch.optim.Optimizer
    epoch: int = 0
    step: int = 0
    losses: list[float] = field(default_factory=list)  # the mean of each epoch
    accuracies: list[float] = field(default_factory=list)  # on the validation examples, behind each epoch
    so_far: EpochSoFar = field(default_factory=lambda: EpochSoFar())
    device: torch.device = CPU
    average: Average | None = None
    teacher: Teacher | None = None
    prior: Tensor | None = None  # of the classes, beyond what the network is to expect (arXiv:2007.07314)
    scaler: torch.amp.GradScaler | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def news(self) -> str:
        """What people should know of this training before it begins, because they did not ask for it."""
        return ""

    def begin_epoch(self) -> None:
        """Before the first step of an epoch."""

    def after_step(self, examples: int, loss: float) -> None:
        """Behind every step."""

    def after_epoch(self) -> None:
        """Behind the last step of an epoch, before the checkpoint."""

    def validation_accuracy(self) -> float:
        """Of the network as it is now; neither its state nor the random numbers may depend on this."""
        raise TypeError(f"{type(self).__name__}: has no validation examples, needed some; it is for single steps only")

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
# Of an epoch, from one of its steps on: inputs as the network takes them, labels.
Batches = Callable[[int, int], Iterator[tuple[Tensor, Tensor]]]


def train(recipe: Recipe, start: Start[AnyRun], batches: Batches, progress: Progress, checkpoint: Checkpoint) -> AnyRun:
    """Run all epochs, from the last checkpoint where there is one."""
    run = _resumed(recipe, start, checkpoint) or _equipped(recipe, start(None))
    progress.start(recipe.epochs, "epoch")
    if run.epoch or run.so_far.steps:
        progress.advance(run.epoch, note="resumed")
    elif news := run.news():
        progress.advance(0, note=news)
    while run.epoch < recipe.epochs:
        run.losses.append(_train_epoch(recipe, run, batches, checkpoint))
        run.epoch += 1
        run.after_epoch()
        run.accuracies.append(told_by_first(run.validation_accuracy))
        if is_first():
            checkpoint.save(lambda path: _save(run, path))
            progress.advance(1, note=run.note())
    if run.average is not None and run.average.values:
        run.average.put_into(run.net)
    return run


def _equipped(recipe: Recipe, run: AnyRun) -> AnyRun:
    """With what the recipe asks for beside network and optimiser."""
    if recipe.training.average:
        run.average = Average(recipe.training.average)
    run.scaler = gradient_scaler(recipe.precision, run.device)
    return run


def _train_epoch(recipe: Recipe, run: Run, batches: Batches, checkpoint: Checkpoint) -> float:
    """One pass over the training examples, or the rest of it; their mean loss."""
    if not run.so_far.steps:
        run.begin_epoch()
        torch.manual_seed(derived_seed(recipe.seed, "layers", run.epoch))  # what layers draw, such as dropout
    run.net.train()
    so_far, saved_s = run.so_far, time.monotonic()
    for x, y in batches(run.epoch, so_far.steps):
        examples = examples_of_all(len(y))
        so_far.first = so_far.first or examples
        loss = train_step(recipe, run, x, y)
        so_far.total += loss * (examples / so_far.first)  # the last batch may be smaller
        so_far.weights += examples / so_far.first
        so_far.steps += 1
        run.after_step(examples, loss)
        if is_first() and time.monotonic() - saved_s > 60 * recipe.training.checkpoint_minutes:
            checkpoint.save(lambda path: _save(run, path))
            saved_s = time.monotonic()
    run.so_far = EpochSoFar()
    return so_far.total / so_far.weights


def train_step(recipe: Recipe, run: Run, x: Tensor, y: Tensor) -> float:
    """One step of the optimiser; the loss before it."""
    for group in run.optimiser.param_groups:
        group["lr"] = recipe.learning_rate_at(run.step)
    run.optimiser.zero_grad()
    x, y = x.to(run.device), y.to(run.device)
    loss, value = shared_loss(_loss(recipe, run, x, y), len(y))
    if not math.isfinite(value):
        raise diverged(recipe, run, f"training loss is {value}", x)
    if run.scaler is None:
        loss.backward()
        add_up_gradients(run.net)
        run.optimiser.step()
    else:
        run.scaler.scale(loss).backward()
        add_up_gradients(run.net)
        run.scaler.step(run.optimiser)
        run.scaler.update()
    run.step += 1
    if run.average is not None:
        run.average.update(run.net)
    return value


def _loss(recipe: Recipe, run: Run, x: Tensor, y: Tensor) -> Tensor:
    switches, smoothing = recipe.training, recipe.label_smoothing
    labels: Labels | None = None
    if switches.mixup or switches.cutmix:
        x, labels = mixed(x, y, switches.mixup, switches.cutmix, recipe.seed, run.step)
    logits = run.forward(x)
    seen = logits if run.prior is None else logits + run.prior.to(run.device)
    loss = F.cross_entropy(seen, y, label_smoothing=smoothing) if labels is None else labels.loss(seen, smoothing)
    return loss if run.teacher is None else run.teacher.joined(loss, logits, x)


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
        "so_far": asdict(run.so_far),
        "layers": torch.get_rng_state(),
        "average": run.average and run.average.state(),
        "scaler": run.scaler and run.scaler.state_dict(),
        "own": run.own_state(),
    }
    torch.save(stored, path)


def _resumed(recipe: Recipe, start: Start[AnyRun], checkpoint: Checkpoint) -> AnyRun | None:
    """Where an earlier run stopped; a checkpoint that cannot be used is dropped: starting over costs time only."""
    path = checkpoint.saved() if is_first() else None
    content = bytes_of_first(None if path is None else path.read_bytes())
    if content is None:
        return None
    try:
        stored = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        if stored["format"] != CHECKPOINT_FORMAT:
            raise ValueError(f"format {stored['format']}")
        run = _equipped(recipe, start({**stored["own"]}))
        run.net.load_state_dict(stored["net"])
        run.optimiser.load_state_dict(stored["optimiser"])
        run.epoch, run.step = stored["epoch"], stored["step"]
        run.losses, run.accuracies = list(stored["losses"]), list(stored["accuracies"])
        run.so_far = EpochSoFar(**stored["so_far"])
        if run.average is not None:
            run.average.load(stored["average"], run.net)
        if run.scaler is not None:
            run.scaler.load_state_dict(stored["scaler"])
        torch.set_rng_state(stored["layers"])
    except UNREADABLE:
        checkpoint.drop()
        return None
    return run
