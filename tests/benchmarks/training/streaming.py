"""Training on a set that is never in memory: peak memory of every process, speed beside memory, kill and resume.

    python -m tests.benchmarks.training.streaming --work WORK [--pictures 100000] [--quick]

Draws a folder of JPEGs (50 classes, 64 px), then runs prepare, two epochs of prune and one of qat, each in a process of
its own, and notes the largest resident memory of each process among them. Both trainings are run once more, killed
(SIGKILL) in the middle of an epoch and started again: the files have to be the same. Last, steps of prune with two
workers are timed in turns with steps on examples in memory, a few of each, so that what else runs on the machine meets
both alike. What is already in WORK is not made again. --quick: 20,000 pictures, and only what this ratio needs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from data.examples.augmentation import augmentation
from pipeline.stage import Checkpoint
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.prepare.config import DataConfig, PrepareConfig
from stages.prepare.stage import run as prepare
from stages.prune.config import PruneConfig
from stages.prune.run import started
from stages.prune.stage import run as prune
from stages.prune.task import Task
from stages.qat.config import QatConfig
from stages.qat.stage import run as qat
from stages.training.config import TrainingConfig
from stages.training.determinism import reproducible
from stages.training.examples import AHEAD, Examples, Split, load_examples
from stages.training.loop import train_step

CLASSES, SIDE_PX, QUICK_PICTURES = 50, 64, 20_000
NETWORK = NetworkConfig(name="mobilenet_v1", width_multiplier=0.1)
BUDGET = BudgetConfig(size_bytes="40KB", macs="700K")
PRUNE = PruneConfig(epochs=2, batch=100, threads=1, update_every=10, rate=12.0, missed_budgets="report")
TRAINING = TrainingConfig(device="cpu", workers=2, checkpoint_minutes=0.25)
ROUNDS, STEPS = 12, 12  # of the timing: some steps from the stream, some from memory, and again
WAITING = AHEAD * TRAINING.workers  # batches that were made during the other's steps: not timed


class Quiet:
    def start(self, total: int, unit: str) -> None:
        """Nothing to draw."""

    def advance(self, count: int = 1, note: str = "") -> None:
        if note:
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {note}\n")


def draw_pictures(root: Path, count: int) -> None:
    """Every class has a colour and a direction of stripes, under noise."""
    if (root / "whole").exists():
        return
    draw = np.random.default_rng(0)
    y, x = np.mgrid[0:SIDE_PX, 0:SIDE_PX]
    for label in range(CLASSES):
        folder = root / f"class_{label:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        angle, colour = label * np.pi / CLASSES, draw.integers(60, 200, 3)
        for number in range(count // CLASSES):
            stripes = np.sin((x * np.cos(angle) + y * np.sin(angle)) / 3 + draw.uniform(0, 6))
            pixels = colour + 40 * stripes[..., None] + draw.normal(0, 20, (SIDE_PX, SIDE_PX, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:05d}.jpg", quality=85)
    (root / "whole").touch()


def perform(step: str, work: Path, out: Path) -> None:
    """One step of the pipeline, in this process."""
    out.mkdir(exist_ok=True)
    data, checkpoint = work / "prepare", Checkpoint(work / f"{out.name}.checkpoint")
    if step == "prepare":
        source = DataConfig(source="folder", root=work / "pictures", image_px=SIDE_PX)
        prepare.function(config=PrepareConfig(), data=source, out_dir=out, progress=Quiet())
    elif step == "prune":
        given = {"config": PRUNE, "network": NETWORK, "budget": BUDGET, "training": TRAINING, "out_dir": out}
        prune.function(data / "features", data / "dataset.json", progress=Quiet(), checkpoint=checkpoint, **given)
    else:
        pruned, config = work / "prune", QatConfig(epochs=1, threads=1)
        given = {"config": config, "training": TRAINING, "out_dir": out, "progress": Quiet(), "checkpoint": checkpoint}
        qat.function(data / "features", pruned / "network.pt", pruned / "architecture.json", **given)
    (out / "done").touch()


def memory_bytes(process: int) -> Iterator[tuple[int, int]]:
    """A process and those below it, each with the most that was ever resident."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return
    for line in status.splitlines():
        if line.startswith("VmHWM"):
            yield process, int(line.split()[1]) * 1024
    for child in children:
        yield from memory_bytes(int(child))


