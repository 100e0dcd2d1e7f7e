"""What it takes to ask for all costs of a network and all their slopes, as every update of the widths does.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.firmware.cost_evaluation [--only NAME] [--count 200]

For each backbone of cost_prediction, on one board: latency, energy, flash and RAM by the quick cost and their slopes
by every group, at random widths, none twice. `ms` is by the clock, `processor` what a busy neighbour moves less;
`first` is what comes before: tables, and the exact cost at one place. Issue 21 wants 3 ms for every backbone. Exit
code 1 unless all medians hold by the clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np

from stages.firmware.cost.network import NetworkCost
from stages.nets.channels import find_channels
from stages.nets.registry import build
from tests.benchmarks.firmware.cost_prediction import BACKBONES

BOARD = "nucleo_f767zi"
MOST_MS = 3.0
ANCHOR = 0.4  # of all channels


@dataclass(frozen=True)
class Line:
    """One backbone."""

    ops: int
    groups: int
    first_s: float
    wall_ms: list[float]
    processor_ms: list[float]


def line(name: str, count: int) -> Line:
    channels = find_channels(build(BACKBONES[name]), BACKBONES[name].input_shape)
    full = np.array(channels.widths)
    cost = NetworkCost(channels.graph, channels.widths, [BOARD])
    started = time.perf_counter()
    cost.anchor(tuple(np.maximum(4, full * ANCHOR).astype(int).tolist()))
    cost.quick(channels.widths)
    found = Line(len(channels.graph.ops), len(full), time.perf_counter() - started, [], [])
    draw = np.random.default_rng(0)
    for _ in range(count):
        widths = tuple(np.maximum(4, full * draw.uniform(0.1, 1, len(full))).astype(int).tolist())
        wall, processor = time.perf_counter(), time.process_time()
        cost.quick(widths)
        cost.gradients(widths)
        found.wall_ms.append(1e3 * (time.perf_counter() - wall))
        found.processor_ms.append(1e3 * (time.process_time() - processor))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=BACKBONES)
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    head = ("ops", "groups", "first s", "ms median", "95 %", "processor ms", "95 %")
    sys.stdout.write(f"{'':16} {' '.join(f'{title:>12}' for title in head)}\n")
    good = True
    for name in BACKBONES:
        if given.only not in (None, name):
            continue
        found = line(name, given.count)
        figures = [
            figure
            for times in (found.wall_ms, found.processor_ms)
            for figure in (statistics.median(times), float(np.quantile(times, 0.95)))
        ]
        good = good and figures[0] <= MOST_MS
        texts = [f"{found.ops}", f"{found.groups}", f"{found.first_s:.1f}", *(f"{figure:.2f}" for figure in figures)]
        sys.stdout.write(f"{name:16} {' '.join(f'{text:>12}' for text in texts)}\n")
        sys.stdout.flush()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
