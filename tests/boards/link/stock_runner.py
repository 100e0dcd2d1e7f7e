"""A host that does what MLPerf Tiny's stock runner does on the wire, and no more; its behaviour as seen when the
original (main.py and its modules, mlcommons/tiny, 2025) drove our twins in its three modes.

It knows nothing of our added commands and never looks at the boot message. Of a reply it takes the lines it knows and
overlooks all others. It sends 31 bytes with each `db`, 26 beside a power monitor, and does not check that they arrived;
`infer` always has both numbers. Each of the five blocks loads another file. Results are divided by their sum, a single
one is left alone. Energy is the sum of the samples between the last two events of a block. Of the anomaly detector's
files it sends windows of floats, only the first one for performance and energy. Its weaknesses are kept: a refused load
goes unnoticed, a reply without results ends it with a KeyError, a reply that takes too long with a RuntimeError, and
whether windows are long enough is judged by the whole loop on the host's clock.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import serial

BYTES_PER_DB = 31
BYTES_PER_DB_IN_ENERGY = 26
BLOCKS = 5  # the median of so many counts
MONITOR_BAUD = 3_686_400
REPLY_S = 5.0
INFER_S = 30.0
LEAST_LOOP_S = 10.0
NAME_TRIES = 3


@dataclass(frozen=True)
class Performance:
    """What the runner reports."""

    inferences_per_s: float
    laps_us: tuple[tuple[int, int], ...]
    error: str = ""  # then the original prints no figure


@dataclass(frozen=True)
class EnergyBlock:
    """What the monitor saw between the last two events of a block."""

    duration_s: float
    energy_j: float
    events: tuple[int, ...]  # their numbers


class StockMonitor:
    """The runner's side of an X-NUCLEO-LPM01A: one endless acquisition, whose data is taken after each block."""

    def __init__(self, port: str) -> None:
        self._port = serial.Serial(port, MONITOR_BAUD, timeout=0.1)
        self._pending = b""
        self._samples: list[float] = []
        self._events: list[tuple[int, int]] = []  # number, and samples before it
        for command in (
            *("htc", 'lcd 1 "MLPerf Tiny"', 'lcd 2 "     monitor    "', "pwr off", "acqtime inf", "trigdelay 0"),
            *("trigsrc sw", "eventsrc d7 fal", "output energy", "format ascii_dec", "freq 1k", "volt 1800m"),
            *('lcd 2 "           1.8V "', "pwr on nostatus", "start"),
        ):
            self._send(command, f"ack {command}")

    def block(self) -> EnergyBlock:
        """Forget all up to now when done; the line is so much faster here that the events may still be under way."""
        deadline = time.monotonic() + REPLY_S
        while len(self._events) < 2 and time.monotonic() < deadline:
            self._take(self._line())
        (_, start), (_, end) = self._events[-2:]
        seen = EnergyBlock((end - start) / 1000, sum(self._samples[start:end]), tuple(one for one, _ in self._events))
        self._samples, self._events = [], []
        return seen

    def close(self) -> None:
        """The order is the runner's own. What comes after the last line of a stop would be taken for a refusal."""
        self._send("pwr off", "ack pwr off")
        self._send("stop", "Acquisition completed")
        for command in ("pwr off", "hrc"):
            self._port.write(f"{command}\r\n".encode())
            assert self._line() == f"ack {command}"
        self._port.close()

    def _send(self, command: str, until: str) -> None:
        self._port.write(f"{command}\r\n".encode())
        while (line := self._line()) != until:
            self._take(line)

    def _take(self, line: str) -> None:
        if re.match(r"\d{4}[+-]\d{2}", line):
            self._samples.append(float(line[:4] + "e" + line[4:]))
        elif event := re.match(r"event (\d+) ris", line):
            self._events.append((int(event[1]), len(self._samples)))
        elif line.startswith("TimeStamp"):
            assert re.match(r"TimeStamp:[ ><]\d{3}s \d{3}ms, buff \d{2}%$", line), line

    def _line(self) -> str:
        deadline = time.monotonic() + REPLY_S
        while b"\n" not in self._pending:
            assert time.monotonic() < deadline, f"the monitor fell silent after {self._pending!r}"
            self._pending += self._port.read(max(1, self._port.in_waiting))
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode("ascii").strip()


