"""What pruning adds to a training step, and what the shrink saves, for 'MN-M' pruned to the KWS-S budgets.

    python -m tests.benchmarks.pruning_overhead [--experiment kws_dscnn_s] [--threads 1] [--pairs 40] [--set a.b=v ...]

Two trainings of the same network on the same batches take turns, one with pruning and one without, so that a busy
neighbour meets both; who goes first changes from pair to pair, and the median of the pairs' ratios counts. After every
pair the widths are updated, and an update's time (the mean of them) is spread over `update_every` steps, at the pace of
a training of STEPS, which is the experiment's own. What comes once is told beside it: what pruning needs before the
first step, and the update that meets the budgets, which gives channels back where they are the firmware's.
Then the budgets are met, the network is shrunk, and its steps take turns with those of the unpruned one. Medians of the
time that passes, and of the time that the processor spends, which a busy neighbour moves less. Exit code 1 when
training with pruning takes more than 1.08 of training without, or when the small network's steps are not faster by at
least half of the ratio of MACs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from stages.nets.config import NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.run import PruningRun, started
from stages.prune.task import Task
from stages.training.determinism import reproducible
from stages.training.examples import Examples, Split
from stages.training.loop import train_step
from tests.benchmarks.subjects.pruning_experiments import prune_experiment

MOST_OVERHEAD, LEAST_SPEED_UP = 1.08, 0.5
MOST_UPDATES = 400
STEPS = 22_200  # 100 epochs of Speech Commands in batches of 100
WARM_UP = 3


@dataclass(frozen=True)
class Span:
    """What a piece of work took: time that passed, and time of the processor."""

    wall_ms: float
    cpu_ms: float


def span(function: Callable[[], object]) -> Span:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Span(1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu))


def median(spans: Sequence[Span]) -> Span:
    return Span(*(statistics.median(getattr(found, name) for found in spans) for name in ("wall_ms", "cpu_ms")))


def noise(network: NetworkConfig, count: int) -> Split:
    height, width, channels = network.input_shape
    draw = torch.Generator().manual_seed(0)
    return Split(
        torch.randn(count, channels, height, width, generator=draw),
        torch.randint(0, network.classes, (count,), generator=draw),
    )


def mean(spans: Sequence[Span]) -> Span:
    return Span(*(statistics.fmean(getattr(found, name) for found in spans) for name in ("wall_ms", "cpu_ms")))


def plain_run(task: Task) -> PruningRun:
    """The same training without pruning."""
    run = started(task)
    run.pruner.pruning = None
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="kws_dscnn_s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--set", nargs="*", default=[], metavar="a.b=v", dest="settings")
    given = parser.parse_args()
    found = prune_experiment(given.experiment, given.settings)
    config = PruneConfig(
        **{
            **found.prune.model_dump(),
            "threads": given.threads,
            "early_termination": False,
            "batch": found.prune.batch or 100,
            "epochs": STEPS,  # of one batch
        }
    )
    split = noise(found.network, config.batch + config.validation_batch)
    batch = Split(split.x[: config.batch], split.y[: config.batch])
    task = Task(Examples(batch, split, split), found.network, found.budget, config)
    x, y = task.laid_out(split.x[: config.batch]), split.y[: config.batch]
    times: dict[str, list[Span]] = {"plain": [], "pruned": [], "update": [], "beside": [], "small": []}
    with reproducible(given.threads):
        began = time.perf_counter()
        plain = plain_run(task)
        before_s = time.perf_counter() - began
        pruned = started(task)
        pruning = pruned.pruning
        assert pruning is not None
        turns = [("plain", plain), ("pruned", pruned)]
        for _ in range(WARM_UP + given.pairs):
            for name, run in turns:
                times[name].append(span(lambda run=run: train_step(task.recipe, run, x, y)))
            turns.reverse()
            if not pruning.state.reached:  # an update of the masks alone costs less
                times["update"].append(span(lambda: pruned.update_widths(0.0)))
        while not pruning.state.reached:
            assert pruning.state.updates < MOST_UPDATES
            times["update"].append(span(lambda: pruned.update_widths(0.0)))
        last = times["update"].pop()
        pruned.shrink()
        for _ in range(WARM_UP + given.pairs // 2):
            times["beside"].append(span(lambda: train_step(task.recipe, plain, x, y)))
            times["small"].append(span(lambda: train_step(task.recipe, pruned, x, y)))
    middle = {name: median(found[WARM_UP:]) for name, found in times.items()}
    middle["update"] = mean(times["update"])
    once_s = before_s + last.wall_ms / 1000
    share = 1000 * once_s / (STEPS * middle["plain"].wall_ms)
    mac_ratio = plain.channels.resources.macs / pruned.channels.resources.macs
    lines = [
        f"{found.name}, batch {config.batch}, {config.validation_batch} validation examples per update, "
        f"{given.threads} thread(s), {given.pairs} pairs of steps, {len(times['update'])} updates; budgets of "
        f"{', '.join(pruning.objectives.limits)}",
        f"{'':32} {'wall':>9} {'processor':>9}",
        _line("step without pruning, ms", middle["plain"]),
        _line("step with masks, ms", middle["pruned"]),
        _line(f"update every {pruning.config.update_every} steps, ms", middle["update"]),
        f"once: {before_s:.1f} s before the first step, {last.wall_ms / 1000:.1f} s for the update that met the "
        f"budgets: {share:.4f} of {STEPS} steps",
        _line("step after the shrink, ms", middle["small"]),
        _line("unpruned step beside it, ms", middle["beside"]),
    ]
    good = True
    for clock in ("wall_ms", "cpu_ms"):
        took = {name: getattr(value, clock) for name, value in middle.items()}
        pairs = zip(times["pruned"][WARM_UP:], times["plain"][WARM_UP:], strict=True)
        masks = statistics.median(getattr(one, clock) / getattr(other, clock) for one, other in pairs)
        overhead = masks + took["update"] / took["plain"] / pruning.config.update_every
        speed_up = took["beside"] / took["small"]
        lines.append(
            f"{clock.removesuffix('_ms')}: with / without pruning {overhead:.3f} (needed <= {MOST_OVERHEAD}); speed-up "
            f"{speed_up:.2f} (needed >= {LEAST_SPEED_UP * mac_ratio:.2f}, half of the ratio of MACs {mac_ratio:.2f})"
        )
        if clock == "wall_ms":
            good = overhead <= MOST_OVERHEAD and speed_up >= LEAST_SPEED_UP * mac_ratio
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


def _line(title: str, value: Span) -> str:
    return f"{title:32} {value.wall_ms:9.1f} {value.cpu_ms:9.1f}"


if __name__ == "__main__":
    sys.exit(main())
