"""Quantisation-aware fine-tuning: calibrate the grids, train through the rounding.

The grids are chosen anew at the start of every epoch, from the same samples and the weights of that moment, except in
the last epoch: its weights learn on the grids that the device will use. Adam, cosine schedule, cross-entropy. The order
of the samples, and what `data.augment: on_the_fly` makes of them, depend on seed and epoch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
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
from stages.training.parallel import own_share

EVALUATED_AT_ONCE = 32  # samples: the doubles of a layer stay near the cache
_BEFORE_TRAINING = -1  # in place of an epoch: the draw of the calibration samples


@dataclass(eq=False, kw_only=True)
class QatRun(loop.Run):
    """A fake-quant network in training."""

    net: FakeQuantNetwork
    calibration: Tensor
    validation: Split
    epochs: int

    def begin_epoch(self) -> None:
        if self.epoch == 0 or self.epoch < self.epochs - 1:
            self.net.calibrate(self.calibration)

    def validation_accuracy(self) -> float:
        found = predictions(self.net, self.net, self.validation.x, EVALUATED_AT_ONCE)
        return accuracy(found, self.validation.y)


def train(
    network: FakeQuantNetwork,
    examples: Examples,
    config: QatConfig,
    progress: Progress,
    checkpoint: Checkpoint,
    *,
    training: TrainingConfig = PLAIN,
    teacher: Teacher | None = None,
) -> QatRun:
    """Fine-tune; without epochs the network is calibrated only."""
    count, device = len(examples.train), network.scales.device
    chosen = _permutation(count, config.seed, _BEFORE_TRAINING)[: config.calibration_samples]
    samples = examples.train.x[chosen].to(device)
    recipe = loop.Recipe(
        step="qat",
        epochs=config.epochs,
        steps_per_epoch=-(-count // config.batch),
        learning_rate=config.learning_rate,
        label_smoothing=config.label_smoothing,
        seed=config.seed,
        training=training,
    )

    def start(stored: Mapping[str, Any] | None) -> QatRun:
        net = network if stored is None else deepcopy(network)  # should the stored weights not fit, it is untouched
        optimiser = torch.optim.Adam(net.parameters(), lr=config.learning_rate)
        return QatRun(
            net=net,
            optimiser=optimiser,
            calibration=samples,
            validation=examples.validation,
            epochs=config.epochs,
            device=device,
            teacher=teacher,
        )

    def batches(epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        chosen = _permutation(count, config.seed, epoch).split(config.batch)[first:]
        return examples.train_batches([numbers[own_share()] for numbers in chosen], [config.seed, epoch])

    network.percentile = config.percentile if config.ranges == "percentile" else None
    run = loop.train(recipe, start, batches, progress, checkpoint)
    if config.epochs == 0:
        run.begin_epoch()
    if config.bias_correction:
        run.net.correct_biases(samples)
    return run


def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, epoch + 1]).permutation(count))
