"""Lines over a serial port or a socket, through pyserial: bytes out, whole lines in, every wait with a limit.

A port that breaks (a cable pulled, a hub that resets) raises `LinkTimeout`. Where `relocate` was given, `revive` opens
it again, under the name it has then: a board may come back as another /dev/ttyACM.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import serial

from pipeline.errors import HardwareAbsent, HardwareError, LinkTimeout

# A device that never ends its line must not fill the host's memory; the outputs of one whose RAM they fill are shorter.
LINE_LIMIT_BYTES = 8 << 20
_POLL_S = 0.02
_WRITE_S = 3.0


class EndlessLine(HardwareError):
    """Bytes without a line end: the other side speaks another rate."""


class LinePort:
    """An open port."""

    def __init__(self, url: str, baud: int, name: str = "", relocate: Callable[[], str] | None = None) -> None:
        self.name, self.first_baud = name or url, baud
        self._relocate = relocate
        self._pending = bytearray()
        self._broken = False
        self._port = _opened(url, baud)

    @property
    def can_revive(self) -> bool:
        return self._relocate is not None

    @property
    def baud(self) -> int:
        return int(self._port.baudrate)

    @baud.setter
    def baud(self, baud: int) -> None:
        """From here on; what is still on its way is lost."""
        try:
            self._port.flush()
            self._port.baudrate = baud
        except (serial.SerialException, OSError, ValueError) as error:
            raise LinkTimeout(f"{self.name}: cannot change to {baud} baud ({error})") from error
        self._pending.clear()

    def send(self, text: str) -> None:
        try:
            self._port.write(text.encode("ascii"))
        except (serial.SerialException, OSError) as error:
            self._broken = True
            raise LinkTimeout(f"{self.name}: cannot send {text!r} ({error}); is the board still attached?") from error

    def line(self, deadline: float) -> bytes | None:
        """The next line with its end, or None when the deadline passes first."""
        searched = 0
        while (end := self._pending.find(b"\n", searched) + 1) == 0:
            searched = len(self._pending)
            if time.monotonic() >= deadline:
                return None
            try:
                self._pending += self._port.read(max(1, self._port.in_waiting))
            except (serial.SerialException, OSError, TypeError) as error:  # TypeError: closed in another thread
                self._broken = True
                raise LinkTimeout(f"{self.name}: the port vanished ({error}); is the board still attached?") from error
            if len(self._pending) > LINE_LIMIT_BYTES:
                self._pending.clear()
                raise EndlessLine(f"{self.name}: {LINE_LIMIT_BYTES} B without a line end; check the baud rate")
        line = bytes(self._pending[:end])
        del self._pending[:end]
        return line

    def revive(self, deadline: float) -> None:
        """Open a broken port again; raises the last failure when it does not come back in time."""
        while self._broken and self._relocate is not None:
            self.close()
            try:
                self._port = _opened(self._relocate(), self.first_baud)
            except HardwareError as error:
                if time.monotonic() >= deadline:
                    raise LinkTimeout(f"{self.name}: the port did not come back ({error})") from error
                time.sleep(5 * _POLL_S)
                continue
            self._pending.clear()
            self._broken = False

    def close(self) -> None:
        """Let go of the port."""
        connection = getattr(self._port, "_socket", None)
        with contextlib.suppress(serial.SerialException, OSError):  # it has gone already
            self._port.close()
        if connection is not None:  # pyserial forgets to close a socket that the other side has left
            connection.close()


def _opened(url: str, baud: int) -> Any:
    try:
        port = serial.serial_for_url(url, baudrate=baud, timeout=_POLL_S, write_timeout=_WRITE_S, do_not_open=True)
        # pyserial empties a socket that it has just opened: the beginning of the boot message would go with it.
        port.reset_input_buffer = lambda: None  # type: ignore[method-assign]
        port.open()
    except (serial.SerialException, OSError, ValueError) as error:
        reason = f"cannot be opened ({error}); is the board attached and the port free?"
        raise HardwareAbsent(f"{url}: {reason}") from error
    return port
