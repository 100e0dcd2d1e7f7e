"""What was seen, as rows and records: samples.csv, layers.csv and device.json. A value that does not exist is empty."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boards import Board
from hil.virtual.model_error import AREAS, NETWORK, area_of, model_error
from hil.virtual.power_model import mean_power_w
from hil.virtual.profiler import OpProfile
from pipeline.stage import Target
from pipeline.text import csv_cell
from stages.graph.graph import Graph
from stages.graph.memory.resources import op_macs, op_size_bytes
from stages.measure.energy import EnergyResult, energy_record, window_energies_mj
from stages.measure.seen import AudioSeen, FrontEndSeen, Seen, StreamSeen

SAMPLE_COLUMNS = (
    *("experiment", "board", "source", "clock_hz", "runtime", "n"),
    *("run", "instructions", "cycles", "latency_ms", "energy_mj", "energy_mj_simulated", "measurement_point"),
)
LAYER_COLUMNS = (
    *("index", "op", "name", "kernel", "macs", "instructions"),
    *("cycles_modelled", "cycles_zero_wait", "cycles", "arena_live_bytes"),
    *("latency_ms_modelled", "latency_ms", "weight_bytes"),
    *("area", "latency_ms_modelled_low", "latency_ms_modelled_high"),
)
_CYCLES = ("cycles_modelled", "cycles")
POWER_UNCERTAINTY = 0.25  # of modelled energy, where power was published for a board of the kind, not measured
RUNTIME = "aot"  # the network compiled ahead of time to C


@dataclass(frozen=True)
class FrontEndFigures:
    """What was seen of a front end, and the model's view of it on the twin."""

    settings: Mapping[str, Any]  # as in footprint.json
    seen: FrontEndSeen
    stream: StreamSeen | None
    profile: Sequence[OpProfile] | None  # of one


def audio_figures(
    settings: Mapping[str, Any] | None, audio: AudioSeen | None, profile: Sequence[OpProfile] | None
) -> tuple[FrontEndFigures | None, Sequence[OpProfile] | None]:
    """The front end, and what is left of the profile for the ops."""
    if settings is None or audio is None:
        return None, profile
    own, ops = (None, None) if profile is None else (profile[:1], profile[1:])
    return FrontEndFigures(settings, audio.front_end, audio.stream, own), ops


def write_samples(path: Path, experiment: str, target: Target, seen: Seen, energy: EnergyResult) -> Path:
    """One row per timed inference; its energy is that of the window with the same number."""
    n = len(seen.samples)
    common = {"experiment": experiment, **asdict(target), "clock_hz": seen.clock_hz, "runtime": RUNTIME, "n": n}
    measured, simulated = (window_energies_mj(energy, source, n) for source in ("measured", "simulated"))
    rows = [
        {**common, "run": run, **asdict(sample), "energy_mj": measured[run], "energy_mj_simulated": simulated[run]}
        | {"measurement_point": energy.point or None}
        for run, sample in enumerate(seen.samples)
    ]
    return _write(path, SAMPLE_COLUMNS, rows)


def layer_rows(
    graph: Graph,
    kernels: Sequence[Mapping[str, Any]],
    seen: Seen,
    profile: Sequence[OpProfile] | None,
    front_end: FrontEndFigures | None,
    board: Board,
) -> list[dict[str, Any]]:
    """One row per op, in the order of execution; `kernels` is what the firmware step chose for each.

    A fused chain is one row, with the MACs of all of them. A front end comes first, with index -1; it has
    neither MACs nor a part of the arena.
    """
    rows: list[dict[str, Any]] = []
    if front_end is not None:
        counts = _timed(_counts(front_end.seen.ticks, seen, front_end.profile), seen)
        op = front_end.settings["features"].upper()
        doubt = _doubt(op, counts, board)
        rows.append({"index": -1, "op": op, "name": "front_end", "kernel": "mfcc_clip", **counts, **doubt})
    for index, (chosen, ticks) in enumerate(zip(kernels, seen.op_ticks, strict=True)):
        counts = _timed(_counts(ticks, seen, None if profile is None else profile[index : index + 1]), seen)
        macs = {number: op_macs(graph, graph.ops[number]) for number in chosen["ops"]}
        most = graph.ops[max(macs, key=lambda number: macs[number])].kind  # that of a chain which computes most
        rows.append(
            {
                **{"index": index, "op": chosen["kind"], "name": chosen["name"], "kernel": chosen["kernel"]},
                "macs": sum(macs.values()),
                **counts,
                **_doubt(most, counts, board),
                "arena_live_bytes": chosen["arena_live_bytes"],
                "weight_bytes": sum(op_size_bytes(graph, graph.ops[number]) for number in chosen["ops"]),
            }
        )
    return rows


