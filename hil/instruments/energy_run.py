"""Energy of inferences: windows between two edges of the timestamp pin, as many as wanted, in captures of some seconds.

    plan = plan_windows(meter, latency_s, windows=30)
    seen = record_windows(meter, plan, fire=run_windows)  # run_windows(k): k times plan.inferences between two edges

A window holds as many inferences as it needs to be long against the meter's samples. An instrument that sees no edge
but the one which triggers it gets one window a capture and is told its duration, from the device's own clock. A capture
that went wrong is repeated; what stays wrong is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from hil.instruments.energy import EnergyReport, Window, combined, edge_windows, measure
from hil.instruments.instrument import Capture, Instrument
from hil.instruments.trace import Trace
from pipeline.errors import InstrumentError

WINDOW_SAMPLES = 1000  # at least: an edge is then known to a thousandth of the window
CAPTURE_S = 5.0  # about: what the scope of an N6705 holds at its usual interval
LEAD_S = 0.1  # idle before the first command is sent
MARGIN_S = 0.5  # beside each window: for the command on its way, at 9600 baud, and for idle time after it
ATTEMPTS = 3
_KEPT_IDLE_S = 0.02  # around each window, in what is stored


@dataclass(frozen=True)
class WindowPlan:
    """How the windows are cut and captured."""

    windows: int
    inferences: int  # in one window
    latency_s: float  # of one inference, roughly
    most_in_capture: int

    @property
    def window_s(self) -> float:
        return self.inferences * self.latency_s

    def capture_s(self, windows: int) -> float:
        return LEAD_S + windows * (self.window_s + MARGIN_S)


@dataclass(frozen=True, eq=False)
class EnergySeen:
    """Energy of one inference, and the windows it comes from."""

    instrument: str
    inferences: int  # in one window
    report: EnergyReport
    windows: tuple[tuple[Trace, Window], ...]
    retries: int  # captures that had to be repeated


def plan_windows(meter: Instrument, latency_s: float, windows: int) -> WindowPlan:
    """How many inferences a window takes, and how many windows a capture."""
    known = meter.description
    if not known.sees_edges and not known.edge_trigger:
        raise InstrumentError(
            f"{known.name}: sees no edge of the timestamp pin; wire it, see edge_channel in bench.yaml"
        )
    inferences = max(1, ceil(WINDOW_SAMPLES * meter.interval_for(CAPTURE_S) / latency_s))
    most = int((CAPTURE_S - LEAD_S) / (inferences * latency_s + MARGIN_S)) if known.sees_edges else 1
    return WindowPlan(windows, inferences, latency_s, max(1, most))


def record_windows(meter: Instrument, plan: WindowPlan, fire: Callable[[int], object]) -> EnergySeen:
    """`fire` lets the device run the inferences of so many windows, each between two edges."""
    reports: list[EnergyReport] = []
    found: list[tuple[Trace, Window]] = []
    retries = 0
    while len(found) < plan.windows:
        wanted = min(plan.most_in_capture, plan.windows - len(found))
        for attempt in range(1, ATTEMPTS + 1):
            try:
                trace, windows = _captured(meter, plan, wanted, fire)
                break
            except InstrumentError:
                if attempt == ATTEMPTS:
                    raise
                retries += 1
        reports.append(measure(trace, windows, runs_per_window=plan.inferences))
        found += [(trace, window) for window in windows]
    return EnergySeen(meter.description.name, plan.inferences, combined(reports), tuple(found), retries)


def _captured(
    meter: Instrument, plan: WindowPlan, windows: int, fire: Callable[[int], object]
) -> tuple[Trace, tuple[Window, ...]]:
    duration_s = plan.capture_s(windows)
    interval_s = meter.interval_for(duration_s)
    if meter.description.sees_edges:
        meter.arm(Capture(duration_s, interval_s))
        meter.trigger()
        fire(windows)
        trace = meter.read()
        return trace, edge_windows(trace, windows)
    meter.arm(Capture(duration_s, interval_s, "edge", pre_trigger_s=LEAD_S / 2))
    fire(windows)
    trace = meter.read()
    return trace, edge_windows(trace, duration_s=plan.window_s)


def around_windows(seen: EnergySeen) -> dict[str, np.ndarray]:
    """The traces around their windows, for the record: power by window and sample, with the time base."""
    starts = [max(0, int((window.start_s - _KEPT_IDLE_S - trace.t0_s) / trace.dt_s)) for trace, window in seen.windows]
    lengths = [
        min(ceil((window.duration_s + 2 * _KEPT_IDLE_S) / trace.dt_s), len(trace.power_w) - start)
        for (trace, window), start in zip(seen.windows, starts, strict=True)
    ]
    kept = [trace.power_w[start : start + min(lengths)] for (trace, _), start in zip(seen.windows, starts, strict=True)]
    return {
        "power_w": np.stack(kept).astype(np.float32),
        "dt_s": np.array([trace.dt_s for trace, _ in seen.windows]),
        "t0_s": np.array([trace.t0_s + at * trace.dt_s for (trace, _), at in zip(seen.windows, starts, strict=True)]),
        "edges_s": np.array([[window.start_s, window.end_s] for _, window in seen.windows]),
    }
