"""Joules from a trace: power integrated between the edges of the timestamp pin, idle power apart, uncertainty stated.

Integration. Mean samples: the sum of the cells, the first and the last one by the part of them that lies inside. Point
samples: the trapezoidal rule, the power at an edge interpolated linearly between its neighbours.

Uncertainty, after the Guide to the Expression of Uncertainty in Measurement (JCGM 100:2008, 4.3 and 5.1). Limits of
error count as uniform distributions (u = limit / sqrt 3), components add in quadrature, and two standard uncertainties
are reported:
- spread: of n windows among each other, none for n = 1;
- noise: of the single samples, from the median of neighbouring differences (steps do not count), times sqrt N dt;
- sampling: a step of the power somewhere within the sample around an edge (uniform over dt: step dt / sqrt 12), and
  the limit of the edge's own time, times the power there;
- time base: the sample clock's error times the energy; range accuracy: gain error times energy, offset times duration.
The first three shrink with the number of windows, the last two do not. The spread holds noise and sampling already, so
that the larger of the two statements counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from hil.instruments.trace import FloatArray, Trace
from pipeline.errors import InstrumentError

_MEDIAN_TO_SIGMA = 1.4826  # of normally distributed values


@dataclass(frozen=True)
class Window:
    """From one edge to the next."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class IdlePower:
    """Mean power outside all windows."""

    mean_w: float
    two_sigma_w: float  # of the mean: noise and range accuracy
    duration_s: float


@dataclass(frozen=True)
class Uncertainty:
    """Two standard uncertainties each, of the mean energy of one run."""

    spread_j: float | None  # None: one window has no spread
    noise_j: float
    sampling_j: float
    time_base_j: float
    range_j: float

    @property
    def total_j(self) -> float:
        seen = max(self.spread_j or 0.0, sqrt(self.noise_j**2 + self.sampling_j**2))
        return sqrt(seen**2 + self.time_base_j**2 + self.range_j**2)


@dataclass(frozen=True)
class EnergyReport:
    """Energy of one run (of one inference, when `runs_per_window` said how many a window holds)."""

    n: int  # windows
    energy_j: float  # mean
    energies_j: tuple[float, ...]  # of each window, per run
    duration_s: float  # mean, per run
    uncertainty: Uncertainty
    idle: IdlePower | None  # None: the trace shows no idle time

    @property
    def two_sigma_j(self) -> float:
        return self.uncertainty.total_j

    @property
    def above_idle_j(self) -> float | None:
        """What the run took beyond what the board takes anyway."""
        return None if self.idle is None else self.energy_j - self.idle.mean_w * self.duration_s


def energy_until_j(trace: Trace, times_s: FloatArray) -> FloatArray:
    """Energy from the beginning of the trace up to each of the times, all of which it must cover."""
    outside = (times_s < trace.start_s - 1e-12) | (times_s > trace.end_s + 1e-12)
    if np.any(outside):
        raise InstrumentError(
            f"{trace.source}: an edge at {float(times_s[outside][0]):.6f} s lies outside the trace"
            f" ({trace.start_s:.6f} to {trace.end_s:.6f} s); capture for longer"
        )
    power_w, cells = trace.power_w, (times_s - trace.t0_s) / trace.dt_s
    last = len(power_w) - (1 if trace.kind == "mean" else 2)
    index = np.clip(np.floor(cells).astype(np.int64), 0, last)
    part = cells - index
    if trace.kind == "mean":
        whole = np.concatenate([[0.0], np.cumsum(power_w)])
        return np.asarray(trace.dt_s * (whole[index] + part * power_w[index]), dtype=np.float64)
    whole = np.concatenate([[0.0], np.cumsum((power_w[1:] + power_w[:-1]) / 2.0)])
    rise = power_w[index + 1] - power_w[index]
    return np.asarray(trace.dt_s * (whole[index] + part * (power_w[index] + part * rise / 2.0)), dtype=np.float64)


def window_energies_j(trace: Trace, windows: Sequence[Window]) -> FloatArray:
    """Energy of each window."""
    starts = energy_until_j(trace, np.array([window.start_s for window in windows], dtype=np.float64))
    ends = energy_until_j(trace, np.array([window.end_s for window in windows], dtype=np.float64))
    return np.asarray(ends - starts, dtype=np.float64)


def edge_windows(trace: Trace, expected: int | None = None, duration_s: float | None = None) -> tuple[Window, ...]:
    """Pair the edges: beginning, end, beginning, end ...

    An instrument that only sees the edge which triggers it needs `duration_s`, the device's own time between the two.
    """
    edges = trace.edges_s
    if duration_s is not None:
        if len(edges) != 1:
            raise InstrumentError(f"{trace.source}: {len(edges)} edges, needed 1 beside a duration")
        return (Window(edges[0], edges[0] + duration_s),)
    wanted = "a pair for each window" if expected is None else f"{2 * expected}"
    if not edges or len(edges) % 2 or (expected is not None and len(edges) != 2 * expected):
        raise InstrumentError(
            f"{trace.source}: {len(edges)} edges of the timestamp pin, needed {wanted}; is the pin wired, are its"
            " pulses longer than two samples, did the capture last long enough?"
        )
    return tuple(Window(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True))


