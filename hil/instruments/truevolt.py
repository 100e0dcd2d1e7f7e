"""Keysight 34465A or 34470A (Truevolt, DIG option): the voltage over a shunt in the board's supply, digitised.

The shunt sits between supply and board: the board's current is v / R, its voltage the supply's less v, its power
v / R (V - v). The meter sees the shunt only, so the supply's voltage is a constant of bench.yaml and its tolerance,
like the shunt's, enters the uncertainty.

A reading is the mean over an aperture of at least 20 us; one begins every interval (`SAMPle:SOURce TIMer`), so that it
counts as a point in the middle of its aperture. The timestamp pin goes to the trigger input (falling edge): the edge
that triggers is time zero, later ones are not seen, and the device's own clock must tell where the window ends. One
run a capture, then: a second one would count as idle time.

Commands and status bits after the Truevolt Operating and Service Guide. Overload (9.9E37 and the questionable event
register), a sample timing violation and an overflow of the reading memory are errors. Run against our simulator and
pyvisa-sim only, not yet against the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot

from hil.instruments.instrument import Capture, Description, Instrument, Range, VoltageKnown, power_accuracy
from hil.instruments.scpi import DataFormat, ScpiSession, refuse_lost, refuse_over_range
from hil.instruments.trace import Trace
from pipeline.errors import InstrumentError

_APERTURE_S = 20e-6
_VOLT_RANGES = (0.1, 1.0, 10.0)
_READING_GAIN, _READING_OFFSET = 50e-6, 50e-6  # of reading, of range; one year, and noise at 20 us is in the trace
_TIME_BASE = 100e-6
_MEMORY = 50_000  # readings without the MEM option
_BUSY = 16 | 32  # measuring, waiting for trigger
_QUESTIONABLE = {
    1: "over-range (voltage overload)",
    4: "a sample timing violation, the interval is too short",
    16384: "overrun (its reading memory is full, the oldest samples are lost)",
}


@dataclass(frozen=True)
class Shunt:
    """The resistor and the supply in front of it."""

    ohm: float
    supply_v: float
    ohm_tolerance: float = 0.001  # limit, relative
    supply_tolerance: float = 0.01  # limit, relative
    max_current_a: float = 0.5


class Truevolt(Instrument):
    """The multimeter over its shunt."""

    def __init__(
        self, session: ScpiSession, shunt: Shunt, *, data_format: DataFormat = "real64", margin_s: float = 5.0
    ) -> None:
        super().__init__()
        self._session, self._shunt, self._format, self._margin_s = session, shunt, data_format, margin_s
        highest_v = shunt.max_current_a * shunt.ohm
        self._range_v = next((limit for limit in _VOLT_RANGES if limit >= highest_v), 0.0)
        if not self._range_v:
            raise InstrumentError(
                f"{session.name}: {shunt.max_current_a:g} A over {shunt.ohm:g} ohm are {highest_v:g} V,"
                f" its range ends at {_VOLT_RANGES[-1]:g} V; use a smaller shunt"
            )
        gain = hypot(_READING_GAIN, shunt.ohm_tolerance)
        offset_a = _READING_OFFSET * self._range_v / shunt.ohm
        self._range = Range(self._range_v / shunt.ohm, gain, offset_a)
        self.description = Description(
            name=session.name,
            kind="truevolt",
            ranges=tuple(Range(volts / shunt.ohm, gain, _READING_OFFSET * volts / shunt.ohm) for volts in _VOLT_RANGES),
            min_interval_s=_APERTURE_S,
            max_samples=_MEMORY,
            time_base=_TIME_BASE,
            sees_edges=False,
            edge_trigger=True,
        )

    def _arm(self, capture: Capture) -> None:
        self._session.make_ready()
        before = round(capture.pre_trigger_s / capture.interval_s)
        self._session.write(
            "ABOR",
            "*CLS",
            f"CONF:VOLT:DC {self._range_v:g}",
            f"VOLT:DC:APER {_APERTURE_S:.6E}",
            "VOLT:DC:ZERO:AUTO OFF",
            "SAMP:SOUR TIM",
            f"SAMP:TIM {capture.interval_s:.8E}",
            f"SAMP:COUN {capture.samples}",
            f"SAMP:COUN:PRET {before}",
            "TRIG:COUN 1",
            "TRIG:DEL 0",
            "TRIG:SLOP NEG",
            f"TRIG:SOUR {'EXT' if capture.trigger == 'edge' else 'BUS'}",
            "FORM:DATA ASC" if self._format == "ascii" else "FORM:DATA REAL,64",
            "FORM:BORD NORM",
        )
        self._session.refuse_errors("arming")
        self._session.write("INIT")

    def _trigger(self) -> None:
        self._session.write("*TRG")

    def _read(self, capture: Capture) -> Trace:
        self._session.await_capture("STAT:OPER:COND?", _BUSY, capture.duration_s + self._margin_s, "ABOR")
        interval_s = self._session.number("SAMP:TIM?")
        shunt_v = self._session.values("FETC?", self._format)
        self._refuse_questionable()
        self._session.refuse_errors("the capture")
        refuse_lost(self.description.name, len(shunt_v), capture.samples)
        advice = "raise max_current in bench.yaml or use a smaller shunt"
        refuse_over_range(self.description.name, shunt_v, 1.2 * self._range_v, "V over the shunt", advice)
        current_a = shunt_v / self._shunt.ohm
        voltage_v = self._shunt.supply_v - shunt_v
        before = round(capture.pre_trigger_s / capture.interval_s)
        known = VoltageKnown(self._shunt.supply_v, self._shunt.supply_tolerance)
        return Trace(
            source=self.description.name,
            t0_s=_APERTURE_S / 2 - before * interval_s,
            dt_s=interval_s,
            power_w=current_a * voltage_v,
            kind="point",
            accuracy=power_accuracy(self._range, known, 0.0, _TIME_BASE, interval_s / 2 if before else 2e-6),
            edges_s=(0.0,) if capture.trigger == "edge" else (),
            current_a=current_a,
            voltage_v=voltage_v,
        )

    def _refuse_questionable(self) -> None:
        events = int(self._session.number("STAT:QUES?"))
        for bit, meaning in _QUESTIONABLE.items():
            if events & bit:
                raise InstrumentError(f"{self.description.name}: {meaning}; the trace cannot be trusted")

    def _close(self) -> None:
        self._session.close()
