"""Step time of training with waveforms augmented on the fly against preloaded features, in one run.

    python -m tests.benchmarks.data.augmentation_speed [--steps 20] [--width 276] [--threads 2]

MN-M, batch 100. Blocks of steps with and without augmentation take turns, so that a busy neighbour meets both; each
step waits for its batch, as in training. Exit code 1 when the median ratio is above 1.1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data import CLIP_SAMPLES, Corpus
from data.sounds.corpus import SplitAudio
from data.sounds.noise import background_noises
from data.sounds.speech_commands import _TRAIN
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from stages.prepare.config import PrepareConfig
from stages.prepare.dataset import write_features
from stages.prepare.waveforms import write_augmentation
from stages.training.examples import Examples, load_examples

NEEDED_RATIO = 1.1
BATCH = 100
CLASSES = 12
CLIPS = 2000
BLOCKS = 5


def corpus() -> Corpus:
    rng = np.random.default_rng(0)

    def split(count: int) -> SplitAudio:
        return SplitAudio(
            clips=rng.integers(-8000, 8000, (count, CLIP_SAMPLES)).astype(np.int16),
            takes=np.arange(count, dtype=np.int64),
            labels=np.arange(count, dtype=np.int64) % CLASSES,
            noises=background_noises([0]),
            mixing=_TRAIN,
            speakers=(),
        )

    splits = {"train": split(CLIPS), "validation": split(BATCH), "test": split(BATCH)}
    return Corpus(source="benchmark", classes=tuple(map(str, range(CLASSES))), seed=0, splits=splits)


def step(net: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimiser.zero_grad()
    F.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y).backward()
    optimiser.step()


def steps_s(
    net: nn.Module, optimiser: torch.optim.Optimizer, batches: Iterator[tuple[Tensor, Tensor]], count: int
) -> float:
    """Mean time of a step; the first batch is not counted, it starts the process beside."""
    step(net, optimiser, *next(batches))
    start = time.perf_counter()
    for _ in range(count):
        step(net, optimiser, *next(batches))
    return (time.perf_counter() - start) / count


def measured(examples: Examples, steps: int, width: int) -> dict[str, float]:
    shape = NetworkConfig(name="dscnn", width=width, blocks=5)
    net = build(shape).to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    preloaded = Examples(examples.train, examples.validation, examples.test)
    chosen = [torch.randint(CLIPS, (BATCH,)) for _ in range(steps + 1)]
    times: dict[str, list[float]] = {"preloaded": [], "on_the_fly": []}
    for block in range(BLOCKS):
        for name, source in (("preloaded", preloaded), ("on_the_fly", examples)):
            times[name].append(steps_s(net, optimiser, iter(source.train_batches(chosen, [block])), steps))
    ratios = [fresh / before for before, fresh in zip(times["preloaded"], times["on_the_fly"], strict=True)]
    return {
        "preloaded_step_ms": 1e3 * statistics.median(times["preloaded"]),
        "on_the_fly_step_ms": 1e3 * statistics.median(times["on_the_fly"]),
        "ratio": statistics.median(ratios),
        "smallest_ratio": min(ratios),
        "largest_ratio": max(ratios),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=276)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder, source = Path(temporary) / "features", corpus()
        record = write_features(source, PrepareConfig().settings(), folder, lambda count: None)
        write_augmentation(source, record, folder)
        result = measured(load_examples(folder, CLASSES), options.steps, options.width)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if result["ratio"] <= NEEDED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
