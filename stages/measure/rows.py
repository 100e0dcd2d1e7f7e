"""What was seen, as rows and records: samples.csv, layers.csv and device.json. A value that does not exist is empty."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from boards import Board
from hil.virtual.profiler import OpProfile
from pipeline.stage import Target
from stages.graph.graph import Graph, Op
from stages.graph.resources import resources
from stages.measure.session import Seen

SAMPLE_COLUMNS = (
    *("experiment", "board", "source", "clock_hz", "runtime", "n"),
    *("run", "instructions", "cycles", "latency_ms"),
)
LAYER_COLUMNS = (
    *("index", "op", "name", "kernel", "macs", "instructions"),
    *("cycles_modelled", "cycles_zero_wait", "cycles", "arena_live_bytes"),
)
RUNTIME = "aot"  # the network compiled ahead of time to C


def write_samples(path: Path, experiment: str, target: Target, seen: Seen) -> Path:
    """One row per timed inference."""
    common = [experiment, target.board, target.source, seen.clock_hz, RUNTIME, len(seen.samples)]
    rows = [
        [*common, run, sample.instructions, sample.cycles, sample.latency_ms] for run, sample in enumerate(seen.samples)
    ]
    return _write(path, SAMPLE_COLUMNS, rows)


def write_layers(
    path: Path, graph: Graph, kernels: Sequence[Mapping[str, Any]], seen: Seen, profile: Sequence[OpProfile] | None
) -> Path:
    """One row per op, in the order of execution; `kernels` is what the firmware step chose for each."""
    rows = []
    for index, (op, chosen, ticks) in enumerate(zip(graph.ops, kernels, seen.op_ticks, strict=True)):
        rows.append(
            [
                *(index, op.kind, op.name, chosen["kernel"], op_macs(graph, op)),
                ticks if seen.counts_instructions else None,
                None if profile is None else profile[index].cycles_modelled,
                None if profile is None else profile[index].cycles_zero_wait,
                None if seen.counts_instructions else ticks,
                chosen["arena_live_bytes"],
            ]
        )
    return _write(path, LAYER_COLUMNS, rows)


def device_record(target: Target, board: Board, seen: Seen, profile: Sequence[OpProfile] | None) -> dict[str, Any]:
    """The device as a whole; None for what this source cannot tell."""
    cycles = None if profile is None else sum(op.cycles_modelled for op in profile)
    return {
        "board": target.board,
        "source": target.source,
        "clock_hz": seen.clock_hz,
        "build_id": seen.build_id,
        "boot_lines": list(seen.boot_lines),
        "stack_high_water_bytes": seen.memory.stack_high_water_bytes,
        "stack_bytes": seen.memory.stack_bytes,
        "arena_bytes": seen.memory.arena_bytes,
        "golden_outputs_equal": len(seen.outputs),
        "instructions": sum(seen.op_ticks) if seen.counts_instructions else None,
        "cycles": None if seen.counts_instructions else sum(seen.op_ticks),
        "cycles_modelled": cycles,
        "cycles_zero_wait": None if profile is None else sum(op.cycles_zero_wait for op in profile),
        "latency_ms_modelled": None if cycles is None else cycles / board.clock_hz * 1e3,
        "power_w_modelled": board.power_active_w,
        "qemu_version": seen.qemu_version,
    }


def op_macs(graph: Graph, op: Op) -> int:
    """Multiply-accumulates of one op: those of the graph that has only it."""
    alone = Graph(graph.tensors, (op,), tuple(graph.activations_of(op)), op.outputs)
    return resources(alone).macs


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path
