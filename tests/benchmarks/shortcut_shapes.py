"""Do residual blocks of any shape train, in prune and in QAT, without ending the process?

    python -m tests.benchmarks.shortcut_shapes [--shapes 100] [--seed 0] [--jobs 2] [--unsafe]

Draws shapes of a strided 1x1 shortcut (channels, side, stride); each is trained for two steps in both rooms, with an
odd and an even batch, on one and on two threads, in a process of its own (a fork of this one, which imports torch once
and never computes with it): oneDNN's kernel for such layers ends it on some of them (stages/training/layout.py). Prints
every combination that did not come to its end, then the count. `--unsafe` trains with oneDNN's own kernel instead.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
import torch._dynamo  # optimisers import it (1.5 s) when they are made: once here, not in each process
from torch import Tensor, nn

from pipeline.stage import Checkpoint
from stages.graph.from_torch.conversion import graph_from_torch
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.task import Task
from stages.prune.training import train as prune
from stages.qat.config import QatConfig
from stages.qat.fake_quant import FakeQuantNetwork
from stages.qat.training import Tuning
from stages.qat.training import train as fine_tune
from stages.training import layout
from stages.training.determinism import reproducible
from stages.training.examples import Examples, Split
from tests.stages.qat.small_task import Quiet

KNOWN = [(8, 18, 32, 2)]  # crashed in four of four runs with batches of 63, 75 and 77


@dataclass(frozen=True)
class Trial:
    """One process."""

    channels: int
    widened: int
    side_px: int
    stride: int
    batch: int
    threads: int


class Residual(nn.Module):
    """A block with a projection, as in ResNets."""

    def __init__(self, channels: int, widened: int, stride: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.main = nn.Sequential(nn.Conv2d(channels, widened, 3, stride, padding=1), nn.BatchNorm2d(widened))
        self.shortcut = nn.Sequential(nn.Conv2d(channels, widened, 1, stride), nn.BatchNorm2d(widened))
        self.head = nn.Linear(widened, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(torch.relu(self.main(x) + self.shortcut(x)).mean((2, 3)))


def trials(shapes: int, seed: int) -> Iterator[Trial]:
    """Each shape with an odd and an even batch, on one thread and on two."""
    draw = random.Random(seed)
    drawn = [
        (draw.randint(4, 64), draw.randint(4, 64), draw.randint(5, 40), draw.choice((2, 2, 2, 3)))
        for _ in range(shapes)
    ]
    for shape in (*KNOWN, *drawn)[:shapes]:
        odd = 63 if shape in KNOWN else draw.randrange(3, 100, 2)
        for batch, threads in itertools.product((odd, odd + 1), (1, 2)):
            yield Trial(*shape, batch, threads)


def train(trial: Trial) -> None:
    """Two steps in each room."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2 * trial.batch, 1, trial.side_px, trial.side_px, generator=draw)
    split = Split(x, torch.arange(len(x)) % 2)
    examples = Examples(split, split, split)
    args = {"channels": trial.channels, "widened": trial.widened, "stride": trial.stride}
    shape = (trial.side_px, trial.side_px, 1)
    network = NetworkConfig(module="tests.benchmarks.shortcut_shapes:Residual", args=args, input_shape=shape, classes=2)
    config = PruneConfig(epochs=1, batch=trial.batch, threads=trial.threads, start_step=1, update_every=1)
    config = config.model_copy(update={"missed_budgets": "report", "min_channels": 1, "shift_frames": 0})
    with tempfile.TemporaryDirectory() as folder:
        task = Task(examples, network, BudgetConfig(macs="1G"), config)
        trained = prune(task, Quiet(), Checkpoint(Path(folder) / "prune"))
        fake = FakeQuantNetwork(graph_from_torch(trained.net, shape))
        with reproducible(trial.threads):
            tuning = Tuning(fake, examples, QatConfig(epochs=1, batch=trial.batch))
            fine_tune(tuning, Quiet(), Checkpoint(Path(folder) / "qat"))


def exit_code(trial: Trial) -> int:
    """Of a child process; negative for the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            train(trial)
        except Exception:  # noqa: BLE001 - the child must not go on as a second parent
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unsafe", action="store_true")
    given = parser.parse_args()
    if given.unsafe:
        layout.UnitStrideConv2d._conv_forward = nn.Conv2d._conv_forward  # type: ignore[method-assign]
    every = list(trials(given.shapes, given.seed))
    with ThreadPoolExecutor(given.jobs) as pool:
        codes = list(pool.map(exit_code, every))
    bad = [(trial, code) for trial, code in zip(every, codes, strict=True) if code]
    for trial, code in bad:
        sys.stdout.write(f"exit code {code}: {trial}\n")
    sys.stdout.write(f"{len(every) - len(bad)} of {len(every)} processes came to their end\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
