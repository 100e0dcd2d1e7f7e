"""A simulated X-NUCLEO-LPM01A on a pseudo-terminal: the real lines, the timeline's energy, faults on request.

Samples of a limited acquisition come as fast as the host takes them, those of `acqtime inf` as time goes by, until
`stop`; the time stamps, one a second, count milliseconds of either. `pulse()` is an edge of D7 at this moment, for
whoever has a device beside it. The mantissa has four digits, as in the real stream: a relative resolution of 5e-5 to
5e-4, which averages out over many samples.
"""

from __future__ import annotations

import os
import pty
import select
import time
import tty
from collections.abc import Iterator

from hil.fakes.background import Background
from hil.instruments.simulated.timeline import Board, Fault

_STAMP_MS = 1000
_STEP_S = 0.01  # so much of an endless acquisition is sent at once
_UNITS = {"u": 1e-6, "m": 1e-3, "k": 1e3}
_KNOWN = (
    "acqtime",
    "trigdelay",
    "trigsrc",
    "eventsrc",
    "output",
    "format",
    "freq",
    "volt",
    "pwr",
    "htc",
    "hrc",
    "lcd",
    "start",
)


class SimulatedLpm01a(Background):
    """Serves while the context lasts; `port` is what pyserial opens."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self._settings: dict[str, str] = {}
        self._controller, self._terminal = pty.openpty()
        tty.setraw(self._terminal)
        self._pending = b""
        self._pulses = 0  # of D7 that the stream has not told yet
        self.commands: list[str] = []

    @property
    def port(self) -> str:
        return os.ttyname(self._terminal)

    def _close(self) -> None:
        for descriptor in (self._controller, self._terminal):
            if descriptor >= 0:
                os.close(descriptor)

    def pulse(self) -> None:
        """D7 falls now: an event of the acquisition under way."""
        self._pulses += 1

    def _serve(self) -> None:
        try:
            while not self._stopping.is_set():
                command = self._next_command(0.05)
                if command:
                    self.commands.append(command)
                    self._answer(command)
        except OSError:
            return  # the host closed its end

    def _next_command(self, wait_s: float) -> str | None:
        if b"\n" not in self._pending:
            if not select.select([self._controller], [], [], wait_s)[0]:
                return None
            self._pending += os.read(self._controller, 4096)
        if b"\n" not in self._pending:
            return None
        raw, self._pending = self._pending.split(b"\n", 1)
        return raw.decode("ascii", errors="replace").strip()

    def _answer(self, command: str) -> None:
        word, _, value = command.partition(" ")
        if word == "stop":
            self._send("error stop", "Error detail: no acquisition")
        elif word not in _KNOWN:
            self._send(f"error {command}", "Error detail: unknown command")
        else:
            self._settings[word] = value
            self._send(f"ack {command}")
            if word == "start":
                self._stream()

    def _stream(self) -> None:
        fault = self._board.next_fault()
        if fault == "no_trigger":
            return
        for number, lines in enumerate(self._data()):
            if self._spoilt(fault, number):
                return
            if fault == "lost" and number % 97 == 96:
                continue
            if fault == "garbage" and number == 50:
                lines = [lines[-1][:3]]
            if fault == "torn" and number == 50:
                lines = [lines[-1][:4] + lines[-1]]
            if self._was_stopped():
                break
            self._send(*lines)
        self._send("end", "summary beg", "summary end", "Acquisition completed")

    def _was_stopped(self) -> bool:
        """Answer a command that comes amid the data."""
        command = self._next_command(0.0)
        if command is None:
            return self._stopping.is_set()
        self.commands.append(command)
        if command == "start":
            self._send("error start", "Error detail: acquisition under way")
        elif command != "stop":
            self._answer(command)
        return command == "stop"

    def _spoilt(self, fault: Fault | None, number: int) -> bool:
        """Whether the stream ends here, in its midst."""
        if number != 50 or fault not in ("overrun", "over_range", "silence", "vanish"):
            return False
        if fault == "overrun":
            self._send("TimeStamp: 000s 050ms, buff 100%", "error: buffer full")
        if fault == "over_range":
            self._send("error: overcurrent on target")
        if fault == "vanish":
            descriptor, self._controller = self._controller, -1
            os.close(descriptor)
            raise OSError("unplugged")
        return True

    def _data(self) -> Iterator[list[str]]:
        """The lines of each sample: edges within it come before it."""
        period_s = 1 / _number(self._settings["freq"])
        duration_s = _number(self._settings["acqtime"])
        edges_s, events = list(self._board.timeline.edges_s), 0
        self._pulses = 0
        for number, energy_j in enumerate(self._energies_j(period_s, duration_s)):
            lines = []
            milliseconds = round(number * period_s * 1000)
            if number and milliseconds % _STAMP_MS == 0 and (number - 1) * period_s * 1000 < milliseconds - 0.5:
                lines.append(f"TimeStamp: {milliseconds // 1000:03d}s {milliseconds % 1000:03d}ms, buff 02%")
            while edges_s and edges_s[0] <= (number + 0.5) * period_s:
                edges_s.pop(0)
                self._pulses += 1
            while self._pulses:
                self._pulses -= 1
                events += 1
                lines.append(f"event {events} ris")
            yield [*lines, _sample(energy_j)]

    def _energies_j(self, period_s: float, duration_s: float) -> Iterator[float]:
        """Of each sample; those of an endless acquisition when their time has come."""
        to_joules = self._board.voltage_v * period_s
        if duration_s not in (0.0, float("inf")):
            currents_a = self._board.mean_currents_a(0.0, period_s, round(duration_s / period_s))
            yield from map(float, currents_a * to_joules)
            return
        begin_s, done = time.monotonic(), 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - begin_s) / period_s) - done
            if due > 0:
                currents_a = self._board.mean_currents_a(done * period_s, period_s, due)
                yield from map(float, currents_a * to_joules)
                done += due
            time.sleep(_STEP_S)

    def _send(self, *lines: str) -> None:
        data = "".join(f"{line}\r\n" for line in lines).encode("ascii")
        while data and not self._stopping.is_set():
            if select.select([], [self._controller], [], 0.05)[1]:
                data = data[os.write(self._controller, data) :]


def _sample(energy_j: float) -> str:
    mantissa, exponent = f"{max(energy_j, 0.0):.3E}".split("E")
    return f"{mantissa.replace('.', '')}{int(exponent) - 3:+03d}"


def _number(text: str) -> float:
    return float(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else float(text)
