"""What a training run is given: examples, backbone, budgets, recipe; and what makes it repeatable."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from pipeline.errors import StageError
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.prune.config import PruneConfig
from stages.training.examples import Examples, Split

EVALUATION_BATCH = 500
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of glibc's mallopt


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
    def steps_per_epoch(self) -> int:
        return len(self.examples.train) // self.batch

    def build(self, widths: tuple[int, ...] | None = None) -> nn.Module:
        return build(self.network, widths).to(memory_format=self.memory_format)

    @cached_property
    def memory_format(self) -> torch.memory_format:
        """channels_last, a quarter to two thirds faster on the CPU, unless a user's network takes a view of a map."""
        if self.network.module is None:
            return torch.channels_last
        with torch.random.fork_rng(devices=[]):
            net = build(self.network).eval().to(memory_format=torch.channels_last)
        height, width, channels = self.network.input_shape
        x = torch.zeros(2, channels, height, width).contiguous(memory_format=torch.channels_last)
        try:
            with torch.no_grad():
                net(x)
        except RuntimeError:
            return torch.contiguous_format
        return torch.channels_last

    def laid_out(self, x: Tensor) -> Tensor:
        """Inputs as the network wants them in memory."""
        if self.memory_format is torch.contiguous_format:
            return x.clone(memory_format=self.memory_format)  # of one channel, contiguous() takes either for the other
        return x.contiguous(memory_format=self.memory_format)

    def accuracy(self, net: nn.Module, forward: Callable[[Tensor], Tensor], split: Split) -> float:
        """Share of examples whose largest logit is the right one; `forward` runs `net`, masked or not."""
        was_training = net.training
        net.eval()
        with torch.no_grad():
            right = sum(
                int((forward(self.laid_out(x)).argmax(1) == y).sum())
                for x, y in zip(split.x.split(EVALUATION_BATCH), split.y.split(EVALUATION_BATCH), strict=True)
            )
        net.train(was_training)
        return right / len(split)

    def optimiser(self, net: nn.Module) -> torch.optim.SGD:
        momentum = self.config.momentum
        return torch.optim.SGD(
            net.parameters(),
            lr=self.config.learning_rate,
            momentum=momentum,
            weight_decay=self.config.weight_decay,
            nesterov=momentum > 0,
        )

    def learning_rate(self, step: int) -> float:
        """Linear warm-up under a cosine to zero."""
        total = self.config.epochs * self.steps_per_epoch
        warmup = max(1.0, self.config.warmup_epochs * self.steps_per_epoch)
        return self.config.learning_rate * min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / total))


def refuse_other_shape(network: NetworkConfig, input_shape: tuple[int, int, int], classes: int) -> None:
    """StageError unless the network is made for features of this shape and for this many classes."""
    if network.input_shape != input_shape:
        raise StageError(
            f"prune: features are {input_shape} (height, width, channels), {network.title} is made for "
            f"{network.input_shape}; set network.input_shape to that, or change the data section"
        )
    if network.classes != classes:
        raise StageError(
            f"prune: the data set has {classes} classes, {network.title} tells {network.classes} apart; "
            f"set network.classes={classes}"
        )


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """The same bits every time; leaves torch as it was."""
    _keep_freed_memory()
    threads_before = torch.get_num_threads()
    deterministic_before = torch.are_deterministic_algorithms_enabled()
    fill_before = torch.utils.deterministic.fill_uninitialized_memory
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # nothing of ours reads it, and filling takes time
        try:
            yield
        finally:
            torch.set_num_threads(threads_before)
            torch.use_deterministic_algorithms(deterministic_before)
            torch.utils.deterministic.fill_uninitialized_memory = fill_before


def _keep_freed_memory() -> None:
    """Let the C library keep what is freed for the next step, from now on.

    By default it gives large blocks back, and every page of them costs a fault when a step asks for it again: 64,000 in
    a step of 'MN-M', a fifth of its time. Other C libraries than glibc stay as they are.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
