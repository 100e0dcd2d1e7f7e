"""ST X-NUCLEO-LPM01A on its USB serial port: integrated energy per sample period, edges of D7 as events in the stream.

Commands and data are lines of ASCII. `htc` takes control; each command is answered by `ack ...` or `error ...` (with
the prompt `PowerShield > ` in front or not). A sample is `DDDDSEE`, `6409-07` for 6409e-7 joules since the sample
before. `event N ris` marks an edge between two samples, `TimeStamp: 000s 100ms, buff 02%` tells the time and how full
the board's buffer is, a line with `Acquisition completed` ends the data.

The acquisition time is set, so the number of samples is known beforehand: one too few is an error, and so are a line
that is neither sample nor message, a time stamp that does not fit the count of samples, a full buffer and a current
beyond what the board supplies (50 mA: too little for an F767 or H743 at full clock). An edge is known to one sample.

Facts from UM2269 (PowerShield firmware) and the MLPerf Tiny runner. Run against our simulator only.
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import serial

from hil.instruments.collector import Collector
from hil.instruments.instrument import Capture, Description, Instrument, Range, VoltageKnown, power_accuracy
from hil.instruments.scpi import refuse_lost, refuse_over_range
from hil.instruments.trace import Trace
from pipeline.errors import HardwareAbsent, InstrumentError

BAUD = 3_686_400
MAX_CURRENT_A = 0.05
PROMPT = "PowerShield > "
_FREQUENCIES_HZ = {5000: "5k", 2000: "2k", 1000: "1k", 500: "500", 200: "200", 100: "100"}  # unlimited in ASCII
_LONGEST_S = 100.0
_POLL_S = 0.05
_REPLY_S = 3.0
_SETTLE_S = 1.0
_SAMPLE = re.compile(r"(\d{4})([+-]\d{2})")
_EVENT = re.compile(r"event \d+ (?:ris|fal)")
_TIMESTAMP = re.compile(r"TimeStamp:[ <>]*(\d+)s *(\d+)ms, *buff *(\d+)%")
_MESSAGES = ("summary", "PowerShield", "Current", "Energy", "end", "Acquisition started")  # around the data
_STAMP_SLACK = 0.002  # of the elapsed time, beside two samples: the stamp has whole milliseconds
_RANGE = Range(MAX_CURRENT_A, 0.02, 1e-6)  # limits of error in dynamic mode: 2 % of the reading
_TIME_BASE = 100e-6


class Lpm01a(Instrument):
    """The power shield, which also supplies the board."""

    def __init__(self, port: str, *, voltage_v: float, margin_s: float = 5.0) -> None:
        super().__init__()
        if not 1.8 <= voltage_v <= 3.3:
            raise InstrumentError(f"{port}: {voltage_v:g} V asked for, an LPM01A supplies 1.8 to 3.3 V")
        self._voltage_v, self._margin_s = voltage_v, margin_s
        self._pending = bytearray()
        self._collector: Collector | None = None
        self._powered, self._unsettled = False, False
        self.description = Description(
            name=f"LPM01A {port}",
            kind="lpm01a",
            ranges=(_RANGE,),
            min_interval_s=1 / max(_FREQUENCIES_HZ),
            max_samples=int(_LONGEST_S * max(_FREQUENCIES_HZ)),
            time_base=_TIME_BASE,
            sees_edges=True,
            edge_trigger=False,  # D7 is the event input here
        )
        try:
            self._port: Any = serial.Serial(port, BAUD, timeout=_POLL_S, write_timeout=_REPLY_S)
        except (serial.SerialException, OSError, ValueError) as error:
            raise HardwareAbsent(
                f"{self.description.name}: cannot be opened ({error}); is it attached and the port free?"
            ) from error
        try:
            self._command("htc")
            self._command("pwr off")
        except InstrumentError:
            self._port.close()
            raise

    def interval_for(self, duration_s: float) -> float:
        """Its fastest, whatever the duration: it streams."""
        return 1 / max(_FREQUENCIES_HZ)

    def _refuse(self, capture: Capture) -> None:
        super()._refuse(capture)
        if self._frequency_hz(capture) not in _FREQUENCIES_HZ or capture.duration_s > _LONGEST_S:
            known = ", ".join(map(str, _FREQUENCIES_HZ))
            raise InstrumentError(
                f"{self.description.name}: {capture.duration_s:g} s with samples every {capture.interval_s:g} s asked,"
                f" it takes at most {_LONGEST_S:g} s at {known} Hz"
            )

    def _arm(self, capture: Capture) -> None:
        self._settle()
        for command in (
            f"acqtime {round(capture.duration_s * 1000)}m",
            "trigdelay 0",
            "trigsrc sw",
            "eventsrc d7 fal",
            "output energy",
            "format ascii_dec",
            f"freq {_FREQUENCIES_HZ[self._frequency_hz(capture)]}",
            f"volt {round(self._voltage_v * 1000)}m",
        ):
            self._command(command)
        if not self._powered:  # once: power cycling would restart the board
            self._command("pwr on nostatus")
            self._powered = True

    def _trigger(self) -> None:
        assert self._capture is not None
        self._command("start")
        self._unsettled = True
        self._stream = _Stream(self.description.name, 1 / self._frequency_hz(self._capture))
        self._collector = Collector(self.description.name, self._step)

    def _step(self) -> bool:
        line = self._line(time.monotonic() + _POLL_S)
        return line is not None and self._stream.take(line)

    def _read(self, capture: Capture) -> Trace:
        assert self._collector is not None
        collector, self._collector = self._collector, None
        collector.result(capture.duration_s + self._margin_s)
        self._unsettled = False
        energies_j = np.array(self._stream.energies_j)
        refuse_lost(self.description.name, len(energies_j), capture.samples)
        dt_s = 1 / self._frequency_hz(capture)
        power_w = energies_j / dt_s
        current_a = power_w / self._voltage_v
        refuse_over_range(self.description.name, current_a, MAX_CURRENT_A, "A", "it supplies no more than that")
        known = VoltageKnown(self._voltage_v, 0.0)  # energy is measured: the range's accuracy covers the voltage
        return Trace(
            source=self.description.name,
            t0_s=0.0,
            dt_s=dt_s,
            power_w=power_w,
            kind="mean",
            accuracy=power_accuracy(_RANGE, known, 0.0, _TIME_BASE, dt_s),
            edges_s=tuple(dt_s * index for index in self._stream.edges),
            current_a=current_a,
        )

    def _close(self) -> None:
        try:
            self._settle()
            for command in ("pwr off", "hrc"):
                self._command(command)
        except InstrumentError:
            return  # it has gone; what matters is that the port is free again
        finally:
            self._port.close()

    def _settle(self) -> None:
        """End an acquisition that was given up, and what is left of its data."""
        if self._collector is not None:
            self._collector.cancel()
            self._collector = None
        if self._unsettled:
            self._send("stop")
            deadline = time.monotonic() + _SETTLE_S
            while (line := self._line(deadline)) is not None:
                if "Acquisition completed" in line or line.startswith("error stop"):
                    break
            self._unsettled = False

    @staticmethod
    def _frequency_hz(capture: Capture) -> int:
        return round(1 / capture.interval_s)

    def _command(self, command: str) -> None:
        self._send(command)
        deadline, seen = time.monotonic() + _REPLY_S, "nothing"
        while (line := self._line(deadline)) is not None:
            text = line.replace(PROMPT, "").strip()
            if text == f"ack {command}":
                return
            if text.startswith(("error", "err ")) and command.split(" ")[0] in text:
                raise InstrumentError(f"{self.description.name}: refused {command!r}: {text}")
            seen = repr(text)
        raise InstrumentError(
            f"{self.description.name}: no 'ack' to {command!r} within {_REPLY_S:g} s, last line was {seen};"
            " is it attached and in host mode?"
        )

    def _send(self, command: str) -> None:
        try:
            self._port.write(f"{command}\r\n".encode("ascii"))
        except (serial.SerialException, OSError) as error:
            raise InstrumentError(f"{self.description.name}: the port vanished ({error})") from error

    def _line(self, deadline: float) -> str | None:
        while b"\n" not in self._pending:
            if time.monotonic() >= deadline:
                return None
            try:
                self._pending += self._port.read(max(1, self._port.in_waiting))
            except (serial.SerialException, OSError) as error:
                raise InstrumentError(f"{self.description.name}: the port vanished ({error})") from error
        end = self._pending.index(b"\n")
        line = bytes(self._pending[:end]).decode("ascii", errors="replace").strip("\r")
        del self._pending[: end + 1]
        return line


class _Stream:
    """The data between `start` and `Acquisition completed`, read strictly."""

    def __init__(self, name: str, dt_s: float) -> None:
        self._name, self._dt_s = name, dt_s
        self.energies_j: list[float] = []
        self.edges: list[int] = []

    def take(self, line: str) -> bool:
        """Take one line; True when it was the last one."""
        text = line.replace(PROMPT, "").strip()
        if sample := _SAMPLE.fullmatch(text):
            self.energies_j.append(int(sample[1]) * 10.0 ** int(sample[2]))
        elif _EVENT.fullmatch(text):
            self.edges.append(len(self.energies_j))
        elif stamp := _TIMESTAMP.fullmatch(text):
            self._check_time(int(stamp[1]) + int(stamp[2]) / 1000, int(stamp[3]))
        elif "Acquisition completed" in text:
            return True
        elif "overcurrent" in text.lower():
            raise InstrumentError(f"{self._name}: over-range, it reports {text!r}; it supplies {MAX_CURRENT_A:g} A")
        elif text.lower().startswith("error"):
            raise InstrumentError(f"{self._name}: the acquisition failed: {text}")
        elif text and not text.startswith(_MESSAGES):
            raise InstrumentError(
                f"{self._name}: {text[:40]!r} after {len(self.energies_j)} samples is neither sample nor message;"
                " bytes were lost on the way"
            )
        return False

    def _check_time(self, elapsed_s: float, buffer_percent: int) -> None:
        if buffer_percent >= 100:
            raise InstrumentError(f"{self._name}: overrun, its buffer is full; is the host overloaded?")
        counted_s = len(self.energies_j) * self._dt_s
        if abs(counted_s - elapsed_s) > 2 * self._dt_s + 1e-3 + _STAMP_SLACK * elapsed_s:
            raise InstrumentError(
                f"{self._name}: lost samples, {len(self.energies_j)} came within {elapsed_s:.3f} s of its time,"
                f" needed {round(elapsed_s / self._dt_s)}; measure again"
            )
