"""Our host against stock MLPerf Tiny firmware: what it sends byte for byte, and no weakness makes a wrong number."""

from __future__ import annotations

import socket
import threading

import pytest

from hil.fakes.fake_device import FakeNetwork, Mishap, MishapKind
from hil.fakes.stock_device import StockDevice
from hil.link.device_link import DeviceLink, Limits
from pipeline.errors import DeviceFault, HardwareError
from tests.hil.link.test_device_link import rotated

INPUT = bytes(range(70))
NETWORK = FakeNetwork(infer=rotated)
IMPATIENT = Limits(reply_s=0.3, infer_s=0.3, sync_s=5.0, sync_attempt_s=0.3)
RESULTS = tuple(round(value / 256, 3) for value in rotated(INPUT))

# A device that answers by the book, line by line: host to device, then device to host.
DIALOGUE = [
    (b"name%", b"m-name-dut-[VENDOR]\r\nm-ready\r\n"),
    (b"check%", b"e-[Unknown command: check]\r\nm-ready\r\n"),
    (b"crc%", b"e-[Unknown command: crc]\r\nm-ready\r\n"),
    (b"db load 33%", b"m-[Expecting 33 bytes]\r\nm-ready\r\n"),
    (b"db " + bytes(range(31)).hex().encode() + b"%", b"m-ready\r\n"),
    (b"db 1f20%", b"m-load-done\r\nm-ready\r\n"),
    *[
        (
            b"db print%",
            b"m-buffer-00-01-02-03-04-05-06-07\r\nm-buffer-08-09-0a-0b-0c-0d-0e-0f\r\n"
            b"m-buffer-10-11-12-13-14-15-16-17\r\nm-buffer-18-19-1a-1b-1c-1d-1e-1f\r\nm-buffer-20\r\nm-ready\r\n",
        )
    ]
    * 2,
    *[(b"timestamp%", b"m-lap-us-1000\r\nm-ready\r\n")] * 2,
    (
        b"infer 10 2%",
        b"m-warmup-start-2\r\nm-warmup-done\r\nm-infer-start-10\r\nm-lap-us-2000\r\nm-lap-us-52000\r\n"
        b"m-infer-done\r\nm-results-[0.000,0.996,0.004]\r\nm-ready\r\n",
    ),
    *[(b"results%", b"m-results-[0.000,0.996,0.004]\r\nm-ready\r\n")] * 2,
]


def test_the_host_sends_the_protocols_bytes_and_reads_the_protocols_lines() -> None:
    problems: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_by_the_book, args=(server, problems))
        thread.start()
        with DeviceLink.open(f"socket://127.0.0.1:{server.getsockname()[1]}", limits=IMPATIENT) as link:
            assert link.command("name") == ("m-name-dut-[VENDOR]",)
            assert not link.knows("check") and not link.knows("crc")
            link.load(bytes(range(33)))
            inference = link.infer(10, 2)
            assert (inference.elapsed_us, inference.results) == (50_000, (0.0, 0.996, 0.004))
            assert link.results() == (0.0, 0.996, 0.004)
        thread.join(timeout=5)
    assert problems == []


def _by_the_book(server: socket.socket, problems: list[str]) -> None:
    connection, _ = server.accept()
    with connection:
        connection.settimeout(5)
        for command, reply in DIALOGUE:
            received = b""
            while not received.endswith(b"%"):
                received += connection.recv(1)
            if received != command:
                problems.append(f"found {received!r}, needed {command!r}")
                return
            connection.sendall(reply)


def results_of(link: DeviceLink) -> tuple[float, ...]:
    return link.on_input(INPUT, lambda: (link.infer(1, 0), link.results())[1])


def connected(device: StockDevice) -> DeviceLink:
    return DeviceLink.open(device.url, limits=IMPATIENT)


@pytest.mark.parametrize("through", ["socket", "pty"])
def test_stock_firmware_is_driven_without_any_of_our_commands(through) -> None:
    with StockDevice(NETWORK, through=through) as device, connected(device) as link:
        link.sync()
        assert results_of(link) == pytest.approx(RESULTS, abs=1e-9)
        assert device.crashed == ""


@pytest.mark.parametrize("kind", ["silence", "torn", "flipped", "doubled", "not_ready", "deaf", "reset"])
@pytest.mark.parametrize(("command", "position"), [("db load", 5), ("db 00", 6), ("db print", 10), ("results", 14)])
def test_one_mishap_never_makes_a_wrong_result_nor_kills_the_device(
    kind: MishapKind, command: str, position: int
) -> None:
    mishap = Mishap(kind, command, position=position)
    with StockDevice(NETWORK, [mishap], buffer_bytes=len(INPUT)) as device, connected(device) as link:
        link.sync()
        try:
            assert results_of(link) == pytest.approx(RESULTS, abs=1e-9)
        except HardwareError as error:
            assert device.crashed, f"an error without need: {error}"
        assert mishap.times == 0, "the mishap did not happen"


def test_lost_byte_of_the_input_is_found_by_reading_it_back() -> None:
    with StockDevice(NETWORK, [Mishap("deaf", "db 3e", position=3)]) as device, connected(device) as link:
        link.sync()
        link.load(INPUT)
        assert device.commands.count(f"db load {len(INPUT)}") == 2


def test_input_that_the_device_never_holds_is_reported() -> None:
    with StockDevice(NETWORK, [Mishap("deaf", "db 3e", position=3, times=99)]) as device, connected(device) as link:
        link.sync()
        with pytest.raises(DeviceFault, match="after 4 tries; check cable and baud rate"):
            link.load(INPUT)
        assert device.crashed == ""


def test_a_host_that_sends_too_much_would_kill_it() -> None:
    with StockDevice(NETWORK, buffer_bytes=8) as device, connected(device) as link:
        link.sync()
        link.command("db load 70")
        with pytest.raises(HardwareError):
            link.command("db " + INPUT[:31].hex(), 0.3)
        assert device.crashed == "31 B written where 8 B were left"
