"""A simulated Keysight N6705 with an N678x unit: scope (`SENSe:SWEep`) and external data log (`SENSe:ELOG`).

Channel 1 supplies the board, channel 2 measures the voltage of its timestamp pin. Intervals are rounded to
multiples of 20.48 us (10.24 and 5.12 us below that), as the real instrument does.
"""

from __future__ import annotations

import numpy as np

from hil.instruments.simulated.scpi_server import OVERLOAD
from hil.instruments.simulated.timeline import Board
from hil.instruments.simulated.triggered_meter import TriggeredMeter
from hil.instruments.trace import FloatArray

_CHANNEL = "1"
_PIN_HIGH_V = 3.3


class SimulatedN6705(TriggeredMeter):
    """The instrument as SCPI sees it."""

    identity = "Keysight Technologies,N6705C,MY00000001,E.02.08"
    measuring = waiting = 32  # MEAS-active, bit 5 of the operation status
    item = ">f4"

    def __init__(self, board: Board) -> None:
        super().__init__(board, "FORMat")
        self._on_edge, self._sent = False, 0
        self._points = self.setting("SENSe:SWEep:POINts", "1024")
        self._offset = self.setting("SENSe:SWEep:OFFSet:POINts", "0")
        self._range = self.setting("SENSe:CURRent:RANGe", "3")
        self.setting("SENSe:ELOG:CURRent:RANGe", "3")
        for function in ("VOLTage", "CURRent"):
            self.setting(f"SENSe:FUNCtion:{function}", "0")
            self.setting(f"SENSe:ELOG:FUNCtion:{function}", "0")
            self.setting(f"SENSe:ELOG:FUNCtion:{function}:MINMax", "0")
        self._source = self.setting("TRIGger:ACQuire:SOURce", "BUS")
        self.setting("TRIGger:ELOG:SOURce", "BUS")
        self._interval_s, self._period_s = 20.48e-6, 102.4e-6
        self.command("SENSe:SWEep:TINTerval", self._set_interval)
        self.command("SENSe:SWEep:TINTerval?", lambda _: f"{self._interval_s:.8E}")
        self.command("SENSe:ELOG:PERiod", self._set_period)
        self.command("SENSe:ELOG:PERiod?", lambda _: f"{self._period_s:.8E}")
        for system in ("ACQuire", "ELOG"):
            self.command(f"INITiate:{system}", self._initiate)
            self.command(f"TRIGger:{system}", self._trigger)
            self.command(f"ABORt:{system}", lambda _: None)
        self.command("STATus:QUEStionable:CONDition?", lambda _: "2" if self._fault == "over_range" else "0")
        self.command("FETCh:ARRay:CURRent?", self._currents)
        self.command("FETCh:ARRay:VOLTage?", self._voltages)
        self.command("FETCh:ELOG?", self._records)

    def _set_interval(self, text: str) -> None:
        wanted_s = float(text.partition(",")[0])
        grid_s = next((step for step in (5.12e-6, 10.24e-6) if wanted_s <= step * 1.01), 20.48e-6)
        self._interval_s = max(1, round(wanted_s / grid_s)) * grid_s

    def _set_period(self, text: str) -> None:
        self._period_s = max(5, round(float(text.partition(",")[0]) / 20.48e-6)) * 20.48e-6

    def _initiate(self, _: str) -> None:
        self._on_edge, self._sent = self._source.get(_CHANNEL) == "EXT", 0
        self._begin(self._on_edge)

    def _times_s(self) -> FloatArray:
        first, count = int(self._offset.get(_CHANNEL, "0")), int(float(self._points.get(_CHANNEL, "1024")))
        times_s = self._board.zero_s(self._on_edge) + self._interval_s * (first + np.arange(count))
        return np.asarray(times_s, dtype=np.float64)

    def _currents(self, text: str) -> bytes | None:
        currents_a = self._board.point_currents_a(self._times_s())
        if self._fault == "over_range":
            currents_a[len(currents_a) // 2] = OVERLOAD
        if self._fault == "lost":
            currents_a = currents_a[: -max(1, len(currents_a) // 50)]
        if self._fault == "overrun":
            self.errors.append((-222, "Data out of range; measurement overrun"))
        return self._reply(currents_a)

    def _voltages(self, text: str) -> bytes | None:
        times_s = self._times_s()
        if text.strip() == f"(@{_CHANNEL})":
            return self._reply(np.full(len(times_s), self._board.voltage_v))
        return self._reply(self._board.timeline.pin_v(times_s, _PIN_HIGH_V, self._board.pulse_s))

    def _records(self, text: str) -> bytes | None:
        """Average current and voltage of each period since the last fetch; a fetch never finds the buffer empty."""
        self._vanish_if_due()
        if not self._triggered:
            return self._reply(np.zeros(0))
        count = min(int(text.partition(",")[0]), 4096)
        start_s = self._sent * self._period_s
        self._sent += count
        current_a = self._board.mean_currents_a(start_s, self._period_s, count)
        if self._fault == "over_range":
            current_a[count // 2] = OVERLOAD
        if self._fault == "overrun":
            self.errors.append((-350, "Error queue overflow; data log buffer overrun"))
        pairs = np.column_stack([current_a, np.full(count, self._board.voltage_v)]).ravel()
        return self._reply(pairs[:-1] if self._fault == "lost" else pairs)
