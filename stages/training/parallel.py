"""Several processes that train one network: each takes its share of every batch, and all make the same step.

Gradients, losses and the statistics of batch normalisation are those of the whole batch, so that what is learnt does
not depend on the number of processes beyond rounding. Alone, every function here leaves things as they are.

The others perform the whole step like the first one, in folders that are thrown away: whatever the first decides, they
decide. They run on this machine, each on a GPU of its own where there are several, and end with the first. Under
torchrun, which is how several machines work together, every process is there already and performs the step in a folder
that is kept: all of them end with the same files.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as group
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from pipeline.errors import ConfigError, StageError
from stages.training.config import TrainingConfig
from stages.training.device import chosen_device

_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process
_MEETING = timedelta(minutes=30)  # another machine may still have to prepare its data


@contextmanager
def together(training: TrainingConfig, module: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Meanwhile `training.processes` of them perform the step of `module` with what it was given, this one included."""
    processes = training.processes
    backend = "cpu:gloo,cuda:nccl" if chosen_device(training.device).type == "cuda" else "gloo"
    if count() == 1 and (launched := _launched_processes()) > 1:
        if launched != processes:
            raise ConfigError(f"training.processes: is {processes}, torchrun started {launched}; make them the same")
        with _met(backend, module):
            yield
        return
    if processes == 1 or count() > 1:
        yield
        return
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="together-") as folder:
        place = (Path(folder), backend, processes)
        others = [context.Process(target=_along, args=(*place, r, module, dict(given))) for r in range(1, processes)]
        for other in others:
            other.start()
        try:
            _join(*place, 0)
            yield
        except RuntimeError as error:
            for number, other in enumerate(others, 2):
                other.join(10)
                if other.exitcode:
                    raise StageError(f"training: process {number} of {processes} ended early ({error})") from error
            raise
        finally:
            if group.is_initialized():
                group.destroy_process_group()
            for other in others:
                other.join(60)
                other.kill()
                other.join()


def _launched_processes() -> int:
    """How many torchrun started, or somebody who set the same variables; 1: nobody did."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in _LAUNCHED) else 1


@contextmanager
def _met(backend: str, step: str) -> Iterator[None]:
    """Meanwhile the processes that torchrun started are one group; prune and qat meet one after the other."""
    try:
        store, own_rank, processes = next(rendezvous("env://", timeout=_MEETING))
        meeting = group.PrefixStore(step, store)
        group.init_process_group(backend, store=meeting, rank=own_rank, world_size=processes, timeout=_MEETING)
        yield
    except (RuntimeError, ValueError) as error:
        told = str(error).splitlines()[0]
        raise StageError(f"training: a process that torchrun started did not come or ended early ({told})") from error
    finally:
        if group.is_initialized():
            group.destroy_process_group()


def _join(folder: Path, backend: str, processes: int, own_rank: int) -> None:
    store = f"file://{folder / 'meeting'}"
    group.init_process_group(backend, init_method=store, world_size=processes, rank=own_rank)


def _along(folder: Path, backend: str, processes: int, own_rank: int, module: str, given: Mapping[str, Any]) -> None:
    """What the other processes do."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _join(folder, backend, processes, own_rank)
    out_dir = folder / f"out_{own_rank}"
    out_dir.mkdir()
    importlib.import_module(module).run.function(**given, out_dir=out_dir, progress=_Silent())


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


class _Silent:
    def start(self, total: int, unit: str) -> None:
        """The first process tells."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """The first process tells."""


def count() -> int:
    return group.get_world_size() if group.is_available() and group.is_initialized() else 1


def rank() -> int:
    return group.get_rank() if count() > 1 else 0


def is_first() -> bool:
    """Whether this is the process that saves and tells."""
    return rank() == 0


def own_share() -> slice:
    """Of a batch: every count-th example, so that the shares differ by one at most."""
    return slice(rank(), None, count())


def examples_of_all(own: int) -> int:
    """Examples of a batch over all processes."""
    if count() == 1:
        return own
    total = torch.tensor(own)
    group.all_reduce(total)
    return int(total)


def shared_loss(own: Tensor, examples: int) -> tuple[Tensor, float]:
    """What to differentiate, so that gradients add up to those of the whole batch; and the whole batch's mean loss."""
    if count() == 1:
        return own, float(own.detach())
    share = own * (examples / examples_of_all(examples))
    total = share.detach().clone()
    group.all_reduce(total)
    return share, float(total)


def add_up_gradients(net: nn.Module) -> None:
    """Over all processes, in one message."""
    if count() == 1:
        return
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    group.all_reduce(flat)
    for gradient, summed in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))


def agreed(values: Tensor) -> Tensor:
    """The first process's values, in all of them."""
    if count() > 1:
        group.broadcast(values, 0)
    return values


def told_by_first(find: Callable[[], float]) -> float:
    """What the first process finds; the others wait for it."""
    return float(agreed(torch.tensor(find() if is_first() else 0.0, dtype=torch.float64)))


def bytes_of_first(content: bytes | None) -> bytes | None:
    """The first process's bytes, in all of them: other machines do not see its disk."""
    if count() == 1:
        return content
    size = int(agreed(torch.tensor(-1 if content is None else len(content))))
    if size < 0:
        return None
    values = torch.frombuffer(bytearray(content or b""), dtype=torch.uint8) if is_first() else torch.zeros(size)
    return agreed(values.to(torch.uint8)).numpy().tobytes()


class _Summed(torch.autograd.Function):
    """A sum over all processes; every process's loss depends on every term of it."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        total = x.clone()
        group.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        total = gradient.contiguous().clone()
        group.all_reduce(total)
        return total


class WholeBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation by the mean and variance of all processes' examples; torch's own wants a GPU."""

    computes_like_its_base = True

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or count() == 1:
            return super().forward(input)
        axes = (0, 2, 3)
        sums = torch.stack([input.double().sum(axes), torch.full_like(self.running_mean, self._values(input)).double()])
        total, number = _Summed.apply(sums)
        mean = total / number
        centred = input - mean.to(input.dtype)[:, None, None]
        variance = _Summed.apply(centred.double().square().sum(axes)) / number
        self._move_statistics(mean.detach(), variance.detach() * (number / (number - 1)).detach())
        scale = (variance + self.eps).rsqrt().to(input.dtype) * self.weight
        return torch.addcmul(self.bias[:, None, None], centred, scale[:, None, None])

    @staticmethod
    def _values(x: Tensor) -> int:
        return x.numel() // x.shape[1]

    @torch.no_grad()
    def _move_statistics(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)


def with_whole_batch_statistics(net: nn.Module) -> nn.Module:
    """The network with its batch normalisation over all processes, in place."""
    for module in net.modules():
        if count() > 1 and type(module) is nn.BatchNorm2d:
            module.__class__ = WholeBatchNorm2d
    return net
