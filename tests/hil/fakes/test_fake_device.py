"""The fake's own bytes: what it answers to every command, and how exactly a mishap spoils them."""

from __future__ import annotations

import base64
import socket
import zlib

import pytest

from hil.fakes.fake_device import FakeDevice, FakeNetwork, Mishap, MishapKind

NETWORK = FakeNetwork(
    infer=lambda data: bytes(byte + 1 for byte in data),
    layer_ticks=(216, 432),
    features=lambda audio: audio[::2],
    hear=lambda samples: (f"m-heard-[{samples},0]",),
    tensors=lambda data: (data[:1], data * 20),
)
BOOT = b"m-timestamp-mode-performance\r\nm-lap-us-0\r\nm-init-done\r\nm-ready\r\n"


class Host:
    """Sends commands and returns the bytes of each reply."""

    def __init__(self, device: FakeDevice) -> None:
        address, port = device.url.removeprefix("socket://").split(":")
        self._socket = socket.create_connection((address, int(port)), timeout=5)
        assert self.received(len(BOOT)) == BOOT

    def received(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            found += self._some(count - len(found))
        return found

    def _some(self, most: int) -> bytes:
        data = self._socket.recv(most)
        assert data, "the device hung up"
        return data

    def ask(self, command: str) -> list[str]:
        self._socket.sendall(f"{command}%".encode())
        reply = b""
        while not reply.endswith(b"m-ready\r\n"):
            reply += self._some(4096)
        return reply.decode().split("\r\n")[:-2]

    def raw(self, *commands: str, count: int) -> bytes:
        self._socket.sendall("".join(f"{command}%" for command in commands).encode())
        return self.received(count)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def host():
    with FakeDevice(NETWORK) as device:
        opened = Host(device)
        yield opened
        opened.close()


def crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def test_commands_of_the_stock_firmware(host):
    assert host.ask("name") == ["m-name-dut-[FAKE]"]
    assert host.ask("db load 10") == ["m-[Expecting 10 bytes]"]
    assert host.ask("db 00010203") == []
    assert host.ask("db 0a0") == ["e-[Insufficent number of hex digits]"]
    assert host.ask("db 0x") == ["e-[Invalid hex digit '0x']"]
    assert host.ask("db 040506070809ff") == ["m-load-done"]
    assert host.ask("db print") == ["m-buffer-00-01-02-03-04-05-06-07", "m-buffer-08-09"]
    assert host.ask("infer 3 2") == [
        "m-warmup-start-2",
        "m-warmup-done",
        "m-infer-start-3",
        "m-lap-us-6",
        "m-lap-us-15",
        "m-infer-done",
        "m-results-[0.004,0.008,0.012,0.016,0.020,0.023,0.027,0.031,0.035,0.039]",
    ]
    assert host.ask("infer")[:3] == ["m-warmup-start-10", "m-warmup-done", "m-infer-start-1"]
    assert host.ask("infer 4")[:3] == ["m-warmup-start-10", "m-warmup-done", "m-infer-start-4"]
    assert host.ask("timestamp") == ["m-lap-us-90"]
    for wrong in ("infer 0 1", "infer x", "infer 1 2 3"):
        assert host.ask(wrong) == ["e-[Inference iterations must be >0]"]
    assert host.ask("frob 1") == ["e-[Unknown command: frob]"]


def test_commands_of_our_own(host):
    host.ask("db load 40")
    data = bytes(range(40))
    host.ask(f"db {data.hex()}")
    assert host.ask("crc") == [f"m-crc-[{crc(data)}]"]
    assert host.ask("layers") == ["m-layer-[0,216]", "m-layer-[1,432]"]
    output = bytes(range(1, 41)).hex()
    assert host.ask("output") == [f"m-output-[{output[:64]}]", f"m-output-[{output[64:]}]"]
    assert host.ask("tensor 0") == [f"m-tensor-[0,1,{crc(data[:1])}]"]
    assert host.ask("tensor 1") == [f"m-tensor-[1,800,{crc(data * 20)}]"]
    assert host.ask("tensor 0 hex") == ["m-tensor-[00]"]
    assert host.ask("build") == ["m-build-[0123456789abcdef]"]
    assert host.ask("clock") == ["m-clock-[216000000]"]
    clock = b"m-clock-[216000000]\r\nm-ready\r\n"
    assert host.ask("check") == host.ask("check") == [f"m-check-[{crc(clock)}]"]
    assert host.ask("baud 123") == ["e-[Baud rate refused: 123]"]
    assert host.ask("memory") == ["m-memory-[512,4096,20000]"]
    assert host.ask("reset") == BOOT.decode().split("\r\n")[:-2]
    assert host.ask("crc") == ["m-crc-[00000000]"]


def test_commands_of_a_front_end(host):
    audio = bytes(range(6))
    assert host.ask("audio load 6") == ["m-[Expecting 6 bytes]"]
    assert host.ask(f"audio {base64.b64encode(audio[:3]).decode()}") == []
    assert host.ask("audio ?") == ["e-[Not base64]"]
    assert host.ask(f"audio {base64.b64encode(audio[3:]).decode()}") == ["m-load-done"]
    assert host.ask("audio crc") == [f"m-crc-[{crc(audio)}]"]
    assert host.ask("features") == ["m-features-[000204]"]
    assert host.ask("listen") == ["m-word-[2]", "m-results-[0.004,0.012,0.020]"]
    assert host.ask("stream start") == []
    assert host.ask("stream feed") == ["m-heard-[3,0]"]
    assert host.ask("stream feed") == ["m-heard-[6,0]"]
    assert host.ask("stream start") == []
    assert host.ask("stream feed") == ["m-heard-[3,0]"]


NAME = b"m-name-dut-[FAKE]\r\nm-ready\r\n"


@pytest.mark.parametrize(
    ("kind", "position", "reply"),
    [
        ("torn", 4, b"m-nam-ready\r\n"),
        ("doubled", 0, b"m-name-dut-[FAKE]\r\n" + NAME),
        ("not_ready", 0, b"m-name-dut-[FAKE]\r\n"),
        ("flipped", 2, b"m-oame-dut-[FAKE]\r\nm-ready\r\n"),
        ("flipped", 99, NAME[:-1] + b"\x0b"),
        ("deaf", 1, b"e-[Unknown command: nme]\r\nm-ready\r\n"),
        ("silence", 0, b""),
        ("reset", 0, BOOT),
    ],
)
def test_a_mishap_spoils_one_reply_after_those_it_skips(kind: MishapKind, position: int, reply: bytes) -> None:
    with FakeDevice(NETWORK, [Mishap(kind, "name", skip=1, position=position)]) as device:
        host = Host(device)
        expected = NAME + reply + NAME
        assert host.raw("name", "name", "name", count=len(expected)) == expected
        assert device.commands == ["name"] * 3
        host.close()


def test_a_device_that_vanished_has_forgotten_its_input() -> None:
    with FakeDevice(NETWORK, [Mishap("vanish", "name")]) as device:
        host = Host(device)
        host.ask("db load 1")
        host.ask("db 07")
        assert host.ask("crc") == [f"m-crc-[{crc(bytes([7]))}]"]
        host._socket.sendall(b"name%")
        assert host._socket.recv(1) == b""
        host.close()
        again = Host(device)
        assert again.ask("crc") == ["m-crc-[00000000]"]
        again.close()