def write_layers(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    return _write(path, LAYER_COLUMNS, rows)


def _line_share(counts: Mapping[str, Any]) -> float:
    """Of the modelled time, what cache lines take."""
    return 1 - counts["cycles_zero_wait"] / counts["cycles_modelled"] if counts["cycles_modelled"] else 0.0


def _doubt(kind: str, counts: Mapping[str, Any], board: Board) -> dict[str, Any]:
    """What is known of an op's modelled time: its area, and what a board is likely to take."""
    if counts["cycles_modelled"] is None:
        return {}
    area = area_of(kind, _line_share(counts))
    found = model_error(board.name, board.cache, area, _line_share(counts), board.calibration)
    low, high = found.span_ms(counts["latency_ms_modelled"])
    return {"area": area, "latency_ms_modelled_low": low, "latency_ms_modelled_high": high}


def _counts(ticks: int, seen: Seen, profile: Sequence[OpProfile] | None) -> dict[str, int | None]:
    """What the device counted, on the twin instructions and on a board cycles, and what the twin's model says."""
    return {
        "instructions": ticks if seen.counts_instructions else None,
        "cycles": None if seen.counts_instructions else ticks,
        "cycles_modelled": None if profile is None else sum(op.cycles_modelled for op in profile),
        "cycles_zero_wait": None if profile is None else sum(op.cycles_zero_wait for op in profile),
    }


def _timed(counts: Mapping[str, int | None], seen: Seen) -> dict[str, float | None]:
    """The same with milliseconds at the device's clock."""
    modelled, measured = (None if count is None else count / seen.clock_hz * 1e3 for count in map(counts.get, _CYCLES))
    return {**counts, "latency_ms_modelled": modelled, "latency_ms": measured}


def _with_latency(counts: Mapping[str, int | None], board: Board) -> dict[str, Any]:
    cycles = counts["cycles_modelled"]
    return {**counts, "latency_ms_modelled": None if cycles is None else cycles / board.clock_hz * 1e3}


def _front_end_record(figures: FrontEndFigures, board: Board, device: Seen) -> dict[str, Any]:
    """The front end on its own; the network's figures do not contain it."""
    seen = figures.seen
    return {
        **_with_latency(_counts(seen.ticks, device, figures.profile), board),
        "kind": figures.settings["features"],
        "features": seen.values,
        "features_equal": seen.equal,
        "features_within_one": seen.within_one,
    }


def _stream_record(
    figures: FrontEndFigures, stream: StreamSeen, network_cycles: int | None, board: Board
) -> dict[str, Any]:
    """With the share of its time that the core would be busy at the pace of the sound; above 1 it cannot keep up."""
    settings, busy = figures.settings, None
    if network_cycles is not None and figures.profile is not None:
        hops = settings["stream"]["run_hops"]
        cycles = network_cycles + hops * figures.profile[0].cycles_modelled / settings["frames"]
        busy = cycles / (hops * settings["hop_samples"] / settings["sample_rate_hz"] * board.clock_hz)
    return {**asdict(stream), "busy_share_modelled": busy}


def device_record(
    target: Target,
    board: Board,
    seen: Seen,
    profile: Sequence[OpProfile] | None,
    front_end: FrontEndFigures | None,
    energy: EnergyResult,
    macs: tuple[int, int],
    layers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The device as a whole; counts and cycles are the network's. None for what this source cannot tell.

    `macs`: of the network as it was given, and of what is left of it on the device.
    """
    counts = _counts(sum(seen.op_ticks), seen, profile)
    cycles = counts["cycles_modelled"]
    power = board.calibration and board.calibration.power
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
        **_with_latency(counts, board),
        "macs": macs[0],
        "macs_executed": macs[1],
        "model_error": None if cycles is None else _model_error(board, counts, layers),
        "flash_fill_cycles": board.cache.flash_fill_cycles,  # of the model; with two banks others than with one
        "calibrated": board.calibration and {"device": board.calibration.device, "when": board.calibration.when},
        "power_w_modelled": mean_power_w(profile or (), power, board.power_active_w),
        "energy_uncertainty_share": POWER_UNCERTAINTY if power is None else power.networks.most,
        "measurement_point_modelled": board.power_point if power is None else power.point,
        "burst": seen.burst and {"n": len(seen.burst.laps), "ticks": seen.burst.ticks, "laps": list(seen.burst.laps)},
        "energy": energy_record(energy),
        "qemu_version": seen.qemu_version,
        "front_end": front_end and _front_end_record(front_end, board, seen),
        "stream": front_end and front_end.stream and _stream_record(front_end, front_end.stream, cycles, board),
    }


def _model_error(board: Board, counts: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is known of how far the modelled time is off: of the network, and of each area that it has."""
    found = model_error(board.name, board.cache, NETWORK, _line_share(counts), board.calibration)
    areas = []
    for area in AREAS:
        rows = [row for row in layers if row.get("area") == area and row["index"] >= 0]
        if not rows:
            continue
        sums = {key: sum(row[key] for row in rows) for key in ("cycles_modelled", "cycles_zero_wait")}
        one = model_error(board.name, board.cache, area, _line_share(sums), board.calibration)
        areas.append({**asdict(one), "share": sums["cycles_modelled"] / counts["cycles_modelled"]})
    return {**asdict(found), "ratio_text": found.ratio_text, "text": found.text, "areas": areas}


def _write(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: csv_cell(cell) if isinstance(cell, str) else cell for key, cell in row.items()})
    return path