def idle_power(trace: Trace, windows: Iterable[Window], guard_s: float) -> IdlePower | None:
    """Mean power of the time that is further than the guard from every window; None if that is under ten samples."""
    spans, free_s = [], trace.start_s
    for window in sorted(windows, key=lambda each: each.start_s):
        spans.append((free_s, window.start_s - guard_s))
        free_s = max(free_s, window.end_s + guard_s)
    spans = [span for span in [*spans, (free_s, trace.end_s)] if span[1] > span[0]]
    duration_s = sum(end - start for start, end in spans)
    if duration_s < 10 * trace.dt_s:
        return None
    bounds = energy_until_j(trace, np.array(spans, dtype=np.float64).ravel())
    mean_w = float(np.sum(bounds[1::2] - bounds[::2])) / duration_s
    noise_w = sample_noise_w(trace) / sqrt(duration_s / trace.dt_s)
    range_w = (trace.accuracy.gain * abs(mean_w) / sqrt(3), trace.accuracy.offset_w / sqrt(3))
    return IdlePower(mean_w, 2 * sqrt(noise_w**2 + range_w[0] ** 2 + range_w[1] ** 2), duration_s)


def sample_noise_w(trace: Trace) -> float:
    """Standard deviation of a single sample, blind to steps and slopes of the power."""
    differences = np.diff(trace.power_w)
    centred = np.abs(differences - np.median(differences))
    return float(_MEDIAN_TO_SIGMA * np.median(centred) / sqrt(2))


def measure(trace: Trace, windows: Sequence[Window], *, runs_per_window: int = 1) -> EnergyReport:
    """Energy of one run with its uncertainty, and the idle power around the windows."""
    if not windows or any(window.duration_s <= 0 for window in windows):
        raise InstrumentError(f"{trace.source}: {len(windows)} windows, needed at least one, each with a duration")
    energies_j = window_energies_j(trace, windows) / runs_per_window
    duration_s = sum(window.duration_s for window in windows) / len(windows) / runs_per_window
    return EnergyReport(
        n=len(windows),
        energy_j=float(np.mean(energies_j)),
        energies_j=tuple(float(energy) for energy in energies_j),
        duration_s=duration_s,
        uncertainty=_uncertainty(trace, windows, energies_j, duration_s, runs_per_window),
        idle=idle_power(trace, windows, guard_s=2 * trace.dt_s),
    )


def combined(reports: Sequence[EnergyReport]) -> EnergyReport:
    """Several captures as one report: what is random shrinks with the number of windows, what is systematic stays."""
    n = sum(report.n for report in reports)
    energies_j = np.array([energy for report in reports for energy in report.energies_j], dtype=np.float64)
    parts = [(report.n, report.uncertainty) for report in reports]
    idle = [report.idle for report in reports if report.idle is not None]
    return EnergyReport(
        n=n,
        energy_j=float(np.mean(energies_j)),
        energies_j=tuple(float(energy) for energy in energies_j),
        duration_s=sum(report.n * report.duration_s for report in reports) / n,
        uncertainty=Uncertainty(
            spread_j=2 * float(np.std(energies_j, ddof=1)) / sqrt(n) if n > 1 else None,
            noise_j=sqrt(sum((count * part.noise_j) ** 2 for count, part in parts)) / n,
            sampling_j=sqrt(sum((count * part.sampling_j) ** 2 for count, part in parts)) / n,
            time_base_j=sum(count * part.time_base_j for count, part in parts) / n,
            range_j=sum(count * part.range_j for count, part in parts) / n,
        ),
        idle=_combined_idle(idle) if idle else None,
    )


def _combined_idle(parts: Sequence[IdlePower]) -> IdlePower:
    """Weighted by duration; its uncertainty is mostly the range's, which more captures do not lessen."""
    duration_s = sum(part.duration_s for part in parts)
    mean_w = sum(part.mean_w * part.duration_s for part in parts) / duration_s
    return IdlePower(mean_w, max(part.two_sigma_w for part in parts), duration_s)


def _uncertainty(
    trace: Trace, windows: Sequence[Window], energies_j: FloatArray, duration_s: float, runs: int
) -> Uncertainty:
    n, mean_j = len(windows), abs(float(np.mean(energies_j)))
    noise_w = sample_noise_w(trace)
    noise = [noise_w * sqrt(window.duration_s * trace.dt_s) / runs for window in windows]
    edges = np.array([time_s for window in windows for time_s in (window.start_s, window.end_s)], dtype=np.float64)
    accuracy = trace.accuracy
    return Uncertainty(
        spread_j=2 * float(np.std(energies_j, ddof=1)) / sqrt(n) if n > 1 else None,
        noise_j=2 * sqrt(sum(value**2 for value in noise)) / n,
        sampling_j=2 * float(np.sqrt(np.sum(_edge_variances(trace, edges)))) / n / runs,
        time_base_j=2 * accuracy.time_base * mean_j / sqrt(3),
        range_j=2 * sqrt((accuracy.gain * mean_j) ** 2 + (accuracy.offset_w * duration_s) ** 2) / sqrt(3),
    )


def _edge_variances(trace: Trace, edges_s: FloatArray) -> FloatArray:
    """Variance of the energy on account of where exactly an edge lies, in joules squared."""
    last = len(trace.power_w) - 1
    index = np.clip(np.floor((edges_s - trace.t0_s) / trace.dt_s).astype(np.int64), 0, last)
    around = np.stack([trace.power_w[np.clip(index + step, 0, last)] for step in (-1, 0, 1, 2)])
    step_w = np.max(around, axis=0) - np.min(around, axis=0)
    height_w = np.max(np.abs(around), axis=0)
    return np.asarray((step_w * trace.dt_s) ** 2 / 12 + (height_w * trace.accuracy.edge_s) ** 2 / 3, dtype=np.float64)
