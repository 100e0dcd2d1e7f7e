"""Writing into the twin's memory past its serial line, as a debug probe does on a board: through QEMU's GDB server.

QEMU takes a byte of serial input in some 60 us, so that a second of audio would take two; here it takes milliseconds.
The machine stands still meanwhile: between two instructions, with its instruction count, and goes on when let go.
GDB Remote Serial Protocol: `$PACKET#CHECKSUM`, acknowledged by +; M writes memory in hex, D lets go.
"""

from __future__ import annotations

import socket
from types import TracebackType

from pipeline.errors import LinkTimeout

_BYTES_A_PACKET = 1024  # QEMU's packets hold 4096 characters
_REPLY_S = 10.0


class MemoryProbe:
    """A context manager: the machine stands still inside it."""

    def __init__(self, port: int, name: str) -> None:
        self._port, self._name = port, name
        self._link: socket.socket
        self._pending = b""

    def __enter__(self) -> MemoryProbe:
        try:
            self._link = socket.create_connection(("127.0.0.1", self._port), timeout=_REPLY_S)
        except OSError as error:
            raise LinkTimeout(
                f"{self._name}: its GDB server does not answer ({error}); does QEMU still run?"
            ) from error
        self._link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = b""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._ask("D")
        finally:
            self._link.close()

    def write(self, address: int, data: bytes) -> None:
        """Put `data` at `address`."""
        for start in range(0, len(data), _BYTES_A_PACKET):
            part = data[start : start + _BYTES_A_PACKET]
            self._ask(f"M{address + start:x},{len(part):x}:{part.hex()}")

    def _ask(self, packet: str) -> None:
        checksum = sum(packet.encode("ascii")) & 0xFF
        try:
            self._link.sendall(f"${packet}#{checksum:02x}".encode("ascii"))
            answer = self._answer()
            while answer.startswith(b"T"):  # 'it has stopped', sent whenever that happens
                answer = self._answer()
        except OSError as error:
            raise LinkTimeout(f"{self._name}: its GDB server fell silent ({error}); does QEMU still run?") from error
        if answer != b"OK":
            raise LinkTimeout(f"{self._name}: GDB server answered {answer!r} to {packet[:20]!r}..., needed OK")

    def _answer(self) -> bytes:
        """The next packet, acknowledged; acknowledgements of ours are passed over."""
        while True:
            head, mark, rest = self._pending.partition(b"#")
            if mark and len(rest) >= 2:
                self._pending = rest[2:]
                self._link.sendall(b"+")
                return head.lstrip(b"+").removeprefix(b"$")
            received = self._link.recv(4096)
            if not received:
                raise ConnectionError("closed")
            self._pending += received
