"""A device that speaks the real bytes over a socket or a pseudo-terminal, and misbehaves when told to.

It answers every command of the protocol from a network that is any Python function, so that tests (ours, and those of
a user's own script) need neither board nor QEMU. A `Mishap` says which reply is spoilt, and how:

    silence     the command is swallowed, nothing comes back
    torn        the reply stops in the middle of its first line, and goes on with the next line
    flipped     one bit of the reply is wrong
    doubled     the first line comes twice
    not_ready   the closing m-ready is lost
    deaf        one character of the command is lost on its way to the device
    reset       the device restarts instead of answering, and forgets its input
    vanish      the connection breaks; the next one finds a device that has restarted

Through a pseudo-terminal it has a baud rate: what is sent at another one arrives as noise.
"""

from __future__ import annotations

import base64
import os
import select
import socket
import termios
import time
import tty
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hil.fakes.background import Background
from hil.link.replies import READY

MishapKind = Literal["silence", "torn", "flipped", "doubled", "not_ready", "deaf", "reset", "vanish"]
_POLL_S = 0.05
_OUTPUT_BYTES_PER_LINE = 32
_BUFFER_BYTES_PER_LINE = 8
_RATES = {9600: termios.B9600, 115200: termios.B115200, 460800: termios.B460800, 921600: termios.B921600}
BOOT_LINES = ("m-timestamp-mode-performance", "m-lap-us-0", "m-init-done", READY)
ENERGY_BOOT_LINES = ("m-timestamp-mode-energy", "m-init-done", READY)


@dataclass
class Mishap:
    """Spoil the replies to commands that begin with `command`: the first `times` of them after `skip`."""

    kind: MishapKind
    command: str
    times: int = 1
    skip: int = 0
    position: int = 4  # the byte of the reply (or of the command, when deaf) that is hit


@dataclass(frozen=True)
class FakeNetwork:
    """What the fake runs: a function from input to output bytes, and what each op of it takes."""

    infer: Callable[[bytes], bytes]
    layer_ticks: tuple[int, ...] = (1000, 250)
    build_id: str = "0123456789abcdef"
    clock_hz: int = 216_000_000
    features: Callable[[bytes], bytes] | None = None  # of a front end: from audio to the input of `infer`
    hear: Callable[[int], tuple[str, ...]] = lambda samples: ()  # lines of a stream at so many samples from its start
    tensors: Callable[[bytes], tuple[bytes, ...]] | None = None  # the output of every op
    registers: tuple[tuple[str, int], ...] = (("CPUID", 0x411FC271),)
    energy_mode: bool = False  # tells the time by `pulse`, not in words
    pulse: Callable[[], None] = lambda: None


@dataclass
class _Memory:
    """What a restart wipes out."""

    expected_bytes: int = 0
    input: bytearray = field(default_factory=bytearray)
    expected_audio_bytes: int = 0
    audio: bytearray = field(default_factory=bytearray)
    heard_samples: int = 0
    output: bytes = b""
    clock_us: int = 0
    runs: int = 0  # of the last infer


