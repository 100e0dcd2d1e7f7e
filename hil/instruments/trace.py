"""A power trace: samples on an even time base, the edges of the board's timestamp pin, and how far to trust both.

Time zero is the trigger. A sample is either the mean over its cell `[t0 + k dt, t0 + (k + 1) dt)` (an integrating
meter) or the value at the instant `t0 + k dt` (a digitiser): `energy.py` integrates the two differently.

A trace that cannot be trusted does not exist: samples that are no numbers, an empty trace or edges out of order raise
`InstrumentError` here, whatever the instrument's own checks have let pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import InstrumentError

FloatArray = NDArray[np.float64]
SampleKind = Literal["mean", "point"]


@dataclass(frozen=True)
class Accuracy:
    """Limits of error (not standard deviations) of a trace's power and time."""

    gain: float  # of the reading, relative
    offset_w: float
    time_base: float  # of the sample clock, relative
    edge_s: float  # of the moment of an edge


@dataclass(frozen=True, eq=False)
class Trace:
    """What an instrument saw."""

    source: str  # the instrument, for messages
    t0_s: float  # of the first sample (of the beginning of its cell), from the trigger
    dt_s: float
    power_w: FloatArray
    kind: SampleKind
    accuracy: Accuracy
    edges_s: tuple[float, ...] = ()
    current_a: FloatArray | None = None
    voltage_v: FloatArray | None = None

    def __post_init__(self) -> None:
        samples = len(self.power_w)
        if samples < 2 or not self.dt_s > 0:
            raise InstrumentError(f"{self.source}: {samples} samples every {self.dt_s:g} s, needed at least 2")
        for array in (self.current_a, self.voltage_v):
            if array is not None and len(array) != samples:
                raise InstrumentError(f"{self.source}: {len(array)} samples beside {samples} of power; some were lost")
        lost = samples - int(np.count_nonzero(np.isfinite(self.power_w)))
        if lost:
            raise InstrumentError(f"{self.source}: {lost} of {samples} samples are no numbers; measure again")
        if any(later <= earlier for earlier, later in zip(self.edges_s, self.edges_s[1:], strict=False)):
            raise InstrumentError(f"{self.source}: edges out of order ({_seconds(self.edges_s)})")

    @property
    def start_s(self) -> float:
        return self.t0_s

    @property
    def end_s(self) -> float:
        """Up to where the trace says anything."""
        return self.t0_s + self.dt_s * (len(self.power_w) - (0 if self.kind == "mean" else 1))


def falling_edges(t0_s: float, dt_s: float, voltage_v: FloatArray, threshold_v: float) -> tuple[float, ...]:
    """When a sampled pin goes low, by linear interpolation between the two samples around each crossing."""
    above = voltage_v >= threshold_v
    before = np.flatnonzero(above[:-1] & ~above[1:])
    high, low = voltage_v[before], voltage_v[before + 1]
    crossing = (high - threshold_v) / (high - low)
    return tuple(float(time_s) for time_s in t0_s + dt_s * (before + crossing))


def _seconds(times_s: Sequence[float]) -> str:
    return ", ".join(f"{time_s:.6f} s" for time_s in times_s[:6])
