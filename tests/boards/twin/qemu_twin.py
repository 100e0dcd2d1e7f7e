"""A twin in QEMU and the plainest possible talk to it: what the firmware tests need, independent of hil's own link."""

from __future__ import annotations

import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY = b"m-ready\r\n"
CHUNK_BYTES = 31  # what the stock MLPerf Tiny host sends with one db command


class Twin:
    """Sends commands and collects lines up to `m-ready`."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._pending = b""

    def bytes_until_ready(self) -> bytes:
        """Up to `m-ready` and without it."""
        while READY not in self._pending:
            received = self._link.recv(65536)
            assert received, f"the twin closed the link after {self._pending[-200:]!r}"
            self._pending += received
        reply, _, self._pending = self._pending.partition(READY)
        return reply

    def lines_until_ready(self) -> list[str]:
        return self.bytes_until_ready().decode("ascii").split("\r\n")[:-1]

    def hears_within(self, seconds: float) -> bool:
        """Whether anything arrives in that time."""
        return bool(self._pending or select.select([self._link], [], [], seconds)[0])

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def ask(self, command: str) -> list[str]:
        self._link.sendall(command.encode("latin-1") + b"%")
        return self.lines_until_ready()

    def load(self, data: bytes) -> None:
        assert self.ask(f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
        for start in range(0, len(data), CHUNK_BYTES):
            lines = self.ask("db " + data[start : start + CHUNK_BYTES].hex())
        assert lines == ["m-load-done"]

    def output(self) -> bytes:
        lines = self.ask("output")
        return bytes.fromhex("".join(line.removeprefix("m-output-[").removesuffix("]") for line in lines))

    def layer_instructions(self) -> list[int]:
        pairs = [line.removeprefix("m-layer-[").removesuffix("]").split(",") for line in self.ask("layers")]
        assert [int(index) for index, _ in pairs] == list(range(len(pairs)))
        return [int(ticks) for _, ticks in pairs]


@contextmanager
def running_twin(
    image: Path, timeout_s: float = 20.0, arguments: Sequence[str] = (), icount: str = "shift=10"
) -> Iterator[tuple[Twin, list[str]]]:
    """Start QEMU; gives the link and the boot messages."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        server.settimeout(timeout_s)
        port = server.getsockname()[1]
        # QEMU connects to us, so that no byte is sent before we listen and no port number is guessed.
        process = subprocess.Popen(
            [
                *("qemu-system-arm", "-M", "mps2-an500", "-kernel", str(image), "-icount", icount),
                *("-display", "none", "-monitor", "none", "-serial", f"tcp:127.0.0.1:{port},nodelay=on"),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
        )
        try:
            link, _ = server.accept()
            link.settimeout(timeout_s)
            with link:
                twin = Twin(link)
                yield twin, twin.lines_until_ready()
        finally:
            process.terminate()
            process.wait(timeout=10)
