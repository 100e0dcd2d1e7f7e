"""Energy of inferences: one capture for each window between two edges of the timestamp pin, as many windows as wanted.

    plan = plan_windows(meter, latency_s, windows=30)
    seen = record_windows(meter, plan, fire=lambda: link.infer(plan.inferences, 0))

A window holds as many inferences as it needs to be long against the meter's samples. An instrument that sees no edge
but the one which triggers it is told the window's duration instead, from the device's own clock. A capture that went
wrong is repeated; what stays wrong is raised.
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
LEAD_S = 0.1  # idle before the command is sent
MARGIN_S = 0.5  # for the command on its way, at 9600 baud, and for idle time after the window
ATTEMPTS = 3
_KEPT_IDLE_S = 0.02  # around each window, in what is stored


@dataclass(frozen=True)
class WindowPlan:
    """What one capture holds."""

    windows: int
    inferences: int  # in one window
    latency_s: float  # of one inference, roughly
    capture: Capture

    @property
    def window_s(self) -> float:
        return self.inferences * self.latency_s


@dataclass(frozen=True, eq=False)
class EnergySeen:
    """Energy of one inference, and the traces it comes from."""

    instrument: str
    inferences: int  # in one window
    report: EnergyReport
    traces: tuple[Trace, ...]
    retries: int  # captures that had to be repeated


def plan_windows(meter: Instrument, latency_s: float, windows: int) -> WindowPlan:
    """How many inferences a window takes, and how it is captured."""
    known = meter.description
    if not known.sees_edges and not known.edge_trigger:
        raise InstrumentError(
            f"{known.name}: sees no edge of the timestamp pin; wire it, see edge_channel in bench.yaml"
        )
    interval_s = meter.interval_for(WINDOW_SAMPLES * known.min_interval_s + LEAD_S + MARGIN_S)
    inferences = max(1, ceil(WINDOW_SAMPLES * interval_s / latency_s))
    duration_s = inferences * latency_s + LEAD_S + MARGIN_S
    interval_s = meter.interval_for(duration_s)
    if known.sees_edges:
        capture = Capture(duration_s, interval_s)
    else:
        capture = Capture(duration_s, interval_s, "edge", pre_trigger_s=LEAD_S / 2)
    return WindowPlan(windows, inferences, latency_s, capture)


def record_windows(meter: Instrument, plan: WindowPlan, fire: Callable[[], object]) -> EnergySeen:
    """`fire` lets the device run one window's inferences, between two edges."""
    reports, traces, retries = [], [], 0
    for _ in range(plan.windows):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                trace, window = _one_window(meter, plan, fire)
                break
            except InstrumentError:
                if attempt == ATTEMPTS:
                    raise
                retries += 1
        reports.append(measure(trace, (window,), runs_per_window=plan.inferences))
        traces.append(trace)
    return EnergySeen(meter.description.name, plan.inferences, combined(reports), tuple(traces), retries)


def _one_window(meter: Instrument, plan: WindowPlan, fire: Callable[[], object]) -> tuple[Trace, Window]:
    meter.arm(plan.capture)
    if plan.capture.trigger == "software":
        meter.trigger()
    fire()
    trace = meter.read()
    if meter.description.sees_edges:
        return trace, edge_windows(trace, 1)[0]
    return trace, edge_windows(trace, duration_s=plan.window_s)[0]


def around_windows(seen: EnergySeen) -> dict[str, np.ndarray]:
    """The traces around their windows, for the record: power by window and sample, with the time base."""
    first = seen.traces[0]
    starts = [int((trace.edges_s[0] - _KEPT_IDLE_S - trace.t0_s) / trace.dt_s) for trace in seen.traces]
    window_s = max((trace.edges_s[-1] - trace.edges_s[0] for trace in seen.traces), default=0.0)
    wanted = ceil((window_s + 2 * _KEPT_IDLE_S) / first.dt_s)
    length = min(wanted, *(len(trace.power_w) - max(0, at) for trace, at in zip(seen.traces, starts, strict=True)))
    kept = [trace.power_w[max(0, at) :][:length] for trace, at in zip(seen.traces, starts, strict=True)]
    begins = [trace.t0_s + max(0, at) * trace.dt_s for trace, at in zip(seen.traces, starts, strict=True)]
    return {
        "power_w": np.stack(kept).astype(np.float32),
        "dt_s": np.array([trace.dt_s for trace in seen.traces]),
        "t0_s": np.array(begins),
        "edges_s": np.array([[trace.edges_s[0], trace.edges_s[-1]] for trace in seen.traces]),
    }