class FakeDevice(Background):
    """A context manager; `url` is what `DeviceLink.open` wants."""

    def __init__(
        self,
        network: FakeNetwork,
        mishaps: Sequence[Mishap] = (),
        *,
        through: Literal["socket", "pty"] = "socket",
        first_baud: int = 115200,
        baud_confirm_s: float = 1.0,
    ) -> None:
        super().__init__()
        self._network = network
        self._mishaps = list(mishaps)
        self._memory = _Memory()
        self._boot = ENERGY_BOOT_LINES if network.energy_mode else BOOT_LINES
        self._reply_crc = 0
        self._first_baud = self._baud = first_baud
        self._unconfirmed_until, self._baud_confirm_s = 0.0, baud_confirm_s
        self.commands: list[str] = []  # every command received, for tests that count
        if through == "socket":
            self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0))
            self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"
        else:
            self._listener = None
            self._master, self._slave = os.openpty()
            tty.setraw(self._slave)  # no echo of what the device sends before a host is there
            os.set_blocking(self._master, False)
            self.url = os.ttyname(self._slave)

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        else:
            os.close(self._slave)
            os.close(self._master)

    def _serve(self) -> None:
        if self._listener is None:
            self._talk(self._master)
            return
        while not self._stopping.is_set():
            if select.select([self._listener], [], [], _POLL_S)[0]:
                connection, _ = self._listener.accept()
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._talk(connection.fileno())

    def _talk(self, descriptor: int) -> None:
        try:
            _write_all(descriptor, self._on_the_line(_as_bytes(self._boot)))
            pending = b""
            while not self._stopping.is_set():
                if self._unconfirmed_until and time.monotonic() > self._unconfirmed_until:
                    self._baud, self._unconfirmed_until, pending = self._first_baud, 0.0, b""
                if not select.select([descriptor], [], [], _POLL_S)[0]:
                    continue
                received = os.read(descriptor, 4096)
                if not received:
                    return
                *commands, pending = (pending + self._on_the_line(received)).split(b"%")
                for command in commands:
                    rate = self._baud
                    reply = self._reply("".join(chr(byte) if 32 <= byte < 127 else "?" for byte in command))
                    changed, self._baud = self._baud, rate  # the reply still goes out at the old rate
                    _write_all(descriptor, self._on_the_line(reply))
                    self._await_sent()
                    self._baud = changed
        except OSError:
            return  # the host closed its end
        except _Vanished:
            self._memory = _Memory()

    def _on_the_line(self, data: bytes) -> bytes:
        """What arrives of it: noise when the two sides disagree about the rate."""
        if self._listener is not None or termios.tcgetattr(self._slave)[4] == _RATES[self._baud]:
            return data
        return bytes(byte | 0x80 for byte in data)

    def _await_sent(self) -> None:
        """A UART changes its rate after the last byte has left; here, after the host has taken it."""
        deadline = time.monotonic() + 0.5
        while self._listener is None and self._unconfirmed_until and time.monotonic() < deadline:
            if not select.select([self._slave], [], [], 0)[0]:
                return
            time.sleep(0.002)

    def _reply(self, command: str) -> bytes:
        self.commands.append(command)
        mishap = self._due_mishap(command)
        if mishap is None:
            return self._counted(command)
        if mishap.kind == "deaf":
            return self._counted(command[: mishap.position] + command[mishap.position + 1 :])
        if mishap.kind == "silence":
            return b""
        if mishap.kind == "vanish":
            raise _Vanished
        if mishap.kind == "reset":
            self._memory, self._baud = _Memory(), self._first_baud
            return _as_bytes(self._boot)
        whole = self._counted(command)
        return _spoilt(whole.decode("ascii").split("\r\n")[:-1], mishap) if whole else b""

    def _counted(self, command: str) -> bytes:
        """The whole reply, with `check` knowing its checksum."""
        if command == "check" and "check" in self._added:
            return _as_bytes((f"m-check-[{self._reply_crc:08x}]", READY))
        reply = _as_bytes((*self._answer(command), READY))
        self._reply_crc = zlib.crc32(reply)
        return reply

    def _due_mishap(self, command: str) -> Mishap | None:
        for mishap in self._mishaps:
            if command.startswith(mishap.command) and mishap.times > 0:
                if mishap.skip > 0:
                    mishap.skip -= 1
                    continue
                mishap.times -= 1
                return mishap
        return None

    _added = frozenset(
        ("output", "layers", "crc", "build", "clock", "memory", "reset", "check", "tensor", "baud", "audio", "features")
        + ("listen", "stream", "laps", "chip")
    )

    def _answer(self, command: str) -> tuple[str, ...]:
        words = command.split(" ")
        return self._answer_added(words) if words[0] in self._added else self._answer_stock(words)

    def _answer_stock(self, words: list[str]) -> tuple[str, ...]:
        """The commands of MLPerf Tiny."""
        match words:
            case ["name"]:
                return ("m-name-dut-[FAKE]",)
            case ["profile"]:
                return ("m-profile-[ULPMark for tinyML Firmware V0.0.1]", "m-model-[fake]")
            case ["timestamp"]:
                return self._lap()
            case ["db", "load", count] if count.isdigit():
                self._memory.expected_bytes, self._memory.input = int(count), bytearray()
                return (f"m-[Expecting {count} bytes]",)
            case ["db", "print"]:
                return _buffer_lines(bytes(self._memory.input))
            case ["db", digits]:
                return self._take(digits)
            case ["infer", *numbers] if len(numbers) <= 2 and all(number.isdigit() for number in numbers):
                runs, warmup = ([int(number) for number in numbers] + [1, 10][len(numbers) :])[:2]
                return self._infer(runs, warmup) if runs > 0 else ("e-[Inference iterations must be >0]",)
            case ["infer", *_]:
                return ("e-[Inference iterations must be >0]",)
            case ["results"]:
                return (self._results(),)
        return (f"e-[Unknown command: {words[0]}]",)

    def _answer_added(self, words: list[str]) -> tuple[str, ...]:
        """Our own commands."""
        match words:
            case ["audio" | "features" | "listen" | "stream", *rest] if self._network.features is not None:
                return self._answer_audio(words[0], rest)
            case ["tensor", index, *form] if self._network.tensors is not None and form in ([], ["hex"]):
                data = self._network.tensors(bytes(self._memory.input))[int(index)]
                if form:
                    return tuple(f"m-tensor-[{part}]" for part in _hex_lines(data))
                return (f"m-tensor-[{index},{len(data)},{zlib.crc32(data):08x}]",)
            case ["baud", "ok"]:
                self._unconfirmed_until = 0.0
                return ()
            case ["baud", rate]:
                if not rate.isdigit() or int(rate) not in _RATES:
                    return (f"e-[Baud rate refused: {rate}]",)
                self._baud, self._unconfirmed_until = int(rate), time.monotonic() + self._baud_confirm_s
                return (f"m-baud-[{rate}]",)
            case ["output"]:
                return tuple(f"m-output-[{part}]" for part in _hex_lines(self._memory.output))
            case ["layers"]:
                self._run(1)
                return tuple(f"m-layer-[{index},{ticks}]" for index, ticks in enumerate(self._network.layer_ticks))
            case ["laps"]:
                lap = sum(self._network.layer_ticks)
                return tuple(f"m-lap-[{number},{number * lap}]" for number in range(self._memory.runs + 1))
            case ["chip"]:
                return tuple(f"m-chip-[{name},{value:08x}]" for name, value in self._network.registers)
            case ["crc"]:
                return (f"m-crc-[{zlib.crc32(self._memory.input):08x}]",)
            case ["build"]:
                return (f"m-build-[{self._network.build_id}]",)
            case ["clock"]:
                return (f"m-clock-[{self._network.clock_hz}]",)
            case ["memory"]:
                return ("m-memory-[512,4096,20000]",)
            case ["reset"]:
                self._memory, self._baud = _Memory(), self._first_baud
                return self._boot[:-1]
        return (f"e-[Unknown command: {words[0]}]",)

    def _answer_audio(self, command: str, words: list[str]) -> tuple[str, ...]:
        memory, features = self._memory, self._network.features
        assert features is not None
        match [command, *words]:
            case ["audio", "load", count] if count.isdigit():
                memory.expected_audio_bytes, memory.audio = int(count), bytearray()
                return (f"m-[Expecting {count} bytes]",)
            case ["audio", "crc"]:
                return (f"m-crc-[{zlib.crc32(memory.audio):08x}]",)
            case ["audio", text]:
                return self._take_audio(text)
            case ["features"]:
                return tuple(f"m-features-[{part}]" for part in _hex_lines(features(bytes(memory.audio))))
            case ["listen"]:
                memory.output = self._network.infer(features(bytes(memory.audio)))
                return (f"m-word-[{memory.output.index(max(memory.output))}]", self._results())
            case ["stream", "start"]:
                memory.heard_samples = 0
                return ()
            case ["stream", "feed"]:
                memory.heard_samples += len(memory.audio) // 2
                return self._network.hear(memory.heard_samples)
        return (f"e-[Unknown command: {command}]",)

    def _take_audio(self, text: str) -> tuple[str, ...]:
        try:
            self._memory.audio += base64.b64decode(text, validate=True)
        except ValueError:
            return ("e-[Not base64]",)
        return ("m-load-done",) if len(self._memory.audio) == self._memory.expected_audio_bytes else ()

    def _take(self, digits: str) -> tuple[str, ...]:
        if len(digits) % 2:
            return ("e-[Insufficent number of hex digits]",)
        for position in range(0, len(digits), 2):
            pair = digits[position : position + 2]
            if not all(digit in "0123456789abcdefABCDEF" for digit in pair):
                return (f"e-[Invalid hex digit '{pair}']",)
            if len(self._memory.input) < self._memory.expected_bytes:
                self._memory.input.append(int(pair, 16))
        return ("m-load-done",) if len(self._memory.input) == self._memory.expected_bytes else ()

    def _run(self, count: int) -> None:
        self._memory.output, self._memory.runs = self._network.infer(bytes(self._memory.input)), min(count, 32)
        self._memory.clock_us += count * sum(self._network.layer_ticks) * 1_000_000 // self._network.clock_hz

    def _infer(self, runs: int, warmup: int) -> tuple[str, ...]:
        self._run(warmup)
        before = (f"m-warmup-start-{warmup}", "m-warmup-done", f"m-infer-start-{runs}", *self._lap())
        self._run(runs)
        return (*before, *self._lap(), "m-infer-done", self._results())

    def _lap(self) -> tuple[str, ...]:
        if self._network.energy_mode:
            self._network.pulse()
            return ()
        return (f"m-lap-us-{self._memory.clock_us}",)

    def _results(self) -> str:
        return f"m-results-[{','.join(f'{value / 256:.3f}' for value in self._memory.output) or '0.000'}]"


