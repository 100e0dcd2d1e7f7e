"""Whether every experiment's variant with 60 % of the latency is met, and whether the firmware on the twin agrees.

    python -m tests.benchmarks.firmware.pruning_latency [NAME ...] [--csv FILE]

As pruning_budgets: the prune step's own training loop on noise. Then the firmware of the pruned network is built with
drawn weights and profiled on the twin. `share`: modelled latency over its budget, which issue 21 wants within 0.97 and
1; `predicted`: the same by the cost that pruning went by; `given_back`: channels that filling the budgets gained;
`edge`: whether no group can be widened without breaking a budget. What stands in FILE is not done again, and a variant
that fails has its sentence there. Exit code 1 unless all hold.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from pathlib import Path

from boards import load_board
from pipeline.errors import PipelineError
from pipeline.stage import Checkpoint
from stages.firmware.cost.stand_in import ordered, stand_in
from stages.prune.config import PruneConfig
from stages.prune.give_back import on_the_edge
from stages.prune.objectives import Objectives
from stages.prune.task import Task
from stages.prune.training import prune_metrics, train
from stages.prune.widths import WidthRule
from tests.benchmarks.compiled_networks import Network
from tests.benchmarks.compiled_networks import build as firmware
from tests.benchmarks.pruning_budgets import QUICK, Quiet, noise
from tests.benchmarks.subjects.pruning_experiments import experiment_names, prune_experiment

LEAST = 0.97
SUFFIX = "_60"
COLUMNS = (
    "experiment", "board", "budget_ms", "predicted", "twin_ms", "share", "fits", "given_back", "edge", "widths",
    "processor_s", "seconds", "error",
)  # fmt: skip


def line(name: str) -> dict[str, str]:
    """One experiment."""
    found = prune_experiment(name)
    config = PruneConfig(**{**found.prune.model_dump(), **QUICK})
    task = Task(noise(found.network), found.network, found.budget, config)
    with tempfile.TemporaryDirectory() as folder:
        trained = train(task, Quiet(), Checkpoint(Path(folder)))
    metrics = prune_metrics(trained, trained.budget)
    device, widths = metrics["device"], trained.architecture.widths
    ((board, limits),) = device["budget"].items()
    graph = ordered(stand_in(trained.unpruned.graph, widths, trained.unpruned.widths))
    profile = firmware(Network(name, graph, 1, None), found.budget.firmware.get("weights", "fast"), board).profile
    twin_ms = sum(op.cycles_modelled for op in profile) / load_board(board).clock_hz * 1e3
    objectives = Objectives(trained.unpruned, config, trained.budget)
    return {
        "board": board,
        "budget_ms": f"{limits['latency_ms']:.4f}",
        "predicted": f"{device['predicted'][board]['latency_ms'] / limits['latency_ms']:.4f}",
        "twin_ms": f"{twin_ms:.4f}",
        "share": f"{twin_ms / limits['latency_ms']:.4f}",
        "fits": "yes" if metrics["fits"] else "no",
        "given_back": str(device["given_back"]),
        "edge": "yes" if on_the_edge(WidthRule(trained.unpruned, config), objectives, widths) else "no",
        "widths": " ".join(map(str, widths)),
    }


def timed(name: str) -> dict[str, str]:
    """The same with what it took, or with what was said against it."""
    started, before = time.perf_counter(), os.times()
    try:
        found = line(name)
    except PipelineError as error:
        found = {"error": " ".join(str(error).split())}
    spent = sum(os.times()[:4]) - sum(before[:4])
    seconds = f"{time.perf_counter() - started:.0f}"
    return {"experiment": name, **found, "processor_s": f"{spent:.0f}", "seconds": seconds}


def holds(row: dict[str, str]) -> bool:
    return not row.get("error") and LEAST <= float(row["share"]) <= 1 and row["fits"] == row["edge"] == "yes"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name in experiment_names() if name.endswith(SUFFIX)]
    parser.add_argument("names", nargs="*", default=names, metavar="NAME")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows: dict[str, dict[str, str]] = {}
    if given.csv and given.csv.exists():
        with given.csv.open(newline="") as stream:
            rows = {row["experiment"]: row for row in csv.DictReader(stream)}
    for name in given.names:
        if name not in rows:
            rows[name] = timed(name)
            if given.csv:
                fresh = given.csv.with_suffix(".new")
                with fresh.open("w", newline="") as stream:
                    writer = csv.DictWriter(stream, COLUMNS)
                    writer.writeheader()
                    writer.writerows(rows.values())
                fresh.replace(given.csv)
        shown = {key: value for key, value in rows[name].items() if value}
        sys.stdout.write(" ".join(f"{key} {value}" for key, value in shown.items()) + "\n")
        sys.stdout.flush()
    return 0 if all(holds(rows[name]) for name in given.names) else 1


if __name__ == "__main__":
    sys.exit(main())
