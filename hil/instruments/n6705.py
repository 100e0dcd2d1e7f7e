"""Keysight N6705A/B/C (and N6700 with the same modules): an N678x source/measure unit supplies and measures the board.

Short captures use the scope (`SENSe:SWEep`, point samples down to 5.12 us, at most 262,144 of them); longer ones the
external data log (`SENSe:ELOG`, means over 204.8 us or more of current and voltage, as long as the host keeps
fetching: the instrument holds about 20 s and overwrites what is older, so that a late fetch is an error here).
Settings are per channel and nothing is reset, because other channels may supply other boards. The instrument rounds
intervals to its own grid: the time base is what it reads back.

Edges of the timestamp pin, two ways, together or alone: wired to the trigger BNC (trigger 'edge', low-true: time zero
is the first edge), and wired to the voltage input of another channel (`edge_channel`), whose voltage the scope samples
at the same moments. The latter sees every pulse longer than two samples.

Commands after the N6705C Operating and Service Guide (chapters 4 and 7); accuracies are those published for the
N6781A. Run against our simulator and pyvisa-sim only, not yet against a real one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil

import numpy as np

from hil.instruments.instrument import Capture, Description, Instrument, Range, VoltageKnown, power_accuracy
from hil.instruments.scpi import OVERLOAD, DataFormat, ScpiSession, refuse_lost, refuse_over_range
from hil.instruments.trace import FloatArray, Trace, falling_edges
from pipeline.errors import InstrumentError

N6781A_RANGES = (Range(0.1, 0.00025, 10e-6), Range(3.0, 0.0003, 250e-6))
SCOPE_SAMPLES = 262_144
SCOPE_GRID_S = 20.48e-6  # intervals are multiples of it
ELOG_PERIOD_S = 204.8e-6  # least for two parameters
ELOG_BUFFER_S = 20.0
_MAX_SAMPLES = 20_000_000  # of the data log: more than an hour, and 320 MB in the host
_MEASURING = 32  # MEAS-active in the operation status
_TROUBLE = 0x1FFF & ~(128 | 256)  # questionable status without the two regulation limits
_FETCH_RECORDS = 4096
_VOLTAGE_GAIN, _VOLTAGE_OFFSET_V = 0.00025, 1.2e-3  # 20 V range
_TIME_BASE = 100e-6


@dataclass(frozen=True)
class N6705Wiring:
    """Which channel does what."""

    channel: int = 1
    edge_channel: int | None = None
    pin_high_v: float = 3.3
    max_current_a: float = 0.5  # chooses the range


class N6705(Instrument):
    """One channel of the power analyser."""

    def __init__(
        self,
        session: ScpiSession,
        wiring: N6705Wiring | None = None,
        *,
        data_format: DataFormat = "real32",
        margin_s: float = 5.0,  # beyond a capture's own duration
    ) -> None:
        super().__init__()
        self._session, self._wiring, self._format, self._margin_s = (
            session,
            wiring or N6705Wiring(),
            data_format,
            margin_s,
        )
        self.description = Description(
            name=session.name,
            kind="n6705",
            ranges=N6781A_RANGES,
            min_interval_s=5.12e-6,
            max_samples=_MAX_SAMPLES,
            time_base=_TIME_BASE,
            sees_edges=self._wiring.edge_channel is not None,
            edge_trigger=True,
        )
        self._range = self.description.range_for(self._wiring.max_current_a)
        self._interval_s, self._points, self._first = 0.0, 0, 0

    def interval_for(self, duration_s: float) -> float:
        """On the scope's grid: only the scope sees edges."""
        return SCOPE_GRID_S * max(1, ceil(duration_s / (SCOPE_GRID_S * SCOPE_SAMPLES)))

    def _uses_scope(self, capture: Capture) -> bool:
        return capture.samples <= SCOPE_SAMPLES

    def _refuse(self, capture: Capture) -> None:
        super()._refuse(capture)
        if self._uses_scope(capture):
            return
        if capture.trigger == "edge" or self._wiring.edge_channel is not None or capture.interval_s < ELOG_PERIOD_S:
            raise InstrumentError(
                f"{self.description.name}: {capture.samples} samples need the data log, which has no edges and at best"
                f" one sample every {ELOG_PERIOD_S:g} s; the scope takes {SCOPE_SAMPLES} samples"
            )

    def _arm(self, capture: Capture) -> None:
        self._session.make_ready()
        form = "FORM ASC" if self._format == "ascii" else "FORM REAL"
        self._session.write("*CLS", form, "FORM:BORD NORM")
        if self._uses_scope(capture):
            self._arm_scope(capture)
        else:
            self._arm_log(capture)
        self._session.refuse_errors("arming")

    def _arm_scope(self, capture: Capture) -> None:
        one, every = f"(@{self._wiring.channel})", self._channels()
        self._session.write(
            f"ABOR:ACQ {every}",
            f"SENS:FUNC:CURR ON,{one}",
            f"SENS:CURR:RANG {self._range.limit_a:g},{one}",
        )
        for channel in self._each_channel():
            self._session.write(f"SENS:FUNC:VOLT ON,{channel}", f"SENS:SWE:TINT {capture.interval_s:.8E},{channel}")
        self._interval_s = self._session.number(f"SENS:SWE:TINT? {one}")
        self._points = max(2, round(capture.duration_s / self._interval_s))
        self._first = -round(capture.pre_trigger_s / self._interval_s)
        source = "EXT" if capture.trigger == "edge" else "BUS"
        for channel in self._each_channel():
            self._session.write(
                f"SENS:SWE:POIN {self._points},{channel}",
                f"SENS:SWE:OFFS:POIN {self._first},{channel}",
                f"TRIG:ACQ:SOUR {source},{channel}",
            )
        self._session.write(f"INIT:ACQ {every}")

    def _arm_log(self, capture: Capture) -> None:
        one = f"(@{self._wiring.channel})"
        self._session.write(
            f"ABOR:ELOG {one}",
            f"SENS:ELOG:FUNC:CURR ON,{one}",
            f"SENS:ELOG:FUNC:VOLT ON,{one}",
            f"SENS:ELOG:FUNC:CURR:MINM OFF,{one}",
            f"SENS:ELOG:FUNC:VOLT:MINM OFF,{one}",
            f"SENS:ELOG:CURR:RANG {self._range.limit_a:g},{one}",
            f"SENS:ELOG:PER {capture.interval_s:.8E},{one}",
            f"TRIG:ELOG:SOUR BUS,{one}",
        )
        self._interval_s = self._session.number(f"SENS:ELOG:PER? {one}")
        self._points = max(2, round(capture.duration_s / self._interval_s))
        self._session.write(f"INIT:ELOG {one}")

    def _trigger(self) -> None:
        assert self._capture is not None
        system = f"ACQ {self._channels()}" if self._uses_scope(self._capture) else f"ELOG (@{self._wiring.channel})"
        self._session.write(f"TRIG:{system}")

    def _read(self, capture: Capture) -> Trace:
        return self._read_scope(capture) if self._uses_scope(capture) else self._read_log(capture)

    def _read_scope(self, capture: Capture) -> Trace:
        one = f"(@{self._wiring.channel})"
        limit_s, abort = capture.duration_s + self._margin_s, f"ABOR:ACQ {self._channels()}"
        self._session.await_capture(f"STAT:OPER:COND? {one}", _MEASURING, limit_s, abort)
        current_a = self._fetched(f"FETC:ARR:CURR? {one}")
        voltage_v = self._fetched(f"FETC:ARR:VOLT? {one}")
        t0_s = self._first * self._interval_s
        edges_s: tuple[float, ...] = (0.0,) if capture.trigger == "edge" else ()
        if self._wiring.edge_channel is not None:
            pin_v = self._fetched(f"FETC:ARR:VOLT? (@{self._wiring.edge_channel})")
            edges_s = falling_edges(t0_s, self._interval_s, pin_v, self._wiring.pin_high_v / 2)
        self._refuse_trouble()
        return self._trace(t0_s, current_a, voltage_v, edges_s)

    def _read_log(self, capture: Capture) -> Trace:
        one = f"(@{self._wiring.channel})"
        records: list[FloatArray] = []
        found, started = 0, time.monotonic()
        last_fetch = started
        while found < self._points:
            batch = self._session.values(f"FETC:ELOG? {min(_FETCH_RECORDS, self._points - found)},{one}", self._format)
            now = time.monotonic()
            if now - last_fetch > 0.8 * ELOG_BUFFER_S:
                raise InstrumentError(
                    f"{self.description.name}: overrun, {now - last_fetch:.1f} s between two fetches of the data log,"
                    f" its buffer holds {ELOG_BUFFER_S:g} s; is the host overloaded?"
                )
            if len(batch) % 2:
                raise InstrumentError(f"{self.description.name}: lost samples, {len(batch)} values are no pairs")
            last_fetch = now
            records.append(batch)
            found += len(batch) // 2
            if now - started > capture.duration_s + self._margin_s:
                self._session.write(f"ABOR:ELOG {one}")
                raise InstrumentError(
                    f"{self.description.name}: {found} of {self._points} records within {now - started:.1f} s;"
                    " the trigger did not come, or samples were lost"
                )
            if not len(batch):
                time.sleep(0.02)
        self._session.write(f"ABOR:ELOG {one}")
        self._refuse_trouble()
        pairs = np.concatenate(records).reshape(-1, 2)
        return self._trace(0.0, pairs[:, 0].copy(), pairs[:, 1].copy(), (), mean=True)

    def _fetched(self, command: str) -> FloatArray:
        values = self._session.values(command, self._format)
        refuse_lost(self.description.name, len(values), self._points)
        return values

    def _refuse_trouble(self) -> None:
        self._session.refuse_errors("the capture")
        trouble = int(self._session.number(f"STAT:QUES:COND? (@{self._wiring.channel})")) & _TROUBLE
        if trouble:
            raise InstrumentError(
                f"{self.description.name}: channel {self._wiring.channel} reports questionable status {trouble:#06x}"
                " (over-current, over-voltage, power limit or unregulated); the trace cannot be trusted"
            )

    def _trace(
        self,
        t0_s: float,
        current_a: FloatArray,
        voltage_v: FloatArray,
        edges_s: tuple[float, ...],
        mean: bool = False,
    ) -> Trace:
        advice = "raise max_current in bench.yaml"
        refuse_over_range(self.description.name, current_a, 1.02 * self._range.limit_a, "A", advice)
        refuse_over_range(self.description.name, voltage_v, OVERLOAD, "V", advice)
        known = VoltageKnown(float(np.mean(voltage_v)), _VOLTAGE_GAIN, _VOLTAGE_OFFSET_V)
        return Trace(
            source=self.description.name,
            t0_s=t0_s,
            dt_s=self._interval_s,
            power_w=current_a * voltage_v,
            kind="mean" if mean else "point",
            accuracy=power_accuracy(
                self._range, known, float(np.mean(np.abs(current_a))), _TIME_BASE, self._interval_s / 2
            ),
            edges_s=edges_s,
            current_a=current_a,
            voltage_v=voltage_v,
        )

    def _channels(self) -> str:
        listed = [self._wiring.channel] + ([self._wiring.edge_channel] if self._wiring.edge_channel else [])
        return f"(@{','.join(map(str, listed))})"

    def _each_channel(self) -> tuple[str, ...]:
        return tuple(f"(@{number})" for number in self._channels().strip("(@)").split(","))

    def _close(self) -> None:
        self._session.close()