class _Vanished(Exception):
    """The cable was pulled."""


def _buffer_lines(data: bytes) -> tuple[str, ...]:
    parts = range(0, len(data), _BUFFER_BYTES_PER_LINE)
    return tuple(f"m-buffer-{data[start : start + _BUFFER_BYTES_PER_LINE].hex('-')}" for start in parts)


def _hex_lines(data: bytes) -> list[str]:
    parts = range(0, len(data), _OUTPUT_BYTES_PER_LINE)
    return [data[start : start + _OUTPUT_BYTES_PER_LINE].hex() for start in parts]


def _as_bytes(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


def _spoilt(lines: Sequence[str], mishap: Mishap) -> bytes:
    whole = _as_bytes(lines)
    if mishap.kind == "torn":
        return lines[0][: mishap.position].encode("ascii") + _as_bytes(lines[1:])
    if mishap.kind == "doubled":
        return _as_bytes((lines[0], *lines))
    if mishap.kind == "not_ready":
        return _as_bytes(lines[:-1])
    damaged = bytearray(whole)
    damaged[min(mishap.position, len(whole) - 1)] ^= 0x01
    return bytes(damaged)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        if select.select([], [descriptor], [], 1.0)[1]:
            data = data[os.write(descriptor, data) :]
        else:
            return  # nobody reads: a UART would lose the bytes too
