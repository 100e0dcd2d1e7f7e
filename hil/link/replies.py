"""What the device's lines mean: MLPerf Tiny's `m-...` and `e-[...]` lines, and those of the added commands, as values.

Every parser takes the lines of one whole reply (without the closing `m-ready`) and accepts exactly the form that the
protocol gives it: a torn, doubled, missing or garbled line raises `GarbledReply`, so that the caller can ask again. A
reply is never read leniently, because half a number is still a number.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import DeviceFault

READY = "m-ready"
BOOT_MARKS = ("m-timestamp-mode-", "m-init-done")
FAULT_MARK = "e-[Fault:"  # the fault handler's registers; a restart follows
DAMAGED = "Line damaged"  # the beginning of an error: our command did not arrive whole

_PRINTABLE = re.compile(r"[ -~]*\Z")
_ERROR = re.compile(r"e-\[(.*)\]\Z")


class GarbledReply(DeviceFault):
    """A line was torn, doubled, missing or not in the protocol's form; asking again may help."""


class CommandRefused(DeviceFault):
    """The device knows the command and refuses its arguments: perhaps they were garbled on their way there."""


class DeviceRestarted(DeviceFault):
    """The device started anew in the middle of a command; what it held is lost."""


@dataclass(frozen=True)
class LayerTicks:
    """What one op took: DWT cycles on hardware, instructions on the twin."""

    index: int
    ticks: int


@dataclass(frozen=True)
class LayerProfile:
    """One inference; `front_end_ticks` is None for an image that takes features instead of audio."""

    front_end_ticks: int | None
    ops: tuple[LayerTicks, ...]


@dataclass(frozen=True)
class Burst:
    """Inferences right behind each other: ticks of all of them together, and of each."""

    ticks: int
    laps: tuple[int, ...]


@dataclass(frozen=True)
class MemoryUse:
    """Painted-stack high-water mark, size of the stack, size of the arena."""

    stack_high_water_bytes: int
    stack_bytes: int
    arena_bytes: int


@dataclass(frozen=True)
class TensorSeen:
    """The output of one op, right after it."""

    size_bytes: int
    crc: int


@dataclass(frozen=True)
class Inference:
    """One block: what the device's clock showed before and after it, and the dequantised results it printed."""

    start_us: int | None  # None in energy mode, where the pin tells the time
    end_us: int | None
    results: tuple[float, ...]

    @property
    def elapsed_us(self) -> int:
        assert self.start_us is not None and self.end_us is not None, "asked for the time of a device in energy mode"
        return self.end_us - self.start_us


def is_well_formed(line: str) -> bool:
    """Is this a line that the protocol knows: printable, and either a message or an error?"""
    return _PRINTABLE.match(line) is not None and (line.startswith("m-") or _ERROR.match(line) is not None)


def error_text(line: str) -> str | None:
    """The text of an `e-[...]` line."""
    match = _ERROR.match(line)
    return match[1] if match else None


def single(lines: Sequence[str], pattern: str) -> re.Match[str]:
    """The one line of a reply that must have one, matched whole."""
    match = re.fullmatch(pattern, lines[0]) if len(lines) == 1 else None
    if match is None:
        raise GarbledReply(f"found {_shown(lines)}, needed one line of the form {pattern}")
    return match


def nothing(lines: Sequence[str]) -> None:
    """A reply that is only `m-ready`."""
    if lines:
        raise GarbledReply(f"found {_shown(lines)}, needed m-ready alone")


def build_id(lines: Sequence[str]) -> str:
    return single(lines, r"m-build-\[([0-9a-f]{16})\]")[1]


def crc(lines: Sequence[str]) -> int:
    return int(single(lines, r"m-crc-\[([0-9a-f]{8})\]")[1], 16)


def check(lines: Sequence[str]) -> int:
    return int(single(lines, r"m-check-\[([0-9a-f]{8})\]")[1], 16)


def tensor(lines: Sequence[str], op: int) -> TensorSeen:
    match = single(lines, rf"m-tensor-\[{op},([0-9]+),([0-9a-f]{{8}})\]")
    return TensorSeen(int(match[1]), int(match[2], 16))


def tells_time(lines: Sequence[str]) -> bool:
    """From the reply to `timestamp`: a time in performance mode, nothing in energy mode."""
    if lines:
        single(lines, r"m-lap-us-[0-9]+")
    return bool(lines)


def printed_input(lines: Sequence[str]) -> bytes:
    """The reply to `db print`: lines of eight bytes, only the last one may be shorter."""
    found = b""
    for number, line in enumerate(lines):
        part = bytes.fromhex(single((line,), r"m-buffer-([0-9a-fA-F]{2}(?:-[0-9a-fA-F]{2}){0,7})")[1].replace("-", ""))
        if len(part) != 8 and number + 1 < len(lines):
            raise GarbledReply(f"found {line!r}, needed eight bytes: some are missing")
        found += part
    return found


