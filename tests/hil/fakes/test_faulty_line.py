"""The line that spoils bytes on purpose: each fault does what it says, at the byte it says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from hil.fakes.faulty_line import FaultyLine, LineFault


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A device that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    while data := connection.recv(4096):
                        connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()
        ended.set()
        thread.join()


def connect(line: FaultyLine) -> socket.socket:
    host, port = line.url.removeprefix("socket://").split(":")
    return socket.create_connection((host, int(port)), timeout=2)


def received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            return data
        data += part
    return data


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [
        (LineFault("drop", after_bytes=3), b"0124\n6789\n"),
        (LineFault("flip", after_bytes=1, bit=0), b"00234\n6789\n"),
        (LineFault("flip", after_bytes=2, bit=3), b"01:34\n6789\n"),
        (LineFault("tear", after_bytes=2), b"016789\n"),
        (LineFault("tear", to_host=False, after_bytes=9), b"01234\n678"),
        (LineFault("drop", to_host=False, after_bytes=0), b"1234\n6789\n"),
    ],
)
def test_a_fault_strikes_at_its_byte(echo, fault: LineFault, arrives: bytes) -> None:
    with FaultyLine(echo) as line, connect(line) as host:
        line.plan(fault)
        host.sendall(b"01234\n6789\n")
        assert received(host, len(arrives)) == arrives
        assert line.struck == 1
        host.sendall(b"again\n")
        assert received(host, 6) == b"again\n"


def test_bytes_are_counted_from_the_plan_on_and_by_direction(echo) -> None:
    with FaultyLine(echo) as line, connect(line) as host:
        for _ in range(2):
            line.plan(LineFault("drop", after_bytes=4), LineFault("drop", to_host=False, after_bytes=0))
            host.sendall(b"0123")
            assert received(host, 3) == b"123"
            assert (line.struck, bytes(line.heard)) == (1, b"123")
            host.sendall(b"456")
            assert received(host, 2) == b"46"
            assert (line.struck, bytes(line.heard)) == (2, b"12346")


def test_silence_loses_and_hold_keeps(echo) -> None:
    with FaultyLine(echo) as line, connect(line) as host:
        line.plan(LineFault("silence", seconds=0.2))
        host.sendall(b"lost")
        time.sleep(0.3)
        host.sendall(b"heard")
        assert received(host, 5) == b"heard"
        line.plan(LineFault("hold", seconds=0.2))
        begin = time.monotonic()
        host.sendall(b"late")
        assert received(host, 4) == b"late"
        assert time.monotonic() - begin >= 0.15


def test_a_cut_line_can_be_used_again_after_a_while(echo) -> None:
    with FaultyLine(echo) as line:
        with connect(line) as host:
            line.plan(LineFault("cut", seconds=0.1))
            host.sendall(b"x")
            assert received(host, 1) == b""
        time.sleep(0.15)
        with connect(line) as host:
            host.sendall(b"back")
            assert received(host, 4) == b"back"
