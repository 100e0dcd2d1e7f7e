"""A TCP server for simulated SCPI instruments: `TCPIP::127.0.0.1::port::SOCKET` to PyVISA.

A `ScpiDevice` declares its commands by the manual's spelling (`SENSe:SWEep:POINts`): short and long forms, any case,
`;` between commands and a leading `:` are understood. What it does not know lands in the error queue as -113, which
`SYSTem:ERRor?` empties, as IEEE 488.2 and SCPI-99 (21.8) want it. Binary data go out as definite length blocks.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

import numpy as np

from hil.instruments.trace import FloatArray

Handler = Callable[[str], bytes | str | None]  # the parameters as text -> the reply, or None when there is none
OVERLOAD = 9.9e37  # what SCPI instruments send for a reading that is beyond the range (SCPI-99, 7.2.1.4)


class Vanished(Exception):
    """The instrument closes the connection."""


class ScpiDevice:
    """Commands, error queue and the common commands; instruments add their own."""

    identity = "SIMULATED,NONE,0,0"

    def __init__(self) -> None:
        self.errors: deque[tuple[int, str]] = deque(maxlen=20)
        self.transcript: dict[str, bytes] = {}  # every line received, with the last reply to it
        self._commands: list[tuple[re.Pattern[str], Handler]] = []
        self.command("*IDN?", lambda _: self.identity)
        self.command("*CLS", self._clear)
        self.command("*RST", lambda _: self.reset())
        self.command("*OPC?", lambda _: "1")
        self.command("SYSTem:ERRor?", self._next_error)

    def command(self, header: str, handler: Handler) -> None:
        """Declare a command; the capitals of the header are its short form."""
        self._commands.append((re.compile(_header_pattern(header), re.IGNORECASE), handler))

    def setting(self, header: str, default: str) -> dict[str, str]:
        """Declare a command with its query; the values are kept by channel list ('' without one)."""
        values: dict[str, str] = {}

        def write(text: str) -> None:
            value, _, channels = text.partition(",(@")
            values[channels.rstrip(")")] = value.strip()

        self.command(header, write)
        self.command(f"{header}?", lambda text: values.get(text.strip().strip("(@)"), default))
        return values

    def reset(self) -> None:
        """Back to what *RST leaves."""

    def execute(self, line: str) -> bytes:
        """Everything the line asks for, as the bytes to send back."""
        replies = [reply for part in line.split(";") if part.strip() and (reply := self._one(part.strip())) is not None]
        self.transcript[line] = b";".join(replies) + b"\n" if replies else b""
        return self.transcript[line]

    def _one(self, text: str) -> bytes | None:
        header, _, parameters = text.partition(" ")
        for pattern, handler in self._commands:
            if pattern.fullmatch(header):
                reply = handler(parameters)
                return reply.encode("ascii") if isinstance(reply, str) else reply
        self.errors.append((-113, "Undefined header"))
        return None

    def _clear(self, _: str) -> None:
        self.errors.clear()

    def _next_error(self, _: str) -> str:
        number, text = self.errors.popleft() if self.errors else (0, "No error")
        return f'{number:+d},"{text}"'


class ScpiServer:
    """Serves one device on a port of this machine while the context lasts; one connection after or beside another."""

    def __init__(self, device: ScpiDevice) -> None:
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.device = device
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def resource(self) -> str:
        return f"TCPIP::127.0.0.1::{self._server.server_address[1]}::SOCKET"

    def __enter__(self) -> ScpiServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        for connection in tuple(self._server.connections):
            connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join(timeout=5.0)


def block(values: FloatArray, item: str) -> bytes:
    """An IEEE 488.2 definite length block (8.7.9) of big-endian numbers; `item` is '>f4' or '>f8'."""
    data = np.asarray(values).astype(item).tobytes()
    length = str(len(data))
    return f"#{len(length)}{length}".encode("ascii") + data


def _header_pattern(header: str) -> str:
    nodes = []
    for node in header.rstrip("?").split(":"):
        short = "".join(character for character in node if not character.islower())
        nodes.append(re.escape(node) if short == node else f"(?:{re.escape(short)}|{re.escape(node)})")
    return ":?" + ":".join(nodes) + (r"\?" if header.endswith("?") else "")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    device: ScpiDevice

    def __init__(self, address: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        super().__init__(address, handler)
        self.connections: set[socket.socket] = set()


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        self.server.connections.add(self.connection)
        try:
            for raw in self.rfile:
                reply = self.server.device.execute(raw.decode("ascii", errors="replace").strip())
                self.wfile.write(reply)
        except (Vanished, OSError):
            return  # simulated, or the host has gone
        finally:
            self.server.connections.discard(self.connection)
