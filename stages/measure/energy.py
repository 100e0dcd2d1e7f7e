"""Energy of an inference: by the instrument that bench.yaml ties to the board, or simulated beside a twin.

On a board the instrument is armed, the device runs, and the edges of its timestamp pin cut the trace. On a twin the
same code reads a simulated instrument (SCPI over TCP, through PyVISA) whose trace follows what the twin executes.
Measured and simulated energies never meet in one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from boards import Board
from hil.bench.bench_file import load_bench, open_instrument
from hil.bench.locks import instrument_lock
from hil.instruments.energy_run import EnergySeen, around_windows, plan_windows, record_windows
from hil.instruments.instrument import Instrument
from hil.instruments.simulated.twin_supply import IDLE_SHARE_ASSUMED, TwinPower, twin_meter
from hil.link.device_link import DeviceLink
from hil.virtual.power_model import mean_power_w
from hil.virtual.profiler import OpProfile
from pipeline.errors import StageError
from stages.measure.seen import Seen
from stages.measure.session import OpenLink

_REPLY_S = 10.0  # for what the device says around a window, at 9600 baud
Wanted = Literal["auto", "required", "off"]


@dataclass(frozen=True)
class EnergyResult:
    """What is known of the energy; `reason` says why there is none."""

    source: Literal["measured", "simulated", ""]
    seen: EnergySeen | None
    reason: str = ""
    point: str = ""  # where the current was, or is modelled to be, measured: board, mcu or core


def measure_energy(
    device: OpenLink,
    board: Board,
    seen: Seen,
    profile: Sequence[OpProfile] | None,
    bench: Path,
    wanted: Wanted,
    lock_wait_s: float = 0.0,
) -> EnergyResult:
    """As many windows as there were timed inferences."""
    if wanted == "off":
        return EnergyResult("", None, "measure.energy is off")
    if device.source == "virtual":
        found = _on_twin(device.link, board, seen, profile)
    else:
        found = _on_board(device, seen, bench, lock_wait_s)
    if found.seen is None and wanted == "required":
        raise StageError(f"{device.where}: no energy, though measure.energy is required: {found.reason}")
    return found


def _on_twin(link: DeviceLink, board: Board, seen: Seen, profile: Sequence[OpProfile] | None) -> EnergyResult:
    if profile is None:
        return EnergyResult("", None, "cycles are not modelled, so there is no timeline to simulate")
    per_instruction = tuple(
        op.cycles_modelled / max(1, ticks) for op, ticks in zip(profile, seen.op_ticks, strict=True)
    )
    latency_s = sum(op.cycles_modelled for op in profile) / board.clock_hz
    rates = board.calibration and board.calibration.power
    op_w = tuple(mean_power_w([op], rates, board.power_active_w) for op in profile)
    active_w = mean_power_w(profile, rates, board.power_active_w)
    slower_idle_w = None if board.clock_hz == board.clocks[0].hz else board.power_idle_w
    power = TwinPower(board.clock_hz, active_w, per_instruction, op_w, slower_idle_w)
    with twin_meter(power) as (meter, supply):
        plan = plan_windows(meter, latency_s, len(seen.samples))

        def fire(windows: int) -> None:
            # The twin's counts do not vary: one inference stands for all those of the capture.
            supply.executed([layer.ticks for layer in link.layers()], plan.inferences, windows)

        return EnergyResult("simulated", record_windows(meter, plan, fire), point=board.power_point)


def _on_board(device: OpenLink, seen: Seen, bench: Path, lock_wait_s: float) -> EnergyResult:
    wired = load_bench(bench) if bench.exists() else None
    wiring = None if wired is None else wired.wiring(device.probe_serial)
    if wired is None or wiring is None:
        return EnergyResult("", None, f"{bench.name} ties no instrument to probe {device.probe_serial}")
    if device.link.tells_time():
        return EnergyResult(
            "",
            None,
            "the image is built for performance: it does not pulse the timestamp pin; set firmware.mode=energy",
        )
    purpose = f"energy of {device.where}"
    with (
        instrument_lock(wiring.address, timeout_s=lock_wait_s, purpose=purpose),
        open_instrument(wired, device.probe_serial) as meter,
    ):
        latency_s = sum(seen.op_ticks) / seen.clock_hz
        recorded = record_on_board(device.link, meter, latency_s, len(seen.samples))
        return EnergyResult("measured", recorded, point=wiring.point)


def record_on_board(link: DeviceLink, meter: Instrument, latency_s: float, windows: int) -> EnergySeen:
    """The windows of a device that pulses its pin; `latency_s` of an inference, roughly."""
    plan = plan_windows(meter, latency_s, windows)
    limit_s = _REPLY_S + 4 * plan.window_s

    def fire(windows: int) -> None:
        for _ in range(windows):
            link.infer(plan.inferences, 0, limit_s)

    return record_windows(meter, plan, fire)


def energy_record(result: EnergyResult) -> dict[str, Any]:
    """What device.json says of it, in mJ and mW; None for what does not exist."""
    if result.seen is None:
        return {"source": None, "reason": result.reason}
    report, seen = result.seen.report, result.seen
    parts, idle = report.uncertainty, report.idle
    return {
        "source": result.source,
        "reason": "" if result.source == "measured" else f"idle power is assumed: {IDLE_SHARE_ASSUMED:g} of active",
        "measurement_point": result.point,
        "instrument": seen.instrument,
        "n": report.n,
        "inferences_per_window": seen.inferences,
        "captures_repeated": seen.retries,
        "sample_interval_us": seen.windows[0][0].dt_s * 1e6,
        "energy_mj": report.energy_j * 1e3,
        "above_idle_mj": None if report.above_idle_j is None else report.above_idle_j * 1e3,
        "window_ms": report.duration_s * 1e3,
        "idle_mw": None if idle is None else idle.mean_w * 1e3,
        "idle_mw_2sigma": None if idle is None else idle.two_sigma_w * 1e3,
        "uncertainty_mj": report.two_sigma_j * 1e3,
        "uncertainty_spread_mj": None if parts.spread_j is None else parts.spread_j * 1e3,
        "uncertainty_noise_mj": parts.noise_j * 1e3,
        "uncertainty_sampling_mj": parts.sampling_j * 1e3,
        "uncertainty_time_base_mj": parts.time_base_j * 1e3,
        "uncertainty_range_mj": parts.range_j * 1e3,
    }


def window_energies_mj(result: EnergyResult, source: str, count: int) -> list[float | None]:
    """Per window, of this source; None throughout where it is the other one, or none."""
    if result.seen is None or result.source != source:
        return [None] * count
    return [energy * 1e3 for energy in result.seen.report.energies_j]


def write_power(path: Path, result: EnergyResult) -> Path:
    """power.npz: the traces around their windows; empty where there is no energy."""
    arrays = {} if result.seen is None else around_windows(result.seen)
    np.savez_compressed(path, source=np.array(result.source), **arrays)
    return path
