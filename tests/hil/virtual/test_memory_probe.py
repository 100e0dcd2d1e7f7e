"""Packets of the GDB protocol against a server that writes them down; addresses and variables of a program."""

from __future__ import annotations

import re
import socket

import pytest

from hil.fakes.background import Background
from hil.virtual.memory_probe import MemoryProbe
from hil.virtual.profiler import CacheShape, LineTraffic, MemoryModel, api_version
from hil.virtual.program import Program
from pipeline.errors import LinkTimeout


class GdbServer(Background):
    """Acknowledges each packet with a given answer, some bytes at a time."""

    def __init__(self, *answers: bytes) -> None:
        super().__init__()
        self._answers, self._listener = list(answers), socket.create_server(("127.0.0.1", 0))
        self.port, self.received = self._listener.getsockname()[1], b""

    def _serve(self) -> None:
        with self._listener.accept()[0] as connection:
            connection.settimeout(5)
            packets = 0
            while data := connection.recv(65536):
                self.received += data
                complete = len(re.findall(rb"#..", self.received))
                while packets < complete and self._answers:
                    packets += 1
                    for byte in self._answers.pop(0):
                        connection.sendall(bytes([byte]))
                if packets < complete:
                    return

    def _close(self) -> None:
        self._listener.close()


def packets(received: bytes) -> list[bytes]:
    found = re.findall(rb"\$([^#]*)#([0-9a-f]{2})", received)
    assert all(int(checksum, 16) == sum(text) % 256 for text, checksum in found)
    return [text for text, _ in found]


def test_memory_is_written_in_pieces_and_the_machine_is_let_go():
    data = bytes(range(256)) * 9  # 2304 B: two pieces and a bit
    answers = (b"+$T05thread:01;#07+$OK#9a", b"+$OK#9a", b"+$OK#9a", b"+$OK#9a")
    with GdbServer(*answers) as server, MemoryProbe(server.port, "twin") as probe:
        probe.write(0x2000_0100, data)
    *writes, last = packets(server.received)
    assert last == b"D"
    pieces = [re.fullmatch(rb"M([0-9a-f]+),([0-9a-f]+):([0-9a-f]*)", each).groups() for each in writes]
    assert [(int(address, 16), int(size, 16)) for address, size, _ in pieces] == [
        (0x2000_0100, 1024),
        (0x2000_0500, 1024),
        (0x2000_0900, 256),
    ]
    assert bytes.fromhex(b"".join(digits for *_, digits in pieces).decode()) == data
    assert server.received.count(b"+") == 5, "every packet that came is acknowledged"


def test_a_refusal_and_a_silence_are_errors():
    with (
        GdbServer(b"+$E14#aa", b"+$OK#9a") as server,
        pytest.raises(LinkTimeout, match=r"twin: GDB server answered b'E14' to 'M10,1:00'\.\.\., needed OK"),
        MemoryProbe(server.port, "twin") as probe,
    ):
        probe.write(16, b"\0")
    with (
        GdbServer() as server,
        pytest.raises(LinkTimeout, match=r"twin: its GDB server fell silent \(closed\)"),
        MemoryProbe(server.port, "twin"),
    ):
        pass


def test_a_server_that_is_not_there_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LinkTimeout, match="its GDB server does not answer"), MemoryProbe(port, "twin"):
        pass


def test_code_is_found_by_address_and_never_beyond_its_segment():
    program = Program(((0x100, b"abcdef"), (0x200, b"xy")), {}, {})
    assert program.code_at(0x100, 4) == b"abcd"
    assert program.code_at(0x104, 4) == b"ef"
    assert program.code_at(0x200, 1) == b"x"
    assert [program.code_at(address, 4) for address in (0xFF, 0x106, 0x202)] == [b""] * 3


@pytest.mark.parametrize(("qemu", "version"), [("7.2.22", 1), ("8.1.5", 1), ("8.2.0", 2), ("8.10.1", 2), ("9.0", 2)])
def test_a_plugin_is_built_for_the_interface_of_this_qemu(qemu, version):
    assert api_version(qemu) == version


def test_every_line_has_its_price():
    cache = CacheShape(4096, 4, 32)
    model = MemoryModel(cache, cache, 10, 100, 500, 1000, ranges=())
    assert LineTraffic(1, 2, 3, 4, 5, 6).cycles(model) == 40 + 600 + 2500 + 6000
    assert LineTraffic() == LineTraffic(0, 0, 0, 0, 0, 0)
