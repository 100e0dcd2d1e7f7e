"""Quantisation-aware fine-tuning: calibrate the grids, train through the rounding.

The grids are chosen anew at the start of every epoch, from the same samples and the weights of that moment, except in
the last epoch: its weights learn on the grids that the device will use. Ranges that are learned go on from the choice
of half time. Adam, cosine schedule, cross-entropy. The order of the samples, and what `data.augment: on_the_fly` makes
of them, depend on seed and epoch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.stage import Checkpoint, Progress
from stages.qat.config import QatConfig
from stages.qat.fake_quant import FakeQuantNetwork
from stages.training import loop
from stages.training.config import PLAIN, TrainingConfig
from stages.training.distillation import Teacher
from stages.training.evaluation import accuracy, predictions
from stages.training.examples import Examples, Split
from stages.training.parallel import own_share, told_by_first

EVALUATED_AT_ONCE = 32  # samples: the doubles of a layer stay near the cache
_BEFORE_TRAINING = -1  # in place of an epoch: the draw of the calibration samples


@dataclass(eq=False, kw_only=True)
class QatRun(loop.Run):
    """A fake-quant network in training."""

    net: FakeQuantNetwork
    calibration: Tensor
    validation: Split
    epochs: int
    best: Best | None = None  # where the best one is kept

    def begin_epoch(self) -> None:
        self.note_best()
        last = self.epochs // 2 if self.net.learns_ranges else self.epochs - 1
        if self.epoch < max(1, last):
            self.net.calibrate(self.calibration)
        if self.best is not None and self.epoch == 0:
            self._keep(told_by_first(self.validation_accuracy))  # calibrated only

    def note_best(self) -> None:
        """Before the network is changed again: whether the last epoch made it better than it ever was."""
        if self.best is not None and self.accuracies and self.accuracies[-1] > self.best.accuracy:
            self._keep(self.accuracies[-1])

    def _keep(self, found: float) -> None:
        self.best = Best(found, {name: value.clone() for name, value in self.net.state_dict().items()})

    def validation_accuracy(self) -> float:
        found = predictions(self.net, self.net, self.validation.x, EVALUATED_AT_ONCE)
        return accuracy(found, self.validation.y)

    def own_state(self) -> dict[str, Any]:
        return {} if self.best is None else {"best_accuracy": self.best.accuracy, "best": self.best.state}


@dataclass(frozen=True)
class Best:
    """A network as it was, and how good it was on the validation examples."""

    accuracy: float = 0.0
    state: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Tuning:
    """What a fine-tuning is given."""

    network: FakeQuantNetwork
    examples: Examples
    config: QatConfig
    training: TrainingConfig = PLAIN
    teacher: Teacher | None = None

    @cached_property
    def samples(self) -> Tensor:
        """Training examples from which the grids are chosen."""
        order = _permutation(len(self.examples.train), self.config.seed, _BEFORE_TRAINING)
        return self.examples.train.x[order[: self.config.calibration_samples]].to(self.network.scales.device)

    @property
    def recipe(self) -> loop.Recipe:
        config = self.config
        return loop.Recipe(
            step="qat",
            epochs=config.epochs,
            steps_per_epoch=-(-self.examples.epoch_size // config.batch),
            learning_rate=config.learning_rate,
            label_smoothing=config.label_smoothing,
            seed=config.seed,
            training=self.training,
        )

    def start(self, stored: Mapping[str, Any] | None = None) -> QatRun:
        """A new run, or one that takes up stored weights; should they not fit, the network is untouched."""
        net = self.network if stored is None else deepcopy(self.network)
        best = Best(stored["best_accuracy"], stored["best"]) if stored and "best" in stored else Best()
        return QatRun(
            net=net,
            optimiser=torch.optim.Adam(net.parameters(), lr=self.config.learning_rate),
            calibration=self.samples,
            validation=self.examples.validation,
            epochs=self.config.epochs,
            best=best if self.config.keep == "best" else None,
            device=net.scales.device,
            teacher=self.teacher,
            prior=self.examples.prior,
        )

    def batches(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the training examples of an epoch, from a step on."""
        config = self.config
        order = self.examples.epoch(_permutation(len(self.examples.train), config.seed, epoch))
        chosen = order.split(config.batch)[first:]
        return self.examples.train_batches([numbers[own_share()] for numbers in chosen], [config.seed, epoch])


def train(tuning: Tuning, progress: Progress, checkpoint: Checkpoint) -> QatRun:
    """Fine-tune; without epochs the network is calibrated only."""
    run = loop.train(tuning.recipe, tuning.start, tuning.batches, progress, checkpoint)
    if tuning.config.epochs == 0:
        run.begin_epoch()
    run.note_best()
    if run.best is not None:
        run.net.load_state_dict(run.best.state)
    if tuning.config.bias_correction:
        run.net.correct_biases(tuning.samples)
    return run


def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, epoch + 1]).permutation(count))
