"""What pruning adds to a training step, and what the shrink saves, for 'MN-M' pruned to the KWS-S budgets.

    python -m tests.benchmarks.pruning_overhead [--experiment kws_dscnn_s] [--threads 1] [--pairs 40]

Two trainings of the same network on the same batches take turns, one with pruning and one without, so that a busy
neighbour meets both; after every pair the widths are updated, and an update's time is spread over `update_every` steps.
Then the budgets are met, the network is shrunk, and its steps take turns with those of the unpruned one. Medians.
Exit code 1 when training with pruning takes more than 1.08 of training without, or when the small network's steps are
not faster by at least half of the ratio of MACs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

from stages.nets.config import NetworkConfig
from stages.prune.config import PruneConfig
from stages.prune.examples import Examples, Split
from stages.prune.recipe import Task, channels_last, reproducible
from stages.prune.run_state import Run, fresh_run
from stages.prune.training import train_step, update_widths
from tests.benchmarks.pruning_experiments import prune_experiment

MOST_OVERHEAD, LEAST_SPEED_UP = 1.08, 0.5
MOST_UPDATES = 400
WARM_UP = 3


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def noise(network: NetworkConfig, count: int) -> Split:
    height, width, channels = network.input_shape
    draw = torch.Generator().manual_seed(0)
    return Split(
        torch.randn(count, channels, height, width, generator=draw),
        torch.randint(0, network.classes, (count,), generator=draw),
    )


def plain_run(task: Task) -> Run:
    """The same training without pruning."""
    run = fresh_run(task)
    run.pruning = None
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="kws_dscnn_s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=40)
    given = parser.parse_args()
    found = prune_experiment(given.experiment)
    config = PruneConfig(**{**found.prune.model_dump(), "threads": given.threads, "early_termination": False})
    split = noise(found.network, config.batch + config.validation_batch)
    task = Task(Examples(split, split, split), found.network, found.budget, config)
    x, y = channels_last(split.x[: config.batch]), split.y[: config.batch]
    with reproducible(given.threads):
        plain, pruned = plain_run(task), fresh_run(task)
        times: dict[str, list[float]] = {"plain": [], "pruned": [], "update": [], "beside": [], "small": []}
        for number in range(WARM_UP + given.pairs):
            assert pruned.pruning is not None
            step = {
                "plain": seconds(lambda: train_step(task, plain, x, y)),
                "pruned": seconds(lambda: train_step(task, pruned, x, y)),
            }
            if not pruned.pruning.state.reached:  # an update of the masks alone costs less
                step["update"] = seconds(lambda: update_widths(task, pruned, pruned.pruning, 0.0))
            if number >= WARM_UP:
                for name, value in step.items():
                    times[name].append(value)
        while not pruned.pruning.state.reached:
            assert pruned.pruning.state.updates < MOST_UPDATES
            update_widths(task, pruned, pruned.pruning, 0.0)
        pruned.shrink(task)
        for number in range(WARM_UP + given.pairs // 2):
            step = {
                "beside": seconds(lambda: train_step(task, plain, x, y)),
                "small": seconds(lambda: train_step(task, pruned, x, y)),
            }
            if number >= WARM_UP:
                for name, value in step.items():
                    times[name].append(value)
    middle = {name: 1000 * statistics.median(values) for name, values in times.items()}
    amortised = middle["pruned"] + middle["update"] / config.update_every
    overhead = amortised / middle["plain"]
    speed_up = middle["beside"] / middle["small"]
    mac_ratio = plain.channels.resources.macs / pruned.channels.resources.macs
    sys.stdout.write(
        f"{found.name}, batch {config.batch}, {config.validation_batch} validation examples per update, "
        f"{given.threads} thread(s), {given.pairs} pairs of steps, {len(times['update'])} updates\n"
        f"step without pruning  {middle['plain']:9.1f} ms\n"
        f"step with masks       {middle['pruned']:9.1f} ms\n"
        f"update of the widths  {middle['update']:9.1f} ms, every {config.update_every} steps\n"
        f"with / without        {overhead:9.3f}    needed <= {MOST_OVERHEAD}\n"
        f"step after the shrink {middle['small']:9.1f} ms, unpruned beside it {middle['beside']:.1f} ms\n"
        f"speed-up              {speed_up:9.2f}    needed >= {LEAST_SPEED_UP * mac_ratio:.2f}, "
        f"half of the ratio of MACs ({mac_ratio:.2f})\n"
    )
    return 0 if overhead <= MOST_OVERHEAD and speed_up >= LEAST_SPEED_UP * mac_ratio else 1


if __name__ == "__main__":
    sys.exit(main())
