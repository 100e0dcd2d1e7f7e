"""Does pruning for milliseconds beat pruning for MACs? The same short training, equal modelled latency, seed by seed.

    python -m tests.benchmarks.training.equal_latency --work WORK --speech FOLDER --cifar FOLDER   # what is missing
    python -m tests.benchmarks.training.equal_latency --work WORK --table [--widths]
    python -m tests.benchmarks.training.equal_latency --work WORK --twin           # firmware of all of them, profiled
    python -m tests.benchmarks.training.equal_latency --work WORK --shapes         # by resources alone, untrained

FOLDERs are Speech Commands v0.01 in its official layout and an unpacked copy of CIFAR-10 (data/README.md). `macs`
prunes to a budget of MACs; what that network takes on the board is the latency budget of `latency` (pruned for it) and
of `uniform` (the widest network with all layers scaled alike) with the same seed, and of `latency_4`, which has whole
blocks of four channels only; `latency_85` gets 85 % of it: if it is as accurate as `macs`, that is what equal accuracy
saves. Latency is modelled (stages/firmware/cost), accuracy is the float network's. One thread, few epochs: what counts
is the difference to `macs`. Killed, it goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from boards import load_board
from pipeline.stage import Checkpoint, write_json
from stages.firmware.cost.network import NetworkCost
from stages.firmware.cost.stand_in import ordered, stand_in
from stages.graph.memory.resources import ResourceModel
from stages.nets.channels import Channels, find_channels
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import build
from stages.prepare.config import DataConfig, PrepareConfig
from stages.prepare.stage import run as prepare
from stages.prune.config import PruneConfig
from stages.prune.give_back import given_back
from stages.prune.stage import run as prune
from stages.prune.width_update import WidthUpdate
from stages.training.config import TrainingConfig
from tests.benchmarks.compiled_networks import Network
from tests.benchmarks.compiled_networks import build as firmware
from tests.benchmarks.training.recipes import Told

BOARD = "nucleo_f767zi"
ARMS = ("macs", "latency", "latency_4", "uniform", "latency_85")
SEEDS = 3


@dataclass(frozen=True)
class Subject:
    """A network, its data, what it is pruned to."""

    data: str
    network: NetworkConfig
    macs: str  # 23 to 45 % of the backbone's
    epochs: int


SUBJECTS = {  # narrow ones: there MACs say least about cycles, and training is short
    "dscnn": Subject("speech", NetworkConfig(name="dscnn", width=32), "0.33M", 4),
    "res15": Subject("speech", NetworkConfig(name="res15", width=14), "3M", 3),
    "mobilenet_v2": Subject(
        "cifar10", NetworkConfig(name="mobilenet_v2", width_multiplier=0.35, input_shape=(32, 32, 3), classes=10),
        "0.55M", 3,
    ),
    "resnet18": Subject(
        "cifar10", NetworkConfig(name="resnet18", width=8, input_shape=(32, 32, 3), classes=10), "3M", 3,
    ),
    "dscnn_64": Subject("speech", NetworkConfig(name="dscnn", width=64), "1.9M", 4),
}  # fmt: skip


def data_folder(name: str, root: Path | None, work: Path) -> Path:
    """What prepare makes of the recordings or pictures; made once."""
    folder = work / "data" / name
    if not (folder / "dataset.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source: Any = {"speech": "speech_commands_v0.01", "cifar10": "cifar10"}[name]
        data = DataConfig(source=source, root=root, copies=1, augment="copies")
        prepare.function(config=PrepareConfig(), data=data, out_dir=folder, progress=Told())
    return folder


@cache
def network_cost(name: str) -> tuple[Channels, NetworkCost]:
    network = SUBJECTS[name].network
    channels = find_channels(build(network), network.input_shape)
    return channels, NetworkCost(channels.graph, channels.widths, [BOARD])


def budget_of(name: str, arm: str, seed: int, work: Path) -> BudgetConfig:
    if arm == "macs":
        return BudgetConfig(macs=SUBJECTS[name].macs)
    reached_ms = json.loads((work / f"{name}-macs-{seed}" / "cost.json").read_text())["latency_ms"]
    share = 0.85 if arm == "latency_85" else 1.0
    return BudgetConfig(latency_ms=math.floor(share * reached_ms * 1e4) / 1e4, board=BOARD)


def train(name: str, arm: str, seed: int, work: Path) -> None:
    """One training, and what its network costs on the board; what is there stays."""
    done, out_dir = work / f"{name}-{arm}-{seed}", work / f"{name}-{arm}-{seed}.new"
    if done.exists():
        return
    subject, started_s = SUBJECTS[name], _processor_s()
    sys.stderr.write(f"{name} {arm}, seed {seed}\n")
    out_dir.mkdir(exist_ok=True)
    data = work / "data" / subject.data
    made = prune.function(
        data / "features",
        data / "dataset.json",
        config=PruneConfig(
            epochs=subject.epochs,
            seed=seed,
            threads=1,
            batch=100,
            rate=8.0,
            update_every=8,
            start_step=40,
            method="uniform" if arm == "uniform" else "differentiable",
            channel_multiple=4 if arm == "latency_4" else 1,
        ),  # fmt: skip
        network=subject.network,
        budget=budget_of(name, arm, seed, work),
        training=TrainingConfig(device="cpu"),
        out_dir=out_dir,
        progress=Told(),
        checkpoint=Checkpoint(work / f"{done.name}.checkpoint"),
    )
    metrics = json.loads(made.prune_metrics.read_text())
    write_json(out_dir / "cost.json", cost_of(name, metrics["widths"]) | {"processor_s": _processor_s() - started_s})
    out_dir.rename(done)


def cost_of(name: str, widths: Sequence[int]) -> dict[str, Any]:
    channels, cost = network_cost(name)
    found = cost.exact(widths)[BOARD]
    layers = [{"name": e.name, "kernel": e.kernel, "cycles": round(e.cycles)} for e in found.layers]
    return {
        "latency_ms": found.latency_ms,
        "cycles": round(found.cycles),
        "macs": ResourceModel(channels.graph).resources(tuple(widths)).macs,
        "layers": layers,
    }


def profiled_ms(name: str, widths: Sequence[int]) -> float:
    """The firmware, built with drawn weights, on the twin."""
    channels, _ = network_cost(name)
    graph = ordered(stand_in(channels.graph, tuple(widths), channels.widths))
    profile = firmware(Network(name, graph, 1, None), "fast", BOARD).profile
    return sum(op.cycles_modelled for op in profile) / load_board(BOARD).clock_hz * 1e3


def shapes(name: str) -> str:
    """Pruned for MACs, then for the milliseconds that this takes and filled; without a task, so nothing is trained."""
    subject, (channels, _) = SUBJECTS[name], network_cost(name)
    config = PruneConfig(rate=8.0, losses="resource")
    by_macs = WidthUpdate(channels, config, BudgetConfig(macs=subject.macs)).by_resources(10_000)
    first = cost_of(name, by_macs)
    pruning = WidthUpdate(channels, config, BudgetConfig(latency_ms=first["latency_ms"], board=BOARD))
    start = pruning.by_resources(10_000)
    while pruning.objectives.exceeded(start, exactly=True):
        start = tuple(max(config.min_channels, int(0.995 * width)) for width in start)
    by_latency = given_back(pruning.rule, pruning.objectives, start, None)
    second = cost_of(name, by_latency)
    lines = [
        f"{name} {arm}: {found['latency_ms']:.3f} ms, {found['macs']:,} MACs, {widths}"
        for arm, found, widths in (("macs", first, by_macs), ("latency", second, by_latency))
    ]
    return "\n".join([*lines, f"{name}: {second['macs'] / first['macs'] - 1:+.1%} MACs in the same time"])


def finished(work: Path) -> Iterator[dict[str, Any]]:
    for name in SUBJECTS:
        for arm in ARMS:
            for seed in range(SEEDS):
                folder = work / f"{name}-{arm}-{seed}"
                if folder.exists():
                    metrics, cost = (json.loads((folder / f"{e}.json").read_text()) for e in ("metrics", "cost"))
                    twin = folder / "twin_ms"
                    yield {
                        "network": name, "arm": arm, "seed": seed, "test": 100 * metrics["test_accuracy"],
                        "validation": 100 * metrics["validation_accuracy"], "widths": metrics["widths"],
                        "latency_ms": cost["latency_ms"], "cycles": cost["cycles"], "macs": cost["macs"],
                        "twin_ms": float(twin.read_text()) if twin.exists() else None,
                        "processor_s": round(cost["processor_s"]),
                    }  # fmt: skip


def spread(values: Sequence[float]) -> str:
    """Mean and standard error."""
    error = f" ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{error}"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| network | arm | n | test % | test % less macs, seed by seed | validation % less macs "
        "| latency / that of macs | cycles / MAC | MACs |",
        f"|{'---|' * 9}",
    ]
    by_key = {(row["network"], row["arm"], row["seed"]): row for row in rows}
    for name in SUBJECTS:
        for arm in ARMS:
            found = [row for row in rows if (row["network"], row["arm"]) == (name, arm)]
            if not found:
                continue
            pairs = [(row, by_key[name, "macs", row["seed"]]) for row in found]
            apart = {key: [a[key] - b[key] for a, b in pairs] for key in ("test", "validation")}
            by_seed = " ".join(f"{each:+.2f}" for each in apart["test"])
            cells = (
                name, arm, len(found), spread([row["test"] for row in found]),
                "" if arm == "macs" else f"{spread(apart['test'])} ({by_seed})",
                "" if arm == "macs" else spread(apart["validation"]),
                f"{statistics.mean(a['latency_ms'] / b['latency_ms'] for a, b in pairs):.3f}",
                f"{statistics.mean(row['cycles'] / row['macs'] for row in found):.3f}",
                f"{statistics.mean(row['macs'] for row in found):,.0f}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _processor_s() -> float:
    """Of this process and of the compilers and twins that it ran."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--speech", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--networks", default=",".join(SUBJECTS))
    parser.add_argument("--arms", default=",".join(ARMS), help="macs has to be among those that are there")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--widths", action="store_true", help="with --table: one line for each network")
    parser.add_argument("--twin", action="store_true")
    parser.add_argument("--shapes", action="store_true")
    given = parser.parse_args()
    if given.shapes:
        for name in given.networks.split(","):
            sys.stdout.write(shapes(name) + "\n")
            sys.stdout.flush()
        return
    if given.twin:
        for row in finished(given.work):
            folder = given.work / f"{row['network']}-{row['arm']}-{row['seed']}"
            if row["twin_ms"] is None:
                (folder / "twin_ms").write_text(f"{profiled_ms(row['network'], row['widths']):.6f}")
    elif not given.table:
        roots = {"speech": given.speech, "cifar10": given.cifar}
        for name in given.networks.split(","):
            data_folder(SUBJECTS[name].data, roots[SUBJECTS[name].data], given.work)
            for seed in range(given.seeds):
                for arm in given.arms.split(","):
                    train(name, arm, seed, given.work)
    rows = list(finished(given.work))
    sys.stdout.write(table(rows) + "\n")
    if given.widths or given.twin:
        for row in rows:
            twin = "" if row["twin_ms"] is None else f", {row['twin_ms']:.3f} on the twin"
            figures = (
                f"{row['test']:.2f} % {row['latency_ms']:.3f} ms{twin} {row['macs']:,} MACs {row['processor_s']} s"
            )
            sys.stdout.write(f"{row['network']} {row['arm']} {row['seed']}: {figures} {row['widths']}\n")
    with (given.work / "results.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
