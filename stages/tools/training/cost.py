"""`pipeline plan`: examples, steps, MACs, time and disk of the trainings that are still to run.

Time is that of a few steps of the unpruned network with random inputs on this device, taken once and kept beside the
cache; pruning makes later steps cheaper, so it is an upper bound on an otherwise idle machine.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.stage import Answer, Config
from stages.training.config import most_of_class

TIMED_BATCH, TIMED_STEPS = 32, 3
_BACKWARD = 3  # a step computes about three times what an inference does: forward, and two products backward
_FILE = "step_times.json"


@dataclass(frozen=True)
class StepCost:
    """Of one training example."""

    macs: int
    prune_s: float
    qat_s: float


def training_cost(sections: Mapping[str, Config], artifacts: Mapping[str, Path], cache: Path) -> Answer:
    """What is known about the cost; `artifacts` are those that earlier steps have left already."""
    if "dataset" not in artifacts:
        return Answer("cost of training: known once prepare has run", {})
    dataset = json.loads(artifacts["dataset"].read_text())
    counts = {split: sum(by_class.values()) for split, by_class in dataset["counts"].items()}
    prune: Any = sections["prune"]
    qat: Any = sections["qat"]
    training: Any = sections["training"]
    of_class = dataset["counts"]["train"].values()
    most = most_of_class(of_class, training.class_share)
    epoch = sum(min(count, most) for count in of_class)
    shape, classes = tuple(dataset["shapes"]["train"][1:]), len(dataset["classes"])
    cost = _step_cost(sections, shape, classes, cache)
    record = {
        "examples": counts,
        "prune_steps": prune.epochs * (epoch // prune.batch_of(counts["train"])),
        "qat_steps": qat.epochs * -(-epoch // qat.batch),
        "macs": _BACKWARD * cost.macs * epoch * (prune.epochs + qat.epochs),
        "prune_s": cost.prune_s * epoch * prune.epochs,
        "qat_s": cost.qat_s * epoch * qat.epochs,
        "disk_bytes": sum(file.stat().st_size for file in artifacts["features"].iterdir()),
    }
    text = (
        f"cost of training, at most: {counts['train']:,} examples, prune {record['prune_steps']:,} steps in "
        f"{_duration(record['prune_s'])}, qat {record['qat_steps']:,} steps in {_duration(record['qat_s'])}, "
        f"{record['macs']:.3g} MACs; features take {record['disk_bytes'] / 1e6:,.0f} MB of disk"
    )
    return Answer(text, record)


def _step_cost(sections: Mapping[str, Config], shape: tuple[int, ...], classes: int, cache: Path) -> StepCost:
    """Timed once for each network, device and number of threads."""
    prune: Any = sections["prune"]
    relevant = {name: sections[name].model_dump(mode="json") for name in ("network", "training")}
    told = json.dumps([relevant, prune.threads, shape, classes], sort_keys=True)
    key = hashlib.sha256(told.encode()).hexdigest()
    file = cache / _FILE
    try:
        known: dict[str, Any] = json.loads(file.read_text())
        return StepCost(**known[key])
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    cost = _timed(sections, (shape[0], shape[1], shape[2]), classes)
    cache.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".tmp")
    fresh.write_text(json.dumps({**known, key: asdict(cost)}))
    fresh.replace(file)
    return cost


def _timed(sections: Mapping[str, Config], shape: tuple[int, int, int], classes: int) -> StepCost:
    import torch

    from stages.graph.from_torch.conversion import graph_from_torch
    from stages.graph.memory.resources import resources
    from stages.nets.registry import build
    from stages.qat.fake_quant import FakeQuantNetwork
    from stages.training.determinism import reproducible
    from stages.training.device import at_precision, chosen_device
    from stages.training.loop import Recipe, Run, train_step

    training: Any = sections["training"]
    network: Any = sections["network"]
    prune: Any = sections["prune"]
    device = chosen_device(training.device)
    with reproducible(prune.threads, device.type):
        net = at_precision(build(network.for_data(shape, classes)), training.precision)
        graph = graph_from_torch(net.eval(), shape)
        x = torch.randn(TIMED_BATCH, shape[2], shape[0], shape[1]).contiguous(memory_format=torch.channels_last)
        y = torch.randint(0, classes, (TIMED_BATCH,))
        fake = FakeQuantNetwork(graph)
        fake.calibrate(x)
        seconds = []
        for each, precision in ((net.to(memory_format=torch.channels_last), training.precision), (fake, "float32")):
            each = each.to(device).train()
            run = Run(net=each, optimiser=torch.optim.SGD(each.parameters(), lr=1e-6), device=device)
            recipe = Recipe(
                step="plan", epochs=1, steps_per_epoch=99, learning_rate=1e-6, label_smoothing=0.1, seed=0,
                precision=precision,
            )  # fmt: skip
            times = []
            for _ in range(1 + TIMED_STEPS):
                start_s = _clock_s(device.type, prune.threads)
                train_step(recipe, run, x, y)
                times.append(_clock_s(device.type, prune.threads) - start_s)
            seconds.append(min(times[1:]) / TIMED_BATCH)
    return StepCost(resources(graph).macs, *seconds)


def _clock_s(device: str, threads: int) -> float:
    """On the CPU the processor's time, shared by the threads: other programs must not make the forecast longer."""
    return time.process_time() / threads if device == "cpu" else time.perf_counter()


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
