"""Zero-wait cycles per MAC of whole networks on the Cortex-M7 twin, and which of their layers are slow.

    python -m tests.benchmarks.firmware.speed_table [--models FOLDER] [--only NAME] [--layers] [--csv FILE]

Networks have the shapes of those that they stand for and drawn weights; `--models` is a folder with MLPerf Tiny's
kws_ref_model.tflite and pretrainedResnet_quant.tflite, which then are measured, too. MACs are those of the file;
`executed` what exact simplification leaves. `bound` is what issue 20 wants. A layer is slow if it takes more than two
cycles per MAC of its own and a hundredth of the inference or more; --layers prints all of them, without it the slow
ones are. Weights are `fast`, everything else as `pipeline run` has it. Exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from stages.graph.graph import Graph
from stages.graph.memory.resources import op_macs
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.float_edges import strip_float_edges
from stages.graph.tflite.reader import read_tflite
from tests.benchmarks.compiled_networks import Build, Network, build
from tests.benchmarks.subjects.benchmark_networks import (
    anomaly_detector,
    dscnn,
    fomo,
    half_dead_mobilenet_v1,
    mobilenet_v1,
    mobilenet_v2,
    pruned_dscnn,
    resnet_8,
    tiny_conv,
)

BOARD = "nucleo_f767zi"  # zero-wait cycles are the same for every board with this core
MOST_OF_A_LAYER = 2.0
SMALL_SHARE = 0.01
NETWORKS: dict[str, tuple[Callable[[], Graph], float]] = {
    "keywords (DS-CNN 64)": (dscnn, 0.66),
    "ResNet-8": (resnet_8, 0.56),
    "half-dead MobileNet-v1 0.25": (half_dead_mobilenet_v1, 0.45),
    "MobileNet-v1 0.25": (mobilenet_v1, 0.70),
    "MobileNet-v2 0.35": (mobilenet_v2, 0.80),
    "FOMO-like": (fomo, 0.95),
    "anomaly detector": (anomaly_detector, 0.75),
    "micro_speech-like": (tiny_conv, 0.80),
    "kws_dscnn_s, pruned": (pruned_dscnn, 0.64),
}
FILES = {"kws_ref_model": 0.66, "pretrainedResnet_quant": 0.56}


@dataclass(frozen=True)
class Row:
    """A line of the table and of the CSV file."""

    network: str
    macs: int
    macs_executed: int
    instructions: int
    cycles_zero_wait: int
    cycles_per_mac: float
    bound: float
    slow_layers: int
    flash_bytes: int
    ram_bytes: int


@dataclass(frozen=True)
class Layer:
    """An op as it runs, several where they are fused."""

    index: int
    kind: str
    kernel: str
    shape: str
    macs: int
    instructions: int
    cycles: int
    share: float

    @property
    def is_slow(self) -> bool:
        return self.share >= SMALL_SHARE and self.cycles > MOST_OF_A_LAYER * self.macs

    def __str__(self) -> str:
        ratio = f"{self.cycles / self.macs:6.3f}" if self.macs else f"{'-':>6}"
        mark = "  slow" if self.is_slow else ""
        return (
            f"    {self.index:3} {self.kind:24.24} {self.kernel:40.40} {self.shape:>10} {self.macs:>9,} "
            f"{self.instructions:>9,} {self.cycles:>9,} {ratio} {self.share:6.1%}{mark}"
        )


def layers(graph: Graph, built: Build) -> Iterator[Layer]:
    simplified = simplify(graph)
    total = sum(op.cycles_zero_wait for op in built.profile)
    for kernel, seen in zip(built.footprint["ops"], built.profile, strict=True):
        ops = [simplified.ops[number] for number in kernel["ops"]]
        shape = "x".join(map(str, simplified.tensors[ops[-1].outputs[0]].shape[1:]))
        yield Layer(
            seen.index,
            *(kernel["kind"], kernel["kernel"], shape, sum(op_macs(simplified, op) for op in ops)),
            *(seen.instructions, seen.cycles_zero_wait, seen.cycles_zero_wait / total),
        )


def measured(name: str, graph: Graph, bound: float) -> tuple[Row, list[Layer]]:
    built = build(Network(name, graph, bound, None), "fast", BOARD)
    found = list(layers(graph, built))
    macs = sum(op_macs(graph, op) for op in graph.ops)
    cycles = sum(layer.cycles for layer in found)
    return Row(
        network=name,
        macs=macs,
        macs_executed=sum(layer.macs for layer in found),
        instructions=sum(layer.instructions for layer in found),
        cycles_zero_wait=cycles,
        cycles_per_mac=cycles / macs,
        bound=bound,
        slow_layers=sum(layer.is_slow for layer in found),
        flash_bytes=built.footprint["flash_bytes"],
        ram_bytes=built.footprint["ram_bytes"],
    ), found


def networks(models: Path | None) -> Iterator[tuple[str, Graph, float]]:
    for name, (make, bound) in NETWORKS.items():
        yield name, make(), bound
    for name, bound in FILES.items():
        if models is not None and (models / f"{name}.tflite").exists():
            yield name, strip_float_edges(read_tflite(models / f"{name}.tflite")).graph, bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--only", help="networks whose name contains this")
    parser.add_argument("--layers", action="store_true", help="a line for every operator")
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows: list[Row] = []
    title = f"{'network':28} {'MACs':>10} {'executed':>10} {'instr.':>10} {'cycles':>10} {'c/MAC':>6} {'bound':>5} slow"
    sys.stdout.write(f"{title} {'flash B':>8} {'RAM B':>7}\n")
    for name, graph, bound in networks(given.models):
        if given.only and given.only not in name:
            continue
        row, found = measured(name, graph, bound)
        rows.append(row)
        sys.stdout.write(
            f"{row.network:28} {row.macs:>10,} {row.macs_executed:>10,} {row.instructions:>10,} "
            f"{row.cycles_zero_wait:>10,} {row.cycles_per_mac:6.3f} {row.bound:5.2f} {row.slow_layers:4} "
            f"{row.flash_bytes:>8,} {row.ram_bytes:>7,}\n"
        )
        sys.stdout.writelines(f"{layer}\n" for layer in found if given.layers or layer.is_slow)
        sys.stdout.flush()
    if given.csv:
        with given.csv.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [field.name for field in fields(Row)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
    return 1 if any(row.cycles_per_mac > row.bound or row.slow_layers for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
