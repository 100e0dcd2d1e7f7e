"""The boards' own images beyond boot, on the register model: what is flashed was executed, not only its twin."""

from __future__ import annotations

import re
import zlib

import pytest

from boards import board_names, load_board
from pipeline.stage import read_json
from stages.firmware.build.image import Images
from stages.firmware.stage import Firmware
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from stages.graph.judge.tflm import run_tflm
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.writer import write_tflite
from tests.boards.stm32.emulated_board import READY, EmulatedBoard
from tests.stages.graph.int8_graphs import random_inputs

pytestmark = pytest.mark.parametrize("name", board_names())
CHUNK_BYTES = 31


def loaded(board: EmulatedBoard, data: bytes) -> None:
    assert board.ask(b"db load %d%%" % len(data)) == b"m-[Expecting %d bytes]\r\n" % len(data) + READY
    for start in range(0, len(data), CHUNK_BYTES):
        reply = board.ask(b"db " + data[start : start + CHUNK_BYTES].hex().encode() + b"%")
    assert reply == b"m-load-done\r\n" + READY
    assert board.ask(b"crc%") == b"m-crc-[%08x]\r\n" % zlib.crc32(data) + READY


def output(board: EmulatedBoard) -> bytes:
    found = re.findall(rb"m-output-\[([0-9a-f]+)\]", board.ask(b"output%"))
    return b"".join(bytes.fromhex(part.decode()) for part in found)


def test_the_image_computes_the_network_bit_exactly_over_its_usart(
    name: str, images: dict[str, Firmware], network: Graph
) -> None:
    board = EmulatedBoard(images[name].image, load_board(name))
    inputs = random_inputs(network, count=2)
    wanted = run_tflm(write_tflite(network, "test"), network, inputs)
    on_device = simplify(network)
    layers = run_graph(on_device, inputs[-1:])
    for one, right in zip(inputs, wanted, strict=True):
        loaded(board, one.tobytes())
        assert b"m-infer-done" in board.ask(b"infer 1 1%")
        assert output(board) == right.tobytes()
    for number, kernel in enumerate(read_json(images[name].footprint)["ops"]):
        seen = board.ask(b"tensor %d%%" % number)
        bytes_of_op = layers[on_device.ops[kernel["ops"][-1]].outputs[0]][0].tobytes()
        assert seen == b"m-tensor-[%d,%d,%08x]\r\n" % (number, len(bytes_of_op), zlib.crc32(bytes_of_op)) + READY
    assert board.stray == [] and board.forbidden == []
    assert board.resets == 0


def test_a_fault_is_told_with_its_address_and_the_board_comes_back(
    name: str, bringup_images: dict[str, Images]
) -> None:
    board = EmulatedBoard(bringup_images[name].image, load_board(name))
    reply = board.ask(b"fault%").decode()
    fault = re.match(r"\r\ne-\[Fault: CFSR=00010000 HFSR=40000000 .* PC=(\w{8}) LR=(\w{8})\]\r\n", reply)
    assert fault, reply
    flash = load_board(name).memories["flash"]
    assert all(flash.origin < int(address, 16) < flash.origin + flash.size for address in fault.groups())
    assert reply.endswith("m-init-done\r\nm-ready\r\n") and "watchdog" not in reply
    assert board.resets == 1
    assert board.ask(b"name%") == b"m-name-dut-[%s]\r\n" % name.encode() + READY


def test_a_hang_ends_by_the_watchdog_and_is_told(name: str, bringup_images: dict[str, Images]) -> None:
    board = EmulatedBoard(bringup_images[name].image, load_board(name), checked=False)
    reply = board.ask(b"hang%")
    assert reply.startswith(b"m-timestamp-mode-performance\r\nm-[reset by watchdog]\r\n")
    assert board.ask(b"name%") == b"m-name-dut-[%s]\r\n" % name.encode() + READY
    assert b"watchdog" not in board.ask(b"reset%")


def test_patterns_go_through_all_free_ram_and_flash_reads_as_it_was_written(
    name: str, bringup_images: dict[str, Images]
) -> None:
    described = load_board(name)
    board = EmulatedBoard(bringup_images[name].image, described, checked=False)
    tried = [tuple(int(word, 16) for word in found) for found in _fields(board.ask(b"ram%"), rb"m-ram")]
    assert [wrong for _, _, wrong, _ in tried] == [0, 0]
    for (first, size, _, _), region in zip(tried, described.arena_regions, strict=True):
        memory = described.memories[region]
        assert first + size == memory.origin + memory.size
        assert size > 0.8 * memory.size
    ((first, size, crc),) = (
        tuple(int(word, 16) for word in found) for found in _fields(board.ask(b"flash%"), rb"m-flash")
    )
    binary = bringup_images[name].image_bin.read_bytes()
    start = first - described.memories["flash"].origin
    assert crc == zlib.crc32(binary[start : start + size])
    assert size > 10_000


def _fields(reply: bytes, head: bytes) -> list[list[str]]:
    return [found.decode().split(",") for found in re.findall(head + rb"-\[([0-9a-f,]+)\]", reply)]
