"""Predicted against built: cycles, flash and RAM of networks with random widths, before and after they were compiled.

    python -m tests.benchmarks.firmware.cost_prediction [--vectors 300] [--only NAME] [--seed 0] [--csv FILE]

For each vector of widths (0.3 to 1 of the channels of each group; backbones in turn, `fast` and `small` in turn, boards
in turn) the network's cost is predicted, its firmware is built and its twin profiled. Drawn weights; those that do not
fit their board are left out. `zero`, `cycles`: errors of the exact prediction, without and with line fills; `layer`:
the worst layer of a hundredth of the inference or more; `quick`: latency by the tables alone. Issue 21 wants cycles
within 1 % (median 0.3 %), layers 5 %, flash 0.5 %, arena and RAM equal.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import cycle
from pathlib import Path

import numpy as np

from pipeline.errors import StageError
from stages.firmware.cost.network import NetworkCost
from stages.firmware.cost.settings import FirmwareSettings
from stages.firmware.cost.stand_in import ordered, stand_in
from stages.nets.channels import find_channels
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from tests.benchmarks.compiled_networks import Network
from tests.benchmarks.compiled_networks import build as firmware

BACKBONES = {
    "dscnn": NetworkConfig(width=120),
    "res8": NetworkConfig(name="res8"),
    "resnet8": NetworkConfig(name="resnet8", width=24),
    "mobilenet_v1": NetworkConfig(name="mobilenet_v1"),
    "mobilenet_v2": NetworkConfig(name="mobilenet_v2", width_multiplier=0.35, input_shape=(50, 50, 3)),
    "dscnn_mlperf": NetworkConfig(name="dscnn_mlperf"),
    "res15": NetworkConfig(name="res15", width=24),
    "efficientnet_b0": NetworkConfig(name="efficientnet_b0", width_multiplier=0.25, input_shape=(50, 50, 3)),
    "vgg16": NetworkConfig(name="vgg16", width_multiplier=0.25),
    "resnet18": NetworkConfig(name="resnet18", width=16),
    "mcunet_s": NetworkConfig(name="mcunet_s", width_multiplier=0.35, input_shape=(64, 64, 3), classes=10),
    "etinynet": NetworkConfig(name="etinynet", width_multiplier=0.35, input_shape=(64, 64, 3), classes=10),
}
BOARDS = ("nucleo_f767zi", "nucleo_h743zi2", "disco_f746ng")


@dataclass(frozen=True)
class Row:
    """One network that was predicted and built; errors are shares."""

    backbone: str
    weights: str
    board: str
    widths: str
    cycles: int
    error_zero_wait: float
    error_cycles: float
    error_layer: float
    error_quick: float
    error_flash: float
    arena_equal: bool
    ram_equal: bool


def rows(vectors: int, only: str | None, seed: int) -> Iterator[Row]:
    draw = np.random.default_rng(seed)
    names = cycle(name for name in BACKBONES if only in (None, name))
    turns = zip(range(vectors), cycle(("fast", "small", "small", "fast")), cycle(BOARDS), names, strict=False)
    costs: dict[tuple[str, str, str], NetworkCost] = {}
    for _, weights, board, name in turns:
        config = BACKBONES[name]
        channels = find_channels(build(config), config.input_shape)
        widths = tuple(
            max(4, int(n * share)) for n, share in zip(channels.widths, draw.uniform(0.3, 1, 99), strict=False)
        )
        key = name, weights, board
        if key not in costs:
            settings = FirmwareSettings(weights=weights)  # type: ignore[arg-type]
            costs[key] = NetworkCost(channels.graph, channels.widths, [board], settings)
            try:
                costs[key].anchor(tuple(max(4, int(0.6 * n)) for n in channels.widths))
                _ = costs[key].exact(tuple(max(4, int(0.6 * n)) for n in channels.widths))[board].flash_bytes
            except StageError as error:
                sys.stderr.write(f"{name} {weights} {board}: {error}\n")
        try:
            yield _compared(costs[key], channels.widths, widths, key)
        except StageError as error:
            sys.stderr.write(f"{name} {weights} {board}: left out, {error}\n")


def _compared(cost: NetworkCost, full: tuple[int, ...], widths: tuple[int, ...], key: tuple[str, str, str]) -> Row:
    name, weights, board = key
    predicted, quick = cost.exact(widths)[board], cost.quick(widths, ["latency_ms"])[board]
    graph = ordered(stand_in(cost._graph, widths, full))
    built = firmware(Network(name, graph, 1, None), weights, board)
    total = sum(op.cycles_modelled for op in built.profile)
    layers = [
        abs(layer.cycles / op.cycles_modelled - 1)
        for layer, op in zip(predicted.layers, built.profile, strict=True)
        if op.cycles_modelled > 0.01 * total
    ]
    return Row(
        *key,
        widths=" ".join(map(str, widths)),
        cycles=total,
        error_zero_wait=predicted.cycles_zero_wait / sum(op.cycles_zero_wait for op in built.profile) - 1,
        error_cycles=predicted.cycles / total - 1,
        error_layer=max(layers),
        error_quick=quick["latency_ms"] / predicted.latency_ms - 1,
        error_flash=predicted.flash_bytes / built.footprint["flash_bytes"] - 1,
        arena_equal=predicted.arena_bytes == built.footprint["arena_bytes"],
        ram_equal=predicted.ram_bytes == built.footprint["ram_bytes"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=300)
    parser.add_argument("--only", choices=BACKBONES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    found: list[Row] = []
    for row in rows(given.vectors, given.only, given.seed):
        found.append(row)
        errors = " ".join(
            f"{label} {100 * getattr(row, f'error_{key}'):+.3f} %"
            for label, key in (("zero", "zero_wait"), ("cycles", "cycles"), ("layer", "layer"), ("quick", "quick"))
        )
        same = f"flash {100 * row.error_flash:+.3f} % arena {row.arena_equal} ram {row.ram_equal}"
        sys.stdout.write(f"{row.backbone:16} {row.weights:5} {row.board:15} {row.cycles:>11,} {errors} {same}\n")
        sys.stdout.flush()
        if given.csv:
            with given.csv.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, [field.name for field in fields(Row)])
                writer.writeheader()
                writer.writerows(asdict(each) for each in found)
    for key in ("zero_wait", "cycles", "layer", "quick", "flash"):
        sizes = np.abs([getattr(row, f"error_{key}") for row in found])
        sys.stdout.write(f"{key:10} median {np.median(sizes):.3%} worst {sizes.max():.3%} of {len(found)}\n")
    equal = [sum(getattr(row, name) for row in found) for name in ("arena_equal", "ram_equal")]
    sys.stdout.write(f"arena equal {equal[0]} of {len(found)}, RAM equal {equal[1]} of {len(found)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
