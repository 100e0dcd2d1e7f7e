"""Filling the budgets: how many channels every experiment gains, and whether it then stands on the edge of its budgets.

    python -m tests.benchmarks.firmware.give_back [NAME ...] [--seed 0] [--csv FILE]

Nothing is trained: from the widths at which resources alone arrive (stages/prune/latency_share.py) what is left of the
budgets is given back by a drawn P_TSK. `edge`: no group can be widened without breaking a budget, by the exact cost;
`over`: budgets that the result breaks, none. Shares of the budgets stand before and after. NAME defaults to all
experiments, those with budgets of the firmware (NAME_60) among them. What stands in FILE is not done again. Exit code 1
unless all are on the edge and within.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.nets.channels import find_channels
from stages.nets.registry import build
from stages.prune.config import PruneConfig
from stages.prune.give_back import given_back, on_the_edge
from stages.prune.latency_share import with_absolute_latency
from stages.prune.objectives import Objectives
from stages.prune.width_update import WidthUpdate
from stages.prune.widths import WidthRule
from tests.benchmarks.subjects.pruning_experiments import experiment_names, prune_experiment

RATE = 12.0
_NARROWER = 0.995  # where the quick cost that was walked by thought too well of it


@dataclass(frozen=True, eq=False)
class Filled:
    """One experiment before and after."""

    objectives: Objectives
    full: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    edge: bool

    @property
    def over(self) -> tuple[str, ...]:
        return self.objectives.exceeded(self.after, exactly=True)

    @property
    def gained(self) -> int:
        return sum(self.after) - sum(self.before)

    def shares(self, widths: tuple[int, ...]) -> dict[str, float]:
        used = {name: self.objectives.used_exactly(name, widths) for name in self.objectives.limits}
        return {name: (value or 0.0) / self.objectives.limits[name] for name, value in used.items()}


def filled(name: str, seed: int) -> Filled:
    found = prune_experiment(name)
    channels = find_channels(build(found.network), found.network.input_shape)
    config = PruneConfig(**{**found.prune.model_dump(), "rate": RATE, "losses": "resource", "seed": seed})
    budget = with_absolute_latency(channels, config, found.budget)
    pruning = WidthUpdate(channels, config, budget)
    rule, objectives = WidthRule(channels, config), pruning.objectives
    before = pruning.by_resources(10_000)
    while objectives.exceeded(before, exactly=True):
        before = tuple(int(width) for width in np.maximum(rule.floor, np.floor(np.array(before) * _NARROWER)))
    slope = -np.random.default_rng(seed).lognormal(size=len(before))
    after = given_back(rule, objectives, before, slope)
    return Filled(objectives, channels.widths, before, after, on_the_edge(rule, objectives, after))


def cells(name: str, seed: int) -> dict[str, str]:
    started = time.perf_counter()
    found = filled(name, seed)
    shares = [found.shares(widths) for widths in (found.before, found.after)]
    return {
        "experiment": name,
        "seed": str(seed),
        "groups": str(len(found.full)),
        "channels": str(sum(found.before)),
        "gained": str(found.gained),
        "edge": "yes" if found.edge else "no",
        "over": " ".join(found.over),
        "shares": " ".join(f"{key}:{shares[0][key]:.4f}->{shares[1][key]:.4f}" for key in shares[0]),
        "widths": " ".join(map(str, found.after)),
        "seconds": f"{time.perf_counter() - started:.0f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=experiment_names(), metavar="NAME")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, str]] = []
    if given.csv and given.csv.exists():
        with given.csv.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
    for name in given.names:
        if not any((row["experiment"], row["seed"]) == (name, str(given.seed)) for row in rows):
            rows.append(cells(name, given.seed))
            sys.stdout.write(" ".join(f"{key} {value}" for key, value in rows[-1].items() if value) + "\n")
            sys.stdout.flush()
            if given.csv:
                with given.csv.with_suffix(".new").open("w", newline="") as stream:
                    writer = csv.DictWriter(stream, list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)
                given.csv.with_suffix(".new").replace(given.csv)
    return 0 if all(row["edge"] == "yes" and not row["over"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
