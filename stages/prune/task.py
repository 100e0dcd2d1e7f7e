"""What a pruning run is given: examples, backbone, budgets, configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.prune.config import USUAL_BATCH, PruneConfig
from stages.training import parallel
from stages.training.augmentation import augmented
from stages.training.config import PLAIN, TrainingConfig
from stages.training.determinism import derived_seed, seeded
from stages.training.device import at_precision, chosen_device
from stages.training.distillation import Teacher, load_teacher
from stages.training.evaluation import accuracy, predictions
from stages.training.examples import Examples, Split
from stages.training.layout import laid_out, memory_format_of, with_quick_kernels
from stages.training.loop import Recipe

EVALUATION_BATCH = 500
USUAL_LEARNING_RATE = 0.1


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that is given."""

    examples: Examples
    network: NetworkConfig
    budget: BudgetConfig
    config: PruneConfig
    training: TrainingConfig = PLAIN

    @cached_property
    def device(self) -> torch.device:
        return chosen_device(self.training.device, parallel.rank())

    @cached_property
    def teacher(self) -> Teacher | None:
        return load_teacher(self.training.distillation, self.network.input_shape, self.network.classes, self.device)

    @property
    def batch(self) -> int:
        return self.config.batch_of(len(self.examples.train))

    @property
    def learning_rate(self) -> float:
        """Of a batch that was chosen for a small set in proportion: each step has seen as much less."""
        share = 1.0 if self.config.batch else min(1.0, self.batch / USUAL_BATCH)
        return self.config.learning_rate or USUAL_LEARNING_RATE * share

    @property
    def recipe(self) -> Recipe:
        config = self.config
        return Recipe(
            step="prune",
            epochs=config.epochs,
            steps_per_epoch=self.examples.epoch_size // self.batch,
            learning_rate=self.learning_rate,
            label_smoothing=config.label_smoothing,
            seed=config.seed,
            warmup_epochs=config.warmup_epochs,
            training=self.training,
            precision=self.training.precision,
        )

    def build(self, widths: tuple[int, ...] | None = None) -> nn.Module:
        net = parallel.with_whole_batch_statistics(with_quick_kernels(build(self.network, widths)))
        return at_precision(net, self.training.precision).to(self.device, memory_format=self.memory_format)

    @cached_property
    def memory_format(self) -> torch.memory_format:
        """Ours are known to bear channels_last; a user's network is tried."""
        if self.network.module is None:
            return torch.channels_last
        return memory_format_of(partial(build, self.network), self.network.input_shape)

    def laid_out(self, x: Tensor) -> Tensor:
        return laid_out(x.to(self.device), self.memory_format)

    def batches(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the training examples of an epoch in whole batches, augmented, from a step on."""
        seed, train = self.config.seed, self.examples.train
        order = self.examples.epoch(torch.randperm(len(train), generator=seeded(seed, "order", epoch)))
        noise = seeded(seed, "augmentation", epoch)
        share = parallel.own_share()
        chosen = [part[share] for part in order[: len(order) // self.batch * self.batch].split(self.batch)]

        def changed(x: Tensor) -> Tensor:
            return x if self.examples.are_pictures else augmented(x, self.config, noise, share, self.batch)

        for numbers in chosen[:first]:
            changed(torch.zeros(len(numbers), *train.x.shape[1:]))  # draws what these steps drew
        for x, y in self.examples.train_batches(chosen[first:], [derived_seed(seed, "waveforms", epoch)]):
            yield self.laid_out(changed(x)), y

    def validation_batch(self, update: int) -> tuple[Tensor, Tensor]:
        """The validation examples for the task loss of an update."""
        validation = self.examples.validation
        generator = seeded(self.config.seed, "validation", update)
        chosen = torch.randperm(len(validation), generator=generator)[: self.config.validation_batch]
        return self.laid_out(validation.x[chosen]), validation.y[chosen].to(self.device)

    def accuracy(self, net: nn.Module, forward: Callable[[Tensor], Tensor], split: Split) -> float:
        """`forward` runs `net`, masked or not."""
        found = predictions(net, lambda part: forward(self.laid_out(part)), split.x, EVALUATION_BATCH)
        return accuracy(found, split.y)

    def optimiser(self, net: nn.Module) -> torch.optim.SGD:
        momentum = self.config.momentum
        return torch.optim.SGD(
            net.parameters(),
            lr=self.learning_rate,
            momentum=momentum,
            weight_decay=self.config.weight_decay,
            nesterov=momentum > 0,
        )
