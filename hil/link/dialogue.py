"""A dialogue with a device: commands out, whole replies in, in step and confirmed; `device_link.py` knows the commands.

A port is anything `serial.serial_for_url` opens: a real one, or `socket://host:port` for the virtual twin and the
fake. Every wait has a limit. A reply that is torn, garbled or late is asked for again after a new sync; one that
stays bad ends in `LinkTimeout` or `DeviceFault` with the command and the last line seen. Replies whose numbers count
are confirmed by the device's own CRC-32 of them (`check`); a device without that command is asked twice instead.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from hil.link import replies
from hil.link.line_port import EndlessLine, LinePort
from hil.link.replies import CommandRefused, DeviceRestarted, GarbledReply
from pipeline.errors import DeviceFault, LinkTimeout

COMMAND_LIMIT = 80
LONG_COMMAND_LIMIT = 250  # of `audio`
LONG_COMMAND = "audio "
ATTEMPTS = 4
ENERGY_BAUD = 9600  # of an image in energy mode, whatever the board's usual rate
_STATELESS = ("build", "clock", "memory", "timestamp", "check", "name", "profile")  # the same after a restart

Value = TypeVar("Value")
# Writes bytes into a named buffer of the running image, past the serial line; False where that is not possible.
Place = Callable[[str, bytes], bool]


@dataclass(frozen=True)
class Limits:
    """How long to wait."""

    reply_s: float = 3.0
    infer_s: float = 60.0  # a large network with portable kernels, in QEMU on a busy machine
    sync_s: float = 10.0  # in all
    sync_attempt_s: float = 1.0
    baud_confirm_s: float = 0.8  # the device waits for a second
    baud_fall_back_s: float = 1.3


class Dialogue:
    """An open port with a device at its other end; `sync` first."""

    def __init__(
        self,
        port: LinePort,
        limits: Limits | None = None,
        nudge: Callable[[], None] | None = None,
        place: Place | None = None,
        other_baud: int | None = None,
    ) -> None:
        self._port = port
        self._limits = limits or Limits()
        self._nudge = nudge or (lambda: None)  # called at each sync, for a device that must be woken to listen
        self._place = place or (lambda name, data: False)
        self._reply_crc = 0  # of the last whole reply, as it came
        self._known: set[str] = set()  # of our added commands, those that this device answers
        self._unknown: set[str] = set()  # and those that it has refused as unknown
        self._rates = (port.first_baud, other_baud or port.first_baud)  # between which a sync tries
        self._agreed = False  # on a rate that is not the device's first one
        self._tells_time: bool | None = None  # False in energy mode; None: not asked yet
        self.name = port.name
        self.boot_lines: tuple[str, ...] = ()  # seen before the first sync was answered
        self.retries = 0  # commands that had to be asked for again

    @classmethod
    def open(
        cls,
        url: str,
        *,
        baud: int = 115200,
        name: str = "",
        limits: Limits | None = None,
        nudge: Callable[[], None] | None = None,
        place: Place | None = None,
        relocate: Callable[[], str] | None = None,
        other_baud: int | None = None,
    ) -> Self:
        """Open a port by name or URL; nothing is sent yet.

        `relocate` tells where the port is after it has vanished; `other_baud` is a rate that the device may speak
        instead, which the first sync finds out.
        """
        return cls(LinePort(url, baud, name, relocate), limits, nudge, place, other_baud)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the port."""
        self._port.close()

    def await_boot(self, timeout_s: float) -> None:
        """Listen, without sending, to a device that was just switched on; one that stays silent is left to `sync`."""
        deadline = time.monotonic() + timeout_s
        seen: list[str] = []
        while (line := self._line(deadline)) is not None:
            if line == replies.READY:
                self.boot_lines = _boot_message(seen)
                return
            seen.append(line)

    def restart(self, timeout_s: float | None = None) -> None:
        """Have the device start anew; `boot_lines` are what it then says. Counters and clocks begin afresh."""
        self._port.send("reset%")
        self.boot_lines, self._agreed = (), False
        if self._port.baud != self._port.first_baud:
            self._port.baud = self._port.first_baud
        self.await_boot(self._limits.reply_s if timeout_s is None else timeout_s)
        self.sync()

    def told_until_boot(self, command: str, timeout_s: float) -> tuple[str, ...]:
        """Send what ends in a restart; every line up to the boot message's `m-ready`, or what came in that time."""
        self._port.send(f"{command}%")
        deadline = time.monotonic() + timeout_s
        seen: list[str] = []
        while (line := self._line(deadline)) is not None:
            if line == replies.READY:
                break
            seen.append(line)
        return tuple(seen)

    def sync(self, timeout_s: float | None = None) -> None:
        """Make sure that the next line read answers the next command sent.

        A command nobody knows, with a fresh word in it, comes back as `e-[Unknown command: WORD]`: whatever arrives
        before that word is old. The leading % ends a command that was left half sent.
        """
        timeout_s = self._limits.sync_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        seen: list[str] = []
        while time.monotonic() < deadline:
            try:
                self._port.revive(deadline)
                if self._try_sync(seen, min(deadline, time.monotonic() + self._limits.sync_attempt_s)):
                    if not self._agreed:
                        self._port.first_baud, self._rates = self._port.baud, (self._port.baud, self._port.baud)
                    return
            except LinkTimeout:
                if not self._port.can_revive or time.monotonic() >= deadline:
                    raise
            if self._rates[0] != self._rates[1]:  # a device that restarted is back at its first rate
                self._port.baud = self._rates[0] if self._port.baud == self._rates[1] else self._rates[1]
        last = f"last line was {seen[-1]!r}" if seen else "nothing was received"
        raise LinkTimeout(
            f"{self.name}: no sync within {timeout_s:g} s, {last}; is the board powered and running our image?"
        )

    def _try_sync(self, seen: list[str], deadline: float) -> bool:
        word = f"sync{secrets.token_hex(4)}"
        self._port.send(f"%{word}%")
        self._nudge()
        answered = False
        while (line := self._line(deadline)) is not None:
            answered = answered or word in line
            if answered and line == replies.READY:
                self.boot_lines = self.boot_lines or _boot_message(seen)
                return True
            seen.append(line)
        return False

    def command(self, text: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """Send one command and return its lines, without the closing `m-ready`. Asks once: see `query` for retries."""
        limit = LONG_COMMAND_LIMIT if text.startswith(LONG_COMMAND) else COMMAND_LIMIT
        if len(text) >= limit or not text.isascii() or "%" in text:
            raise ValueError(f"not a command: {text!r}")
        self._port.send(f"{text}%")
        timeout_s = self._limits.reply_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        lines: list[str] = []
        restarted, self._reply_crc = False, 0
        while (line := self._line(deadline)) is not None:
            restarted = restarted or line.startswith(replies.BOOT_MARKS)
            if line.endswith(replies.READY):
                self._refuse_faults(text, lines)
                if restarted:
                    raise DeviceRestarted(f"{self.name}: restarted during {text!r}; is its supply stable?")
                if line != replies.READY:
                    raise GarbledReply(f"{self.name}: torn line {line!r} in the reply to {text!r}")
                self._refuse_errors(text, lines)
                return tuple(lines)
            lines.append(line)
        last = f"last line was {lines[-1]!r}" if lines else "nothing was received"
        raise LinkTimeout(
            f"{self.name}: no m-ready to {text!r} within {timeout_s:g} s, {last}; is the board still powered?"
        )

    def query(self, text: str, parse: Callable[[Sequence[str]], Value], timeout_s: float | None = None) -> Value:
        """A command that may be repeated, parsed; asked again after a sync when the reply is late or garbled."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return parse(self.command(text, timeout_s))
            except (LinkTimeout, GarbledReply, CommandRefused, DeviceRestarted) as error:
                if isinstance(error, DeviceRestarted) and text not in _STATELESS:
                    raise  # what it held is lost: the caller must begin anew
                if attempt == ATTEMPTS:
                    raise type(error)(f"{error} ({text!r} to {self.name} was sent {ATTEMPTS} times)") from error
                self.retries += 1
                self.sync()
        raise AssertionError("unreachable")

    def query_twice(self, text: str, parse: Callable[[Sequence[str]], Value], timeout_s: float | None = None) -> Value:
        """For replies without a check of their own: two in a row must agree, so that a flipped bit cannot pass."""
        previous = self.query(text, parse, timeout_s)
        for _ in range(ATTEMPTS):
            value = self.query(text, parse, timeout_s)
            if value == previous:
                return value
            previous = value
            self.retries += 1
        raise DeviceFault(
            f"{self.name}: {ATTEMPTS + 1} replies to {text!r}, no two in a row alike; check cable and baud rate"
        )

    def query_checked(
        self, text: str, parse: Callable[[Sequence[str]], Value], timeout_s: float | None = None
    ) -> Value:
        """A reply that is right: confirmed by the device's checksum of it, or read twice where it has none."""
        if self.knows("check"):
            return self.query(text, lambda lines: parse(self._confirmed(text, lines)), timeout_s)
        return self.query_twice(text, parse, timeout_s)

    def command_checked(self, text: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """`command`, once, its reply confirmed where the device can."""
        confirmable = self.knows("check")  # asked first: its own reply has a checksum too
        lines = self.command(text, timeout_s)
        return self._confirmed(text, lines) if confirmable else lines

    def _confirmed(self, text: str, lines: Sequence[str]) -> tuple[str, ...]:
        """The lines, if the device's checksum of its last reply is that of what arrived here."""
        arrived, sent = self._reply_crc, 0
        for _ in range(2):  # the checksum itself may be what was damaged
            sent = replies.check(self.command("check"))
            if sent == arrived:
                return tuple(lines)
        raise GarbledReply(
            f"{self.name}: the reply to {text!r} arrived with CRC {arrived:08x}, the device sent {sent:08x}"
        )

    def knows(self, command: str) -> bool:
        """Whether the device has this command of ours; stock firmware has not."""
        if command in self._unknown:
            return False
        if command not in self._known:
            try:
                self.query(command, lambda lines: lines)
                self._known.add(command)
            except DeviceFault as error:
                if not isinstance(error, GarbledReply) and f"Unknown command: {command}" in str(error):
                    self._unknown.add(command)
                    return False
                raise
        return True

    @property
    def baud(self) -> int:
        return self._port.baud

    @property
    def limits(self) -> Limits:
        return self._limits

    def change_baud(self, baud: int) -> bool:
        """Agree on another serial rate; False: both sides stay at (or are back to) the one they had."""
        try:
            replies.single(self.command(f"baud {baud}"), rf"m-baud-\[{baud}\]")
            self._port.baud = baud
            replies.nothing(self.command("baud ok", self._limits.baud_confirm_s))
            self._rates, self._agreed = (self._port.first_baud, baud), True
        except (LinkTimeout, GarbledReply):
            # Without a confirmation the device goes back; only the reply to it may have been lost, so both are tried.
            self._rates, self._agreed = (self._port.first_baud, baud), True
            self._port.baud = self._port.first_baud
            time.sleep(self._limits.baud_fall_back_s)
            self.sync()
            self._rates = (self._port.first_baud, self._port.baud)
        except DeviceFault:  # refused: nothing has changed
            return False
        return self._port.baud == baud

    def _refuse_faults(self, text: str, lines: Sequence[str]) -> None:
        for line in lines:
            if line.startswith(replies.FAULT_MARK):
                raise DeviceFault(
                    f"{self.name}: the core faulted during {text!r}: {replies.error_text(line) or line}; it restarted"
                )

    def _refuse_errors(self, text: str, lines: Sequence[str]) -> None:
        for line in lines:
            if not replies.is_well_formed(line):
                raise GarbledReply(f"{self.name}: garbled line {line!r} in the reply to {text!r}")
            if (refusal := replies.error_text(line)) is not None:
                # The device echoes what it understood: an echo that is not our command was garbled on the way there.
                unknown = refusal.partition("Unknown command: ")[2]
                if unknown and unknown not in (text, text.split(" ")[0]):
                    raise GarbledReply(f"{self.name}: understood {refusal!r} where {text!r} was sent")
                if refusal.startswith(replies.DAMAGED):
                    raise GarbledReply(f"{self.name}: {text!r} arrived damaged there")
                kind = DeviceFault if unknown else CommandRefused
                raise kind(f"{self.name}: refused {text!r}: {refusal}; does its image know this command?")

    def _line(self, deadline: float) -> str | None:
        """The next line as text, or None when the deadline passes first."""
        try:
            raw = self._port.line(deadline)
        except EndlessLine as error:
            raise GarbledReply(str(error)) from error
        if raw is None:
            return None
        self._reply_crc = zlib.crc32(raw, self._reply_crc)
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode("ascii", errors="replace")


def _boot_message(seen: Sequence[str]) -> tuple[str, ...]:
    """The lines of the last start-up among those seen, if it was seen whole."""
    if "m-init-done" not in seen:
        return ()
    end = len(seen) - 1 - list(reversed(seen)).index("m-init-done")
    starts = [index for index in range(end) if seen[index].startswith("m-timestamp-mode-")]
    return tuple(seen[starts[-1] : end + 1]) if starts else ()
