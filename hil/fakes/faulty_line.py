"""A line between host and device that spoils bytes on purpose, and breaks when told to: for tests of the link.

It listens on a port of this machine, connects to the device behind it, and hands bytes on in both directions. Faults
strike at a byte of the whole traffic in one direction, counted from the moment they were `planned`.

    drop      one byte is lost
    flip      one bit of a byte is wrong
    tear      a piece of a line is lost, up to its end
    silence   nothing passes for a while, and what comes meanwhile is lost
    hold      nothing passes for a while, and then all of it
    cut       both sides are disconnected; the host may connect again after a while
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from dataclasses import dataclass
from typing import Literal

from hil.fakes.background import Background

FaultKind = Literal["drop", "flip", "tear", "silence", "hold", "cut"]
_POLL_S = 0.02
_PIECE_BYTES = 4096


@dataclass
class LineFault:
    """What happens, in which direction, at which byte from now on."""

    kind: FaultKind
    to_host: bool = True
    after_bytes: int = 0
    seconds: float = 0.0  # of silence, hold, or until the line may be used again after a cut
    bit: int = 0


class FaultyLine(Background):
    """A context manager; `url` is what the host opens, `device` where the bytes go."""

    def __init__(self, device: tuple[str, int]) -> None:
        super().__init__()
        self._device = device
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"
        self._faults: list[LineFault] = []
        self._passed = {True: 0, False: 0}  # bytes by direction since the last plan
        self._silent_until = self._held_until = self._closed_until = 0.0
        self._held: list[tuple[socket.socket, bytes]] = []
        self._lock = threading.Lock()
        self.struck = 0  # faults that have happened
        self.heard = bytearray()  # what the host was sent since the last plan

    def _close(self) -> None:
        self._listener.close()

    def plan(self, *faults: LineFault) -> None:
        """Replace what is still to come; bytes count from here."""
        with self._lock:
            self._faults = list(faults)
            self._passed = {True: 0, False: 0}
            self._silent_until = self._held_until = self._closed_until = 0.0
            self.struck = 0
            self.heard.clear()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            if time.monotonic() < self._closed_until or not select.select([self._listener], [], [], _POLL_S)[0]:
                time.sleep(0 if time.monotonic() >= self._closed_until else _POLL_S)
                continue
            host, _ = self._listener.accept()
            with host, contextlib.suppress(OSError):
                if time.monotonic() >= self._closed_until:
                    with socket.create_connection(self._device, timeout=5) as device:
                        for side in (host, device):
                            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        self._carry(host, device)

    def _carry(self, host: socket.socket, device: socket.socket) -> None:
        self._held = []
        while not self._stopping.is_set():
            readable, _, _ = select.select([host, device], [], [], _POLL_S)
            for side in readable:
                received = side.recv(_PIECE_BYTES)
                if not received:
                    return
                to_host = side is device
                passed = self._spoilt(received, to_host)
                if passed is None:
                    return
                other = host if to_host else device
                if to_host:
                    self.heard += passed
                if time.monotonic() < self._held_until:
                    self._held.append((other, passed))
                else:
                    self._release()
                    other.sendall(passed)
            if self._held and time.monotonic() >= self._held_until:
                self._release()

    def _release(self) -> None:
        for side, data in self._held:
            side.sendall(data)
        self._held = []

    def _spoilt(self, data: bytes, to_host: bool) -> bytes | None:
        """What is left of the bytes; None: the line is cut."""
        with self._lock:
            start = self._passed[to_host]
            self._passed[to_host] += len(data)
            if time.monotonic() < self._silent_until:
                return b""
            for fault in tuple(self._faults):
                at = fault.after_bytes - start
                if fault.to_host != to_host or at >= len(data):
                    continue
                self._faults.remove(fault)
                self.struck += 1
                changed = self._strike(data, max(0, at), fault)
                if changed is None:
                    return None
                data = changed
            return data

    def _strike(self, data: bytes, at: int, fault: LineFault) -> bytes | None:
        now = time.monotonic()
        if fault.kind == "drop":
            return data[:at] + data[at + 1 :]
        if fault.kind == "flip":
            return data[:at] + bytes([data[at] ^ (1 << fault.bit)]) + data[at + 1 :]
        if fault.kind == "tear":
            end = data.find(b"\n" if fault.to_host else b"%", at)
            return data[:at] + (b"" if end < 0 else data[end + 1 :])
        if fault.kind == "silence":
            self._silent_until = now + fault.seconds
            return data[:at]
        if fault.kind == "hold":
            self._held_until = now + fault.seconds
            return data
        self._closed_until = now + fault.seconds
        return None
