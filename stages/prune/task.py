"""What a pruning run is given: examples, backbone, budgets, configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.prune.config import PruneConfig
from stages.training.augmentation import augmented
from stages.training.determinism import derived_seed, seeded
from stages.training.evaluation import accuracy, predictions
from stages.training.examples import Examples, Split
from stages.training.layout import laid_out, memory_format_of, with_unit_strides
from stages.training.loop import Recipe

EVALUATION_BATCH = 500


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that is given."""

    examples: Examples
    network: NetworkConfig
    budget: BudgetConfig
    config: PruneConfig

    @property
    def batch(self) -> int:
        return min(self.config.batch, len(self.examples.train))

    @property
    def recipe(self) -> Recipe:
        config = self.config
        return Recipe(
            step="prune",
            epochs=config.epochs,
            steps_per_epoch=len(self.examples.train) // self.batch,
            learning_rate=config.learning_rate,
            label_smoothing=config.label_smoothing,
            seed=config.seed,
            warmup_epochs=config.warmup_epochs,
        )

    def build(self, widths: tuple[int, ...] | None = None) -> nn.Module:
        return with_unit_strides(build(self.network, widths)).to(memory_format=self.memory_format)

    @cached_property
    def memory_format(self) -> torch.memory_format:
        """Ours are known to bear channels_last; a user's network is tried."""
        if self.network.module is None:
            return torch.channels_last
        return memory_format_of(partial(build, self.network), self.network.input_shape)

    def laid_out(self, x: Tensor) -> Tensor:
        return laid_out(x, self.memory_format)

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The training examples of an epoch in whole batches, augmented."""
        seed, train = self.config.seed, self.examples.train
        order = torch.randperm(len(train), generator=seeded(seed, "order", epoch))
        noise = seeded(seed, "augmentation", epoch)
        chosen = order[: len(train) // self.batch * self.batch].split(self.batch)
        for x, y in self.examples.train_batches(chosen, [derived_seed(seed, "waveforms", epoch)]):
            yield self.laid_out(x if self.examples.are_pictures else augmented(x, self.config, noise)), y

    def accuracy(self, net: nn.Module, forward: Callable[[Tensor], Tensor], split: Split) -> float:
        """`forward` runs `net`, masked or not."""
        found = predictions(net, lambda part: forward(self.laid_out(part)), split.x, EVALUATION_BATCH)
        return accuracy(found, split.y)

    def optimiser(self, net: nn.Module) -> torch.optim.SGD:
        momentum = self.config.momentum
        return torch.optim.SGD(
            net.parameters(),
            lr=self.config.learning_rate,
            momentum=momentum,
            weight_decay=self.config.weight_decay,
            nesterov=momentum > 0,
        )
