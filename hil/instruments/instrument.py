"""The interface of every power meter: arm with a `Capture`, trigger (or let the pin's edge do it), read the `Trace`.

    with open_instrument(bench, probe_serial) as meter:
        meter.arm(Capture(duration_s=2.0, interval_s=20.48e-6))
        meter.trigger()
        ...                      # the board runs, its timestamp pin marks beginning and end
        trace = meter.read()

The base class keeps the order of the calls and refuses what the instrument cannot do before anything is sent; a
backend implements the four underscored methods. Whatever goes wrong is an `InstrumentError` (or `HardwareAbsent` when
the instrument cannot be reached at all): over-range, overrun, lost samples and a missing trigger never become zeros.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import hypot
from types import TracebackType
from typing import Any, Literal, Self

from hil.instruments.trace import Accuracy, Trace
from pipeline.errors import HardwareAbsent, InstrumentError, PipelineError


@dataclass(frozen=True)
class Range:
    """One measuring range of the current, with its limits of error."""

    limit_a: float
    gain: float  # of the reading, relative
    offset_a: float


@dataclass(frozen=True)
class VoltageKnown:
    """The supply voltage of the board: measured by the instrument, or a constant of the bench; with limits of error."""

    volts: float
    gain: float
    offset_v: float = 0.0


@dataclass(frozen=True)
class Description:
    """What an instrument says of itself."""

    name: str  # with serial number where the instrument tells one
    kind: str
    ranges: tuple[Range, ...]  # smallest first
    min_interval_s: float
    max_samples: int
    time_base: float  # limit of error of the sample clock, relative
    sees_edges: bool  # records every edge of the timestamp pin, not only the one that triggers
    edge_trigger: bool

    def range_for(self, current_a: float) -> Range:
        """The smallest range that holds this current."""
        for candidate in self.ranges:
            if candidate.limit_a >= current_a:
                return candidate
        widest = self.ranges[-1].limit_a
        raise InstrumentError(
            f"{self.name}: {current_a:g} A asked for, its widest range ends at {widest:g} A; use another instrument"
        )


@dataclass(frozen=True)
class Capture:
    """What to record."""

    duration_s: float
    interval_s: float
    trigger: Literal["software", "edge"] = "software"
    pre_trigger_s: float = 0.0  # of the duration, kept from before the edge

    @property
    def samples(self) -> int:
        return max(2, round(self.duration_s / self.interval_s))


class Instrument(ABC):
    """A power meter that is open; a context manager."""

    description: Description

    def __init__(self) -> None:
        self._capture: Capture | None = None
        self._running = False

    def interval_for(self, duration_s: float) -> float:
        """The shortest sample interval at which a capture of this duration fits."""
        return max(self.description.min_interval_s, duration_s / self.description.max_samples)

    def arm(self, capture: Capture) -> None:
        """Prepare for one capture; with an edge trigger the instrument waits from here on."""
        self._refuse(capture)
        self._running = False
        self._arm(capture)
        self._capture, self._running = capture, capture.trigger == "edge"

    def trigger(self) -> None:
        """Start a capture that was armed with the software trigger."""
        if self._capture is None or self._running:
            state = "an edge-triggered capture is waiting" if self._running else "it is not armed"
            raise InstrumentError(f"{self.description.name}: triggered while {state}; arm it with trigger='software'")
        self._trigger()
        self._running = True

    def read(self) -> Trace:
        """Wait for the end of the capture and return it; the instrument must be armed anew afterwards."""
        if self._capture is None or not self._running:
            raise InstrumentError(f"{self.description.name}: read before it was armed and triggered")
        capture, self._capture, self._running = self._capture, None, False
        return self._read(capture)

    def close(self) -> None:
        """Stop what is under way and let go of the instrument."""
        self._capture, self._running = None, False
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _refuse(self, capture: Capture) -> None:
        known = self.description
        if capture.interval_s < known.min_interval_s * (1 - 1e-9):
            raise InstrumentError(
                f"{known.name}: samples every {capture.interval_s:g} s asked for,"
                f" its fastest is every {known.min_interval_s:g} s"
            )
        if capture.samples > known.max_samples:
            raise InstrumentError(
                f"{known.name}: {capture.samples} samples asked for, it takes {known.max_samples};"
                " shorten the capture or lengthen the interval"
            )
        if capture.trigger == "edge" and not known.edge_trigger:
            raise InstrumentError(f"{known.name}: has no trigger input; arm it with trigger='software'")
        if not 0.0 <= capture.pre_trigger_s < capture.duration_s:
            raise InstrumentError(
                f"{known.name}: {capture.pre_trigger_s:g} s before the trigger do not fit {capture.duration_s:g} s"
            )
        if capture.pre_trigger_s and capture.trigger == "software":
            raise InstrumentError(f"{known.name}: a software trigger starts the capture; pre_trigger_s needs an edge")

    @abstractmethod
    def _arm(self, capture: Capture) -> None: ...

    @abstractmethod
    def _trigger(self) -> None: ...

    @abstractmethod
    def _read(self, capture: Capture) -> Trace: ...

    @abstractmethod
    def _close(self) -> None: ...


def power_accuracy(
    current: Range, voltage: VoltageKnown, typical_a: float, time_base: float, edge_s: float
) -> Accuracy:
    """Limits of error of a product of current and voltage; both are independent, so they add in quadrature."""
    return Accuracy(
        gain=hypot(current.gain, voltage.gain),
        offset_w=hypot(current.offset_a * voltage.volts, voltage.offset_v * typical_a),
        time_base=time_base,
        edge_s=edge_s,
    )


@contextmanager
def foreign_errors(name: str, doing: str) -> Iterator[None]:
    """Whatever a package of the instrument's maker raises, as an `InstrumentError`."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise InstrumentError(f"{name}: {doing} failed ({error}); is it still attached?") from error


def optional_package(module: str, package: str, instrument: str) -> Any:
    """Import what only owners of that instrument need."""
    try:
        return import_module(module)
    except ImportError as error:
        raise HardwareAbsent(
            f"{instrument}: needs the Python package {package}, which is not installed; pip install {package}"
        ) from error