class StockRunner:
    """`ask` sends a command with its % and returns the lines before `m-ready`."""

    def __init__(self, ask: Callable[[str], list[str]], monitor: StockMonitor | None = None) -> None:
        self._asked, self._monitor = ask, monitor
        self._bytes_per_db = BYTES_PER_DB if monitor is None else BYTES_PER_DB_IN_ENERGY

    def identify(self) -> tuple[str, str]:
        """Vendor and model."""
        for _ in range(NAME_TRIES):
            if names := _matches(r"m-name-dut-\[([^]]+)]$", self._ask("name")):
                break
        (name,) = names
        profile = self._ask("profile")
        (model,) = _matches(r"m-model-\[([^]]+)]$", profile)
        assert _matches(r"m-profile-\[([^]]+)]$", profile) == ["ULPMark for tinyML Firmware V0.0.1"]
        return name, model

    def load(self, data: bytes) -> None:
        self._ask(f"db load {len(data)}")
        for start in range(0, len(data), self._bytes_per_db):
            self._ask("db " + data[start : start + self._bytes_per_db].hex())

    def infer(self, inferences: int, warmups: int) -> tuple[tuple[int, ...], list[float]]:
        """Laps, none in energy mode, and results that add up to one."""
        lines = self._ask(f"infer {inferences} {warmups}")
        found = dict(zip(["results"], _matches(r"m-results-\[([^]]+)\]$", lines), strict=False))
        values = [float(value) for value in found["results"].split(",")]
        laps = tuple(int(lap) for lap in _matches(r"m-lap-us-([0-9]+)$", lines))
        return laps, values if len(values) == 1 else [value / sum(values) for value in values]

    def performance(self, files: Sequence[bytes], inferences: int, warmups: int) -> Performance:
        laps = []
        started = time.monotonic()
        for number in range(BLOCKS):
            self.load(files[number % len(files)])
            laps.append(self.infer(inferences, warmups)[0])
        pairs = tuple((start, end) for start, end in laps)
        median = statistics.median(inferences / ((end - start) / 1e6) for start, end in pairs)
        is_short = time.monotonic() - started < LEAST_LOOP_S
        return Performance(median, pairs, "loop exited before 10 seconds elapsed" if is_short else "")

    def scores(self, data: bytes) -> list[float]:
        """Of one inference in accuracy mode."""
        self.load(data)
        return self.infer(1, 0)[1]

    def file_score(self, data: bytes, window_bytes: int, stride: int) -> float:
        """Of the anomaly detector: the mean over all windows of a file."""
        starts = range(0, len(data) - window_bytes + 1, stride)
        return statistics.fmean(self.scores(data[start : start + window_bytes])[0] for start in starts)

    def stream(self, play: Callable[[], Sequence[float]]) -> tuple[list[float], list[str]]:
        """Stop, start, let the interface board play and note the pulses, stop; when they came, and the last reply."""
        self._ask("stop")  # in case it was not stopped earlier
        self._ask("start")
        times = list(play())
        return times, self._ask("stop")

    def _ask(self, command: str) -> list[str]:
        started = time.monotonic()
        lines = self._asked(command)
        if time.monotonic() - started > (INFER_S if command.startswith("infer") else REPLY_S):
            raise RuntimeError(f"No response to command {command}")
        return lines

    def energy(self, files: Sequence[bytes], inferences: int, warmups: int) -> list[EnergyBlock]:
        assert self._monitor is not None, "energy needs a power monitor"
        blocks = []
        for number in range(BLOCKS):
            self.load(files[number % len(files)])
            assert self.infer(inferences, warmups)[0] == (), "no times are printed in energy mode"
            blocks.append(self._monitor.block())
        return blocks


def _matches(pattern: str, lines: Sequence[str]) -> list[str]:
    return [found[1] for line in lines if (found := re.match(pattern, line))]
