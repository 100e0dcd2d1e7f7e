"""Nordic Power Profiler Kit II as the board's supply, through the package `ppk2-api` (optional).

It sends 100,000 samples a second of current, each with the state of eight logic inputs: the timestamp pin goes to D0.
The supply is set (0.8 to 5 V), not measured, and carries at most 1 A.

A sample is a 32-bit word: 14 bits of reading, 3 of range, a counter of 6 bits from bit 18 on, 8 logic inputs. The
package ignores the counter and drops what it cannot convert without an error; here the words are counted before it
sees them, so that a lost, doubled or torn word and a dropped sample are errors. Losses of 64 words at a time show
against the host's clock, if they exceed 2 % and 0.1 s.

Written from the package's public interface (0.9: `get_modifiers`, `use_source_meter`, `set_source_voltage`,
`start_measuring`, `get_data`, `get_samples`). No PPK2 was at hand: the tests run it against a stand-in with its calls.
The package is under GPL 2, which is why it is asked for and not a dependency.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hil.instruments.collector import Collector
from hil.instruments.instrument import (
    Capture,
    Description,
    Instrument,
    Range,
    VoltageKnown,
    foreign_errors,
    optional_package,
    power_accuracy,
)
from hil.instruments.scpi import refuse_lost, refuse_over_range
from hil.instruments.trace import Trace, falling_edges
from pipeline.errors import HardwareAbsent, InstrumentError

INTERVAL_S = 10e-6
_LONGEST_S = 120.0
_COUNTER_SHIFT, _COUNTER_MASK = 18, 0x3F
_CLOCK_SLACK, _START_SLACK_S = 0.02, 0.1  # of the host's clock, and until the first samples come
_RANGE = Range(1.0, 0.10, 1e-6)  # Nordic states up to 10 % of the reading
_VOLTAGE_GAIN = 0.03
_TIME_BASE = 100e-6


class Ppk2(Instrument):
    """The kit on a serial port, in source mode."""

    def __init__(self, port: str, *, voltage_v: float, margin_s: float = 5.0, package: Any = None) -> None:
        super().__init__()
        package = package or optional_package("ppk2_api.ppk2_api", "ppk2-api", "PPK2")
        self._voltage_v, self._margin_s = voltage_v, margin_s
        self._collector: Collector | None = None
        self.description = Description(
            name=f"PPK2 {port}",
            kind="ppk2",
            ranges=(_RANGE,),
            min_interval_s=INTERVAL_S,
            max_samples=round(_LONGEST_S / INTERVAL_S),
            time_base=_TIME_BASE,
            sees_edges=True,
            edge_trigger=False,
        )
        try:
            self._kit = package.PPK2_API(port, timeout=1, write_timeout=1, exclusive=True)
            self._kit.get_modifiers()
            self._kit.use_source_meter()
            self._kit.set_source_voltage(round(1000 * voltage_v))
            self._kit.toggle_DUT_power("ON")
        except Exception as error:  # the package passes on whatever pyserial and its own parsing raise
            raise HardwareAbsent(f"{self.description.name}: cannot be opened ({error}); is it attached?") from error

    def _arm(self, capture: Capture) -> None:
        if abs(capture.interval_s - INTERVAL_S) > 1e-9:
            raise InstrumentError(f"{self.description.name}: samples every {INTERVAL_S:g} s, no other interval")
        with foreign_errors(self.description.name, "arming"):
            self._kit.get_data()  # what an earlier capture left

    def _trigger(self) -> None:
        assert self._capture is not None
        self._currents: list[float] = []
        self._logic: list[int] = []
        self._pending, self._counter = b"", -1
        self._needed = self._capture.samples
        with foreign_errors(self.description.name, "starting"):
            self._kit.start_measuring()
        self._started = time.monotonic()
        self._collector = Collector(self.description.name, self._step)

    def _step(self) -> bool:
        with foreign_errors(self.description.name, "reading"):
            self._pending += self._kit.get_data()
        data = self._pending[: len(self._pending) // 4 * 4]  # the package misreads a call with less than one word
        self._pending = self._pending[len(data) :]
        if not data:
            time.sleep(0.001)
            return False
        self._refuse_jumps(data)
        with foreign_errors(self.description.name, "decoding"):
            microamperes, logic = self._kit.get_samples(data)
        refuse_lost(self.description.name, min(len(microamperes), len(logic)), len(data) // 4)
        self._currents += microamperes
        self._logic += logic
        self._elapsed_s = time.monotonic() - self._started
        return len(self._currents) >= self._needed

    def _read(self, capture: Capture) -> Trace:
        assert self._collector is not None
        collector, self._collector = self._collector, None
        try:
            collector.result(capture.duration_s + self._margin_s)
        finally:
            with foreign_errors(self.description.name, "stopping"):
                self._kit.stop_measuring()
        self._refuse_gaps()
        current_a = 1e-6 * np.array(self._currents[: capture.samples])
        refuse_over_range(self.description.name, current_a, _RANGE.limit_a, "A", "it supplies no more than that")
        pin = np.array([bits & 1 for bits in self._logic[: capture.samples]], dtype=np.float64)
        return Trace(
            source=self.description.name,
            t0_s=0.0,
            dt_s=INTERVAL_S,
            power_w=current_a * self._voltage_v,
            kind="mean",
            accuracy=power_accuracy(_RANGE, VoltageKnown(self._voltage_v, _VOLTAGE_GAIN), 0.0, _TIME_BASE, INTERVAL_S),
            edges_s=falling_edges(0.0, INTERVAL_S, pin, 0.5),
            current_a=current_a,
        )

    def _refuse_jumps(self, data: bytes) -> None:
        words = np.frombuffer(data, dtype="<u4").astype(np.int64)
        counters = (words >> _COUNTER_SHIFT) & _COUNTER_MASK
        before = int(counters[0]) - 1 if self._counter < 0 else self._counter
        earlier = np.concatenate([[before], counters[:-1]])
        jumps = np.flatnonzero((counters - earlier) & _COUNTER_MASK != 1)
        if len(jumps):
            lost = len(self._currents) + int(jumps[0])
            raise InstrumentError(f"{self.description.name}: lost samples after number {lost}; measure again")
        self._counter = int(counters[-1])

    def _refuse_gaps(self) -> None:
        """A gap shows as samples that took longer to come than they should have."""
        expected_s = len(self._currents) * INTERVAL_S
        if self._elapsed_s > expected_s * (1 + _CLOCK_SLACK) + _START_SLACK_S:
            raise InstrumentError(
                f"{self.description.name}: lost samples, {len(self._currents)} took {self._elapsed_s:.3f} s,"
                f" needed {expected_s:.3f} s; measure again"
            )

    def _close(self) -> None:
        with foreign_errors(self.description.name, "closing"):
            if self._collector is not None:
                self._collector.cancel()
                self._kit.stop_measuring()
            self._kit.toggle_DUT_power("OFF")
