"""What a board draws over time: segments of constant or linearly changing power, and the edges of its timestamp pin.

The energy up to any moment is known in closed form, so that a simulated instrument can hand out exact cell means, and
a test can compare what was measured with what was drawn. Before the first segment and after the last one the power
stays what it was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hil.instruments.trace import FloatArray

Fault = Literal[
    "garbage",  # a reply or a data line that means nothing
    "lost",  # samples are missing
    "no_trigger",  # the trigger never comes
    "over_range",  # the current exceeds the range
    "overrun",  # the instrument's memory ran over
    "silence",  # no reply any more
    "torn",  # a reply ends in its middle
    "vanish",  # the connection closes
]


@dataclass(frozen=True)
class Segment:
    """Power over some time, changing linearly from its start to its end."""

    duration_s: float
    start_w: float
    end_w: float


@dataclass(frozen=True)
class Timeline:
    """Segments one after the other, from time zero on, and when the pin falls."""

    segments: tuple[Segment, ...]
    edges_s: tuple[float, ...] = ()

    @classmethod
    def steps(cls, steps: Iterable[tuple[float, float]], edges_s: Sequence[float] = ()) -> Timeline:
        """From (duration in s, power in W) pairs."""
        segments = tuple(Segment(duration_s, power_w, power_w) for duration_s, power_w in steps)
        return cls(segments, tuple(edges_s))

    @classmethod
    def of_runs(cls, run: Sequence[tuple[float, float]], *, runs: int, idle_s: float, idle_w: float) -> Timeline:
        """Idle, then `runs` times the steps of one run and idle again; the pin falls where a run begins and ends."""
        idle = Segment(idle_s, idle_w, idle_w)
        segments, edges_s, now_s = [idle], [], idle_s
        for _ in range(runs):
            segments += [Segment(duration_s, power_w, power_w) for duration_s, power_w in run]
            edges_s.append(now_s)
            now_s += sum(duration_s for duration_s, _ in run)
            edges_s.append(now_s)
            segments.append(idle)
            now_s += idle_s
        return cls(tuple(segments), tuple(edges_s))

    @property
    def duration_s(self) -> float:
        return sum(segment.duration_s for segment in self.segments)

    def energy_until_j(self, times_s: FloatArray) -> FloatArray:
        """Energy from time zero up to each time; negative before it."""
        starts, durations, powers, slopes = self._tables()
        energies = np.concatenate([[0.0], np.cumsum(durations * (powers + slopes * durations / 2.0))])
        index = np.clip(np.searchsorted(starts, times_s, side="right") - 1, 0, len(durations) - 1)
        inside = np.clip(times_s - starts[index], 0.0, durations[index])
        energy = energies[index] + inside * (powers[index] + slopes[index] * inside / 2.0)
        beyond = np.maximum(times_s - self.duration_s, 0.0) * self.segments[-1].end_w
        before = np.minimum(times_s, 0.0) * self.segments[0].start_w
        return np.asarray(energy + beyond + before, dtype=np.float64)

    def energy_j(self, start_s: float, end_s: float) -> float:
        """The exact energy between two moments."""
        start, end = self.energy_until_j(np.array([start_s, end_s]))
        return float(end - start)

    def power_w(self, times_s: FloatArray) -> FloatArray:
        """Power at each moment; at a step, that after it."""
        starts, durations, powers, slopes = self._tables()
        index = np.clip(np.searchsorted(starts, times_s, side="right") - 1, 0, len(durations) - 1)
        inside = np.clip(times_s - starts[index], 0.0, durations[index])
        return np.asarray(powers[index] + slopes[index] * inside, dtype=np.float64)

    def pin_v(self, times_s: FloatArray, high_v: float, pulse_s: float) -> FloatArray:
        """Voltage of the timestamp pin: low for `pulse_s` from each edge on."""
        low = np.zeros(len(times_s), dtype=bool)
        for edge_s in self.edges_s:
            low |= (times_s >= edge_s) & (times_s < edge_s + pulse_s)
        return np.where(low, 0.0, high_v)

    def _tables(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        durations = np.array([segment.duration_s for segment in self.segments])
        powers = np.array([segment.start_w for segment in self.segments])
        slopes = (np.array([segment.end_w for segment in self.segments]) - powers) / durations
        return np.concatenate([[0.0], np.cumsum(durations)[:-1]]), durations, powers, slopes


@dataclass
class Board:
    """The simulated board as instruments see it, with the instrument's imperfections; faults wait in line."""

    timeline: Timeline
    voltage_v: float = 3.3
    noise_a: float = 0.0  # standard deviation of one sample
    offset_a: float = 0.0
    gain: float = 1.0
    pulse_s: float = 200e-6  # the pin stays low for that long
    seed: int = 0
    faults: list[Fault] = field(default_factory=list)  # each spoils one capture, in this order

    def next_fault(self) -> Fault | None:
        return self.faults.pop(0) if self.faults else None

    def zero_s(self, on_edge: bool) -> float:
        """The timeline's moment at which an instrument's time begins."""
        return self.timeline.edges_s[0] if on_edge and self.timeline.edges_s else 0.0

    def point_currents_a(self, times_s: FloatArray) -> FloatArray:
        return self._as_measured(self.timeline.power_w(times_s) / self.voltage_v)

    def mean_currents_a(self, start_s: float, width_s: float, cells: int, stride_s: float | None = None) -> FloatArray:
        """Mean current of `cells` cells of that width, one every `stride_s` (touching each other if not given)."""
        stride_s = width_s if stride_s is None else stride_s
        starts = np.asarray(start_s + stride_s * np.arange(cells), dtype=np.float64)
        energies = self.timeline.energy_until_j(starts + width_s) - self.timeline.energy_until_j(starts)
        return self._as_measured(energies / width_s / self.voltage_v)

    def _as_measured(self, current_a: FloatArray) -> FloatArray:
        noise = np.random.default_rng(self.seed).normal(0.0, self.noise_a, len(current_a)) if self.noise_a else 0.0
        return np.asarray(self.gain * current_a + self.offset_a + noise, dtype=np.float64)
