"""The host's side of the serial link: MLPerf Tiny's protocol plus our added commands, through pyserial.

A port is anything `serial.serial_for_url` opens: a real one, or `socket://host:port` for the virtual twin and the
fake. Every wait has a limit. A reply that is torn, garbled or late is asked for again after a new sync; one that
stays bad ends in `LinkTimeout` or `DeviceFault` with the command and the last line seen. Whatever has no check of its
own in the protocol (output bytes, build id) is read twice and must agree; inputs are checked by CRC-32.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import serial

from hil import replies
from hil.replies import DeviceRestarted, GarbledReply, Inference, LayerProfile, LayerTicks, MemoryUse
from pipeline.errors import DeviceFault, HardwareAbsent, LinkTimeout

BYTES_PER_DB = 31  # as the stock host; 'db ' + 62 digits + '%' stay below the device's 80 characters
COMMAND_LIMIT = 80
LONG_COMMAND_LIMIT = 250  # of `audio`
LONG_COMMAND = "audio "
ATTEMPTS = 4
LINE_LIMIT_BYTES = 65536  # a device that never ends its line must not fill the host's memory
_POLL_S = 0.02
_WRITE_S = 3.0

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


class DeviceLink:
    """An open link to one device; `sync` first."""

    def __init__(
        self,
        port: Any,
        name: str,
        limits: Limits | None = None,
        nudge: Callable[[], None] | None = None,
        place: Place | None = None,
    ) -> None:
        self._port = port
        self._limits = limits or Limits()
        self._nudge = nudge or (lambda: None)  # called at each sync, for a device that must be woken to listen
        self._place = place or (lambda name, data: False)
        self._pending = bytearray()
        self.name = name
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
    ) -> DeviceLink:
        """Open a port by name or URL; nothing is sent yet."""
        try:
            port = serial.serial_for_url(url, baudrate=baud, timeout=_POLL_S, write_timeout=_WRITE_S, do_not_open=True)
            # pyserial empties a socket that it has just opened: the beginning of the boot message would go with it.
            port.reset_input_buffer = lambda: None  # type: ignore[method-assign]
            port.open()
        except (serial.SerialException, OSError, ValueError) as error:
            reason = f"cannot be opened ({error}); is the board attached and the port free?"
            raise HardwareAbsent(f"{url}: {reason}") from error
        return cls(port, name or url, limits, nudge, place)

    def __enter__(self) -> DeviceLink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the port."""
        connection = getattr(self._port, "_socket", None)
        self._port.close()
        if connection is not None:  # pyserial forgets to close a socket that the other side has left
            connection.close()

    def await_boot(self, timeout_s: float) -> None:
        """Listen, without sending, to a device that was just switched on; one that stays silent is left to `sync`."""
        deadline = time.monotonic() + timeout_s
        seen: list[str] = []
        while (line := self._line(deadline)) is not None:
            if line == replies.READY:
                self.boot_lines = _boot_message(seen)
                return
            seen.append(line)

    def sync(self, timeout_s: float | None = None) -> None:
        """Make sure that the next line read answers the next command sent.

        A command nobody knows, with a fresh word in it, comes back as `e-[Unknown command: WORD]`: whatever arrives
        before that word is old. The leading % ends a command that was left half sent.
        """
        timeout_s = self._limits.sync_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        seen: list[str] = []
        while time.monotonic() < deadline:
            word = f"sync{secrets.token_hex(4)}"
            self._send(f"%{word}%")
            self._nudge()
            attempt_end = min(deadline, time.monotonic() + self._limits.sync_attempt_s)
            answered = False
            while (line := self._line(attempt_end)) is not None:
                answered = answered or word in line
                if answered and line == replies.READY:
                    self.boot_lines = self.boot_lines or _boot_message(seen)
                    return
                seen.append(line)
        last = f"last line was {seen[-1]!r}" if seen else "nothing was received"
        raise LinkTimeout(
            f"{self.name}: no sync within {timeout_s:g} s, {last}; is the board powered and running our image?"
        )

    def command(self, text: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """Send one command and return its lines, without the closing `m-ready`. Asks once: see `query` for retries."""
        limit = LONG_COMMAND_LIMIT if text.startswith(LONG_COMMAND) else COMMAND_LIMIT
        if len(text) >= limit or not text.isascii() or "%" in text:
            raise ValueError(f"not a command: {text!r}")
        self._send(f"{text}%")
        timeout_s = self._limits.reply_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        lines: list[str] = []
        restarted = False
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
            except (LinkTimeout, GarbledReply) as error:
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

    def build_id(self) -> str:
        return self.query_twice("build", replies.build_id)

    def clock_hz(self) -> int:
        return self.query_twice("clock", replies.clock_hz)

    def memory(self) -> MemoryUse:
        return self.query_twice("memory", replies.memory)

    def output(self) -> bytes:
        """The raw bytes of the last inference's output."""
        return self.query_twice("output", replies.output)

    def results(self) -> tuple[float, ...]:
        """The last inference's output as the stock host wants it: dequantised, three decimals."""
        return self.query_twice("results", replies.results)

    def layers(self) -> tuple[LayerTicks, ...]:
        """Run one inference and return what each op took."""
        return self.layer_profile().ops

    def layer_profile(self) -> LayerProfile:
        """The same, with the front end of an image that has one."""
        return self.query("layers", replies.layer_profile, self._limits.infer_s)

    @property
    def limits(self) -> Limits:
        return self._limits

    def infer(self, runs: int = 1, warmup: int = 0) -> Inference:
        """Run `warmup` + `runs` inferences on the loaded input, the latter timed."""
        timeout_s = (warmup + runs) * self._limits.infer_s
        return self.query(f"infer {runs} {warmup}", lambda lines: replies.inference(lines, runs, warmup), timeout_s)

    def load(self, data: bytes) -> None:
        """Send one input and make sure, by its CRC-32, that the device holds these very bytes."""
        self.load_checked(data, lambda: self._send_input(data), "crc")

    def load_checked(self, data: bytes, send: Callable[[], None], crc_command: str) -> None:
        """Let `send` do its work until the device's checksum is that of `data`."""
        wanted, held, trouble = zlib.crc32(data), 0, ""
        for _ in range(ATTEMPTS):
            try:
                send()
            except DeviceRestarted:
                raise
            except (LinkTimeout, DeviceFault) as error:
                trouble = f" (last trouble: {error})"
                self.sync()  # the transfer may still be whole: the checksum decides
            held = self.query(crc_command, replies.crc)
            if held == wanted:
                return
            self.retries += 1
        raise DeviceFault(
            f"{self.name}: input of {len(data)} B has CRC {held:08x} on the device, needed {wanted:08x},"
            f" after {ATTEMPTS} tries; check cable and baud rate{trouble}"
        )

    def send_pieces(
        self, command: str, buffer: str, data: bytes, piece_bytes: int, text: Callable[[bytes], str]
    ) -> None:
        """`COMMAND load N`, then `COMMAND text(piece)` for every piece; or into `buffer` at once where a probe can."""
        if self._place(buffer, data):
            replies.single(self.command(f"{command} place {len(data)}"), "m-load-done")
            return
        replies.single(self.command(f"{command} load {len(data)}"), rf"m-\[Expecting {len(data)} bytes\]")
        for start in range(0, len(data), piece_bytes):
            lines = self.command(f"{command} {text(data[start : start + piece_bytes])}")
            if start + piece_bytes < len(data):
                replies.nothing(lines)
            else:
                replies.single(lines, "m-load-done")

    def outputs_of(self, data: bytes) -> bytes:
        """Load, infer, fetch; all of it again when the device restarts on the way, since it then forgot the input."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.load(data)
                self.infer(1, 0)
                return self.output()
            except DeviceRestarted as error:
                if attempt == ATTEMPTS:
                    raise DeviceFault(f"{error} (it restarted {ATTEMPTS} times)") from error
                self.retries += 1
                self.sync()
        raise AssertionError("unreachable")

    def reset(self) -> None:
        """Restart the device and wait for it."""
        self._send("reset%")
        self.boot_lines = ()
        self.sync()

    def _send_input(self, data: bytes) -> None:
        self.send_pieces("db", "input_buffer", data, BYTES_PER_DB, bytes.hex)

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
                raise DeviceFault(f"{self.name}: refused {text!r}: {refusal}; does its image know this command?")

    def _send(self, text: str) -> None:
        try:
            self._port.write(text.encode("ascii"))
        except (serial.SerialException, OSError) as error:
            raise LinkTimeout(f"{self.name}: cannot send {text!r} ({error}); is the board still attached?") from error

    def _line(self, deadline: float) -> str | None:
        """The next line, or None when the deadline passes first."""
        while b"\n" not in self._pending:
            if time.monotonic() >= deadline:
                return None
            try:
                self._pending += self._port.read(max(1, self._port.in_waiting))
            except (serial.SerialException, OSError) as error:
                raise LinkTimeout(f"{self.name}: the port vanished ({error}); is the board still attached?") from error
            if len(self._pending) > LINE_LIMIT_BYTES:
                self._pending.clear()
                raise GarbledReply(f"{self.name}: {LINE_LIMIT_BYTES} B without a line end; check the baud rate")
        raw, _, rest = bytes(self._pending).partition(b"\n")
        self._pending = bytearray(rest)
        return raw.removesuffix(b"\r").decode("ascii", errors="replace")


def _boot_message(seen: Sequence[str]) -> tuple[str, ...]:
    """The lines of the last start-up among those seen, if it was seen whole."""
    if "m-init-done" not in seen:
        return ()
    end = len(seen) - 1 - list(reversed(seen)).index("m-init-done")
    starts = [index for index in range(end) if seen[index].startswith("m-timestamp-mode-")]
    return tuple(seen[starts[-1] : end + 1]) if starts else ()
