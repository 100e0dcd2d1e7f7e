"""A simulated Keysight 34465A that digitises the voltage over a shunt in the board's supply.

A reading is the mean over the aperture; one begins every `SAMPle:TIMer`. The questionable
register keeps its overload and memory bits as events until they are read, as the real one does.
"""

from __future__ import annotations

import numpy as np

from hil.instruments.simulated.scpi_server import OVERLOAD
from hil.instruments.simulated.timeline import Board
from hil.instruments.simulated.triggered_meter import TriggeredMeter

_VOLTAGE_OVERLOAD, _TIMING_VIOLATION, _MEMORY_OVERFLOW = 1, 4, 16384


class SimulatedTruevolt(TriggeredMeter):
    """The instrument as SCPI sees it; the board's supply is `board.voltage_v` before the shunt."""

    identity = "Keysight Technologies,34465A,MY00000002,A.03.02-03.15-03.02-00.52-04-03"
    measuring, waiting = 16, 32
    item = ">f8"

    def __init__(self, board: Board, shunt_ohm: float) -> None:
        super().__init__(board, "FORMat:DATA")
        self._shunt_ohm, self._questionable = shunt_ohm, 0
        self._range = self.setting("CONFigure:VOLTage:DC", "10")
        self._aperture = self.setting("VOLTage:DC:APERture", "1.0E-1")
        self.setting("VOLTage:DC:ZERO:AUTO", "1")
        self.setting("VOLTage:DC:RANGe:AUTO", "0")
        self.setting("SAMPle:SOURce", "IMM")
        self._timer = self.setting("SAMPle:TIMer", "1.0")
        self._count = self.setting("SAMPle:COUNt", "1")
        self._before = self.setting("SAMPle:COUNt:PRETrigger", "0")
        self._source = self.setting("TRIGger:SOURce", "IMM")
        self.setting("TRIGger:SLOPe", "NEG")
        self.setting("TRIGger:COUNt", "1")
        self.setting("TRIGger:DELay", "0")
        self.command("INITiate", self._initiate)
        self.command("ABORt", lambda _: None)
        self.command("*TRG", self._trigger)
        self.command("STATus:QUEStionable?", self._read_questionable)
        self.command("FETCh?", self._fetch)

    def _initiate(self, _: str) -> None:
        self._questionable = 0
        self._begin(self._source.get("") == "EXT")

    def _read_questionable(self, _: str) -> str:
        value, self._questionable = self._questionable, 0
        return f"{value:+d}"

    def _fetch(self, _: str) -> bytes | None:
        interval_s, count = float(self._timer.get("", "1")), int(self._count.get("", "1"))
        zero_s = self._board.zero_s(self._source.get("") == "EXT")
        first_s = zero_s - interval_s * int(self._before.get("", "0"))
        aperture_s = float(self._aperture.get("", "0.1"))
        current_a = self._board.mean_currents_a(first_s, aperture_s, count, interval_s)
        # The timeline is the board's own power: P = I (V - I R), solved for I.
        supply_v, power_w = self._board.voltage_v, current_a * self._board.voltage_v
        drawn_a = (supply_v - np.sqrt(supply_v**2 - 4 * self._shunt_ohm * power_w)) / (2 * self._shunt_ohm)
        voltage_v = drawn_a * self._shunt_ohm
        beyond = np.abs(voltage_v) > 1.2 * float(self._range.get("", "10").partition(",")[0])
        if self._fault == "over_range":
            beyond[count // 2] = True
        if np.any(beyond):
            voltage_v[beyond] = OVERLOAD
            self._questionable |= _VOLTAGE_OVERLOAD
        if interval_s < aperture_s * (1 - 1e-9):
            self._questionable |= _TIMING_VIOLATION
        if self._fault == "overrun":
            self._questionable |= _MEMORY_OVERFLOW
        if self._fault == "lost":
            voltage_v = voltage_v[: -max(1, count // 50)]
        return self._reply(voltage_v)