def clock_hz(lines: Sequence[str]) -> int:
    return int(single(lines, r"m-clock-\[([0-9]+)\]")[1])


def memory(lines: Sequence[str]) -> MemoryUse:
    match = single(lines, r"m-memory-\[([0-9]+),([0-9]+),([0-9]+)\]")
    return MemoryUse(int(match[1]), int(match[2]), int(match[3]))


def results(lines: Sequence[str]) -> tuple[float, ...]:
    match = single(lines, r"m-results-\[(-?[0-9]+(?:\.[0-9]+)?(?:,-?[0-9]+(?:\.[0-9]+)?)*)\]")
    return tuple(float(word) for word in match[1].split(","))


def output(lines: Sequence[str]) -> bytes:
    """The raw output tensor, which may come in several lines."""
    return hex_lines(lines, "m-output-")


def hex_lines(lines: Sequence[str], head: str) -> bytes:
    """Bytes that came as one or more lines `HEAD[hex]`."""
    if not lines:
        raise GarbledReply(f"found an empty reply, needed {head}[hex bytes]")
    return b"".join(bytes.fromhex(single((line,), rf"{head}\[((?:[0-9a-f]{{2}})+)\]")[1]) for line in lines)


def layer_profile(lines: Sequence[str]) -> LayerProfile:
    """One line per op, each op once and in order, after that of the front end if there is one."""
    front_end = re.fullmatch(r"m-layer-\[front_end,([0-9]+)\]", lines[0]) if lines else None
    found = []
    for expected, line in enumerate(lines[1:] if front_end else lines):
        match = single((line,), r"m-layer-\[([0-9]+),([0-9]+)\]")
        if int(match[1]) != expected:
            raise GarbledReply(f"found {line!r}, needed the line of op {expected}: one is missing or doubled")
        found.append(LayerTicks(expected, int(match[2])))
    if not found:
        raise GarbledReply("found an empty reply, needed one m-layer-[index,ticks] per op")
    return LayerProfile(int(front_end[1]) if front_end else None, tuple(found))


def laps(lines: Sequence[str], runs: int) -> Burst:
    """The reply to `laps` after `infer N`: the counter before the first and after each inference, in order."""
    if len(lines) != runs + 1:
        raise GarbledReply(f"found {_shown(lines)}, needed {runs + 1} lines after infer {runs}")
    ends = [int(single((line,), rf"m-lap-\[{lap},([0-9]+)\]")[1]) for lap, line in enumerate(lines)]
    ticks = tuple(after - before for before, after in itertools.pairwise(ends))
    if min(ticks) < 0:
        raise GarbledReply(f"found a counter that runs backwards: {min(ticks)} ticks")
    return Burst(sum(ticks), ticks)


def chip(lines: Sequence[str]) -> dict[str, int]:
    """The reply to `chip`: registers by name."""
    matches = [single((line,), r"m-chip-\[([A-Z][A-Z0-9_]*),([0-9a-f]{8})\]") for line in lines]
    if not matches:
        raise GarbledReply("found an empty reply, needed one m-chip-[register,value] or more")
    return {match[1]: int(match[2], 16) for match in matches}


def inference(lines: Sequence[str], runs: int, warmup: int, laps: bool = True) -> Inference:
    """The reply to `infer N W`, line by line; without `laps` that of a device in energy mode."""
    lap = (r"m-lap-us-([0-9]+)",) * (2 if laps else 0)
    expected = (rf"m-warmup-start-{warmup}", r"m-warmup-done", rf"m-infer-start-{runs}", *lap, r"m-infer-done")
    if len(lines) != len(expected) + 1:
        raise GarbledReply(f"found {_shown(lines)}, needed {len(expected) + 1} lines after infer {runs} {warmup}")
    matches = [single((line,), pattern) for line, pattern in zip(lines, expected, strict=False)]
    if not laps:
        return Inference(None, None, results(lines[-1:]))
    start_us, end_us = int(matches[3][1]), int(matches[4][1])
    if end_us < start_us:
        raise GarbledReply(f"found a clock that runs backwards: {start_us} us, then {end_us} us")
    return Inference(start_us, end_us, results(lines[-1:]))


def _shown(lines: Sequence[str]) -> str:
    shown = ", ".join(repr(line) for line in lines[:4])
    return f"{len(lines)} lines ({shown}{', ...' if len(lines) > 4 else ''})" if lines else "no line"