def watched(step: str, work: Path, out: Path, kill_at_checkpoint: bool = False) -> int:
    """The largest memory of any process of a step; it can be killed in the middle of an epoch."""
    command = [sys.executable, "-m", "tests.benchmarks.training.streaming", "--work", str(work)]
    process = subprocess.Popen([*command, "--step", step, "--out", str(out)], start_new_session=True)
    most: dict[int, int] = {}
    while process.poll() is None:
        for number, found in memory_bytes(process.pid):
            most[number] = max(most.get(number, 0), found)
        if kill_at_checkpoint and list(work.glob(f"{out.name}.checkpoint/checkpoint-*")):
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.2)
    if process.returncode and not kill_at_checkpoint:
        raise SystemExit(f"{step} ended with {process.returncode}")
    return max(most.values(), default=0)


def digests(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.name != "done"
    }


def killed_and_resumed(step: str, work: Path) -> str:
    out = work / f"{step}-killed"
    if not (out / "done").exists():
        watched(step, work, out, kill_at_checkpoint=True)
        stored = torch.load(next(work.glob(f"{out.name}.checkpoint/checkpoint-*")), weights_only=True)
        sys.stdout.write(f"{step}: killed in epoch {stored['epoch'] + 1} behind step {stored['so_far']['steps']}\n")
        watched(step, work, out)
    return "same bytes" if digests(out) == digests(work / step) else "OTHER BYTES"


def step_times(work: Path) -> dict[str, float]:
    """Milliseconds of a step of prune with two workers and on batches in memory, in turns, medians: by the clock, and
    processor time of the training process alone, which other programs on the machine do not change."""
    features = work / "prepare" / "features"
    examples = load_examples(features, CLASSES, are_pictures=True, training=TRAINING)
    some = torch.arange(PRUNE.batch * STEPS)
    held = Split(examples.train.x[some], examples.train.y[some])
    sets = {"stream": examples, "memory": Examples(held, examples.validation, examples.test, are_pictures=True)}
    network = NETWORK.for_data(examples.input_shape, CLASSES)
    found: dict[str, list[float]] = {f"{name} {clock}": [] for name in sets for clock in ("clock", "processor")}
    with reproducible(1):
        tasks = {name: Task(each, network, BUDGET, PRUNE, TRAINING) for name, each in sets.items()}
        run = started(tasks["memory"])
        batches = {name: chain.from_iterable(map(task.batches, count())) for name, task in tasks.items()}
        for _ in range(ROUNDS):
            for name, task in tasks.items():
                for number in range(STEPS):
                    clock_s, processor_s = time.perf_counter(), time.process_time()
                    x, y = next(batches[name])
                    train_step(task.recipe, run, x, y)
                    if number >= WAITING:
                        found[f"{name} clock"].append(time.perf_counter() - clock_s)
                        found[f"{name} processor"].append(time.process_time() - processor_s)
    return {name: 1e3 * statistics.median(values) for name, values in found.items()}


def batch_ms(work: Path) -> float:
    """Processor time that a worker needs for one batch."""
    augment = augmentation(work / "prepare" / "features", TRAINING.pictures)
    assert augment is not None
    start_s = time.process_time()
    for number in range(20):
        augment(np.arange(PRUNE.batch) + number * PRUNE.batch, [0])
    return 1e3 * (time.process_time() - start_s) / 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--step", choices=("prepare", "prune", "qat"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.step:
        perform(given.step, given.work, given.out)
        return
    if not (given.work / "prepare" / "done").exists():
        draw_pictures(given.work / "pictures", QUICK_PICTURES if given.quick else given.pictures)
    for step in ("prepare",) if given.quick else ("prepare", "prune", "qat"):
        out, noted = given.work / step, given.work / f"{step}.memory"
        if not (out / "done").exists():
            noted.write_text(str(watched(step, given.work, out)))
        sys.stdout.write(f"{step}: largest process {int(noted.read_text()) / 1e6:.0f} MB\n")
    if not given.quick:
        metrics = json.loads((given.work / "prune" / "metrics.json").read_text())
        sys.stdout.write(f"prune: test accuracy {metrics['test_accuracy']:.3f}, within budget: {metrics['fits']}\n")
        for step in ("prune", "qat"):
            sys.stdout.write(f"{step}: killed within an epoch and resumed: {killed_and_resumed(step, given.work)}\n")
    times = step_times(given.work)
    for clock in ("clock", "processor"):
        stream, memory = times[f"stream {clock}"], times[f"memory {clock}"]
        sys.stdout.write(
            f"step, {clock} time: two workers {stream:.1f} ms, in memory {memory:.1f} ms, ratio {stream / memory:.3f}\n"
        )
    sys.stdout.write(f"a worker makes a batch in {batch_ms(given.work):.1f} ms of processor time\n")


if __name__ == "__main__":
    main()
