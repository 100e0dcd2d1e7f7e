"""Whether every experiment's variant with 60 % of the latency is met, and whether the firmware on the twin agrees.

    python -m tests.benchmarks.firmware.pruning_latency [NAME ...] [--csv FILE]

As pruning_budgets: the prune step's own training loop on noise. Then the firmware of the pruned network is built with
drawn weights and profiled on the twin. `share`: modelled latency over its budget, which issue 21 wants within 0.97 and
1; `predicted`: the same by the cost that pruning went by; `given back`: channels that filling the budgets gained.
Exit code 1 unless all hold.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

from pipeline.stage import Checkpoint
from stages.firmware.cost.stand_in import ordered, stand_in
from stages.prune.config import PruneConfig
from stages.prune.task import Task
from stages.prune.training import prune_metrics, train
from tests.benchmarks.compiled_networks import Network
from tests.benchmarks.compiled_networks import build as firmware
from tests.benchmarks.pruning_budgets import QUICK, Quiet, noise
from tests.benchmarks.subjects.pruning_experiments import experiment_names, prune_experiment

LEAST = 0.97
SUFFIX = "_60"


def line(name: str) -> dict[str, object]:
    """One experiment."""
    found = prune_experiment(name)
    started = time.perf_counter()
    config = PruneConfig(**{**found.prune.model_dump(), **QUICK})
    task = Task(noise(found.network), found.network, found.budget, config)
    with tempfile.TemporaryDirectory() as folder:
        trained = train(task, Quiet(), Checkpoint(Path(folder)))
    metrics = prune_metrics(trained, found.budget)["device"]
    ((board, limits),) = metrics["budget"].items()
    widths = trained.architecture.widths
    graph = ordered(stand_in(trained.unpruned.graph, widths, trained.unpruned.widths))
    profile = firmware(Network(name, graph, 1, None), "fast", board).profile
    clock_hz = {"nucleo_f767zi": 216e6, "nucleo_h743zi2": 480e6}[board]
    twin_ms = sum(op.cycles_modelled for op in profile) / clock_hz * 1e3
    return {
        "experiment": name,
        "board": board,
        "budget_ms": limits["latency_ms"],
        "predicted": round(metrics["predicted"][board]["latency_ms"] / limits["latency_ms"], 4),
        "share": round(twin_ms / limits["latency_ms"], 4),
        "given_back": metrics["given_back"],
        "widths": " ".join(map(str, widths)),
        "seconds": round(time.perf_counter() - started),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name in experiment_names() if name.endswith(SUFFIX)]
    parser.add_argument("names", nargs="*", default=names, metavar="NAME")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows = []
    for name in given.names:
        rows.append(line(name))
        sys.stdout.write(" ".join(f"{key} {value}" for key, value in rows[-1].items()) + "\n")
        sys.stdout.flush()
        if given.csv:
            with given.csv.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    return 0 if all(LEAST <= float(str(row["share"])) <= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
