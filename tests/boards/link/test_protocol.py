"""The firmware's side of the serial protocol, byte for byte, on a host build under address and undefined sanitizers."""

from __future__ import annotations

import random
import re
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from tests.boards.conftest import BUILD_ID

BOOT = b"m-timestamp-mode-performance\r\nm-lap-us-1000\r\nm-init-done\r\nm-ready\r\n"
READY = b"m-ready\r\n"
INPUT_BYTES = 9 * 7 * 3


class Session:
    """Sends all commands at once and cuts the answer at each `m-ready`."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def raw(self, sent: bytes) -> bytes:
        done = subprocess.run([self.program], input=sent, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def replies(self, *commands: bytes | str) -> list[bytes]:
        encoded = [command.encode() if isinstance(command, str) else command for command in commands]
        received = self.raw(b"".join(command + b"%" for command in encoded))
        assert received.startswith(BOOT)
        assert received.endswith(READY)
        replies = received[len(BOOT) :].split(READY)[:-1]
        assert len(replies) == len(commands)
        return replies

    def reply(self, *commands: bytes | str) -> bytes:
        """The last one."""
        return self.replies(*commands)[-1]


@pytest.fixture(scope="module")
def session(host_firmware: Path) -> Session:
    return Session(host_firmware)


def load_commands(data: bytes) -> list[str]:
    chunks = [data[start : start + 31] for start in range(0, len(data), 31)]
    return [f"db load {len(data)}", *(f"db {chunk.hex()}" for chunk in chunks)]


def test_boot_says_mode_time_and_ready(session: Session) -> None:
    assert session.raw(b"") == BOOT


EXCHANGES: list[tuple[str | bytes, bytes]] = [
    ("name", b"m-name-dut-[host]\r\n"),
    ("profile", b"m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\nm-model-[kws01]\r\n"),
    ("build", f"m-build-[{BUILD_ID}]\r\n".encode()),
    ("clock", b"m-clock-[216000000]\r\n"),
    ("db load 12", b"m-[Expecting 12 bytes]\r\n"),
    (f"db load {INPUT_BYTES}", b"m-[Expecting %d bytes]\r\n" % INPUT_BYTES),
    ("hello", b"e-[Unknown command: hello]\r\n"),
    ("hello world", b"e-[Unknown command: hello]\r\n"),
    ("", b"e-[Unknown command: ]\r\n"),
    ("NAME", b"e-[Unknown command: NAME]\r\n"),
    ("name\r\n", b"e-[Unknown command: name??]\r\n"),
    (b"name\0", b"e-[Unknown command: name?]\r\n"),
    ("name twice", b"e-[Unexpected argument: twice]\r\n"),
    ("  name ", b"m-name-dut-[host]\r\n"),
    ("infer 0", b"e-[Inference iterations must be >0]\r\n"),
    ("infer 0 5", b"e-[Inference iterations must be >0]\r\n"),
    ("infer x", b"e-[Inference iterations must be >0]\r\n"),
    ("infer -1", b"e-[Inference iterations must be >0]\r\n"),
    ("infer 9999999999", b"e-[Inference iterations must be >0]\r\n"),
    ("infer 1 x", b"e-[Not a number of warm-ups: x]\r\n"),
    ("infer 1 2 3", b"e-[Unexpected argument: 3]\r\n"),
    ("db", b"e-[Insufficent number of hex digits]\r\n"),
    ("db load", b"e-[Number of bytes needed, above 0]\r\n"),
    ("db load 0", b"e-[Number of bytes needed, above 0]\r\n"),
    ("db load 1x", b"e-[Number of bytes needed, above 0]\r\n"),
    ("db load 190", b"e-[Load of 190 bytes refused: the input has 189]\r\n"),
    ("db load 999999999", b"e-[Load of 999999999 bytes refused: the input has 189]\r\n"),
    ("db place 189", b"m-load-done\r\n"),
    ("db place 190", b"e-[Load of 190 bytes refused: the input has 189]\r\n"),
    ("db place", b"e-[Number of bytes needed, above 0]\r\n"),
    ("db 0102", b"e-[No load under way: send load first]\r\n"),
    ("db 012", b"e-[Insufficent number of hex digits]\r\n"),
    ("db 01zz", b"e-[Invalid hex digit 'zz']\r\n"),
    ("db print now", b"e-[Unexpected argument: now]\r\n"),
    ("errors", b"m-errors-[0]\r\n"),
    ("baud", b"m-baud-[115200]\r\n"),
    ("baud 115200", b"m-baud-[115200]\r\n"),
    ("baud ok", b""),
    ("baud 0", b"e-[Baud rate refused: 0]\r\n"),
    ("baud fast", b"e-[Baud rate refused: fast]\r\n"),
    ("baud 99999999", b"e-[Baud rate refused: 99999999]\r\n"),
    ("baud 1 2", b"e-[Unexpected argument: 2]\r\n"),
    ("db print", b""),
]


@pytest.mark.parametrize(("command", "reply"), EXCHANGES)
def test_command_gets_its_reply(command: str | bytes, reply: bytes, session: Session) -> None:
    assert session.reply(command) == reply


def test_load_is_silent_until_the_last_byte(session: Session) -> None:
    replies = session.replies("db load 5", "db 0102", "db 0AfF", "db 7f", "db print")
    assert replies[1:] == [b"", b"", b"m-load-done\r\n", b"m-buffer-01-02-0a-ff-7f\r\n"]


def test_placed_bytes_count_as_loaded_and_end_a_load(session: Session) -> None:
    replies = session.replies("db load 5", "db 0102", "db place 1", "db print", "db 03", "crc")
    assert replies[2:4] == [b"m-load-done\r\n", b"m-buffer-01\r\n"]
    assert replies[4] == b"e-[No load under way: send load first]\r\n"
    assert replies[5] == b"m-crc-[%08x]\r\n" % zlib.crc32(b"\1")


def test_print_shows_eight_bytes_a_line(session: Session) -> None:
    reply = session.reply("db load 10", "db 00112233445566778899", "db print")
    assert reply == b"m-buffer-00-11-22-33-44-55-66-77\r\nm-buffer-88-99\r\n"


def test_digits_beyond_the_announced_number_are_disregarded_as_the_reference_does(session: Session) -> None:
    replies = session.replies("db load 3", "db 01", "db aabbcczz", "db print", "db 04", "db load 3", "db aabbc")
    assert replies[2] == b"m-load-done\r\n"
    assert replies[3] == b"m-buffer-01-aa-bb\r\n"
    assert replies[4] == b"e-[No load under way: send load first]\r\n"
    assert replies[6] == b"e-[Insufficent number of hex digits]\r\n", "their number is looked at first"


INCOMPLETE = b"e-[Input incomplete: load it again]\r\n"


@pytest.mark.parametrize("lost", range(8))
def test_an_input_of_which_a_line_was_lost_is_not_inferred(lost: int, session: Session) -> None:
    data = bytes(random.Random(3).randbytes(INPUT_BYTES))
    commands = load_commands(data)
    assert len(commands) == 8
    older = [*load_commands(bytes(INPUT_BYTES)), "infer 1 0"]
    replies = session.replies(*older, *commands[:lost], *commands[lost + 1 :], "infer 1 0", *commands, "infer 1 0")
    assert replies[len(older) - 1].endswith(b"]\r\n") and INCOMPLETE not in replies[: len(older)]
    assert replies[len(older) + len(commands) - 1] == INCOMPLETE
    assert b"m-results-[" in replies[-1], "whole again"


def test_an_input_whose_load_was_refused_is_not_inferred(session: Session) -> None:
    replies = session.replies("db load 2560", *["db " + "00" * 31] * 3, "infer 1 0", "db place 189", "infer 1 0")
    assert replies[0] == b"e-[Load of 2560 bytes refused: the input has 189]\r\n"
    assert replies[4] == INCOMPLETE
    assert b"m-results-[" in replies[6]


def test_help_names_every_command(session: Session) -> None:
    names = re.findall(rb"m-help-\[(\w+)\]\r\n", session.reply("help"))
    assert {b"help", b"name", b"profile", b"timestamp", b"db", b"infer", b"results", b"check"} <= set(names)
    for name in names:
        if name not in (b"reset",):
            assert b"Unknown command" not in session.reply(name), name


def test_an_invalid_digit_leaves_the_load_where_it_was(session: Session) -> None:
    replies = session.replies("db load 2", "db 01x2", "db 0102", "db print")
    assert replies[1:] == [b"e-[Invalid hex digit 'x2']\r\n", b"m-load-done\r\n", b"m-buffer-01-02\r\n"]


def test_crc_is_that_of_zlib(session: Session) -> None:
    data = bytes(random.Random(1).randbytes(INPUT_BYTES))
    assert session.reply(*load_commands(data), "crc") == b"m-crc-[%08x]\r\n" % zlib.crc32(data)
    assert session.reply("crc") == b"m-crc-[00000000]\r\n"


def test_infer_prints_the_sequence_of_the_protocol_and_the_networks_result(session: Session, network: Graph) -> None:
    data = np.random.default_rng(5).integers(-128, 128, (1, 9, 7, 3), dtype=np.int8)
    expected = run_graph(network, data)[network.outputs[0]].reshape(-1)
    replies = session.replies(*load_commands(data.tobytes()), "infer 3 2", "results", "output")
    results = b"m-results-[" + b",".join(b"%.3f" % ((int(q) + 128) / 256) for q in expected) + b"]\r\n"
    lines = replies[-3].split(b"\r\n")
    laps = [int(line.removeprefix(b"m-lap-us-")) for line in (lines[3], lines[4])]
    assert [*lines[:3], *lines[5:-1]] == [
        *(b"m-warmup-start-2", b"m-warmup-done", b"m-infer-start-3"),
        *(b"m-infer-done", results.removesuffix(b"\r\n")),
    ]
    # The test's clock moves a millisecond per reading, which is the second line's and one around each inference, and a
    # microsecond per inference.
    assert laps[1] - laps[0] == 1003 + 4000
    assert replies[-2] == results
    assert replies[-1] == b"m-output-[" + expected.tobytes().hex().encode() + b"]\r\n"


def test_infer_defaults_to_one_inference_after_ten(session: Session) -> None:
    lines = session.reply("infer").split(b"\r\n")
    assert (lines[0], lines[2]) == (b"m-warmup-start-10", b"m-infer-start-1")


def test_same_input_gives_the_same_result_however_often(session: Session) -> None:
    data = bytes(random.Random(2).randbytes(INPUT_BYTES))
    outputs = {session.reply(*load_commands(data), f"infer {n} 0", "output") for n in (1, 2, 7)}
    assert len(outputs) == 1


def test_layers_prints_one_line_for_each_operator(session: Session, network: Graph) -> None:
    # Each mark reads the test's clock once, so that an operator seems to take what a mark takes: nothing.
    lines = [b"m-layer-[%d,0]" % index for index in range(len(network.ops))]
    assert session.reply("layers") == b"\r\n".join(lines) + b"\r\n"


def test_memory_names_stack_and_arena(session: Session) -> None:
    assert re.fullmatch(rb"m-memory-\[1000,4096,\d+\]\r\n", session.reply("memory"))


def test_timestamp_counts_microseconds(session: Session) -> None:
    assert session.reply("timestamp") == b"m-lap-us-2010\r\n"  # and one for each character of the command


def test_reset_boots_again_and_forgets_the_input(session: Session) -> None:
    received = session.raw(b"db load 1%db 07%reset%db print%")
    load = b"m-[Expecting 1 bytes]\r\n" + READY + b"m-load-done\r\n" + READY
    assert received.startswith(BOOT + load + b"m-timestamp-mode-performance\r\n")
    assert received.count(b"m-init-done") == 2
    assert received.endswith(b"m-init-done\r\n" + READY + READY)


def test_a_line_with_a_lost_or_damaged_byte_is_refused_and_the_next_one_is_not(session: Session) -> None:
    replies = session.replies(b"na\xffme", b"name", b"\xfename", b"db load 1\xff\xff", b"name", b"errors")
    assert replies[0] == b"e-[Line damaged on its way here, 1 bytes since start]\r\n"
    assert replies[2] == b"e-[Line damaged on its way here, 2 bytes since start]\r\n"
    assert replies[3] == b"e-[Line damaged on its way here, 4 bytes since start]\r\n"
    assert replies[1] == replies[4] == b"m-name-dut-[host]\r\n"
    assert replies[5] == b"m-errors-[4]\r\n"


def test_a_new_rate_begins_after_ready_and_ends_without_confirmation(session: Session) -> None:
    # The test's clock moves a millisecond at each look, so that a second passes within a thousand characters.
    received = session.raw(b"baud 921600%baud%" + b"x" * 900 + b"%" + b"x" * 200 + b"%name%baud%")
    first, *rest = received[len(BOOT) :].split(READY)
    assert first == b"m-baud-[921600]\r\n"
    assert rest[0] == b"{921600 baud}m-baud-[921600]\r\n"
    assert rest[1] == b"e-[Command longer than 80 characters]\r\n"
    # The line under way when the rate fell back is forgotten up to there; the rest of it is a line of its own.
    assert rest[2].startswith(b"{115200 baud}e-[")
    assert rest[3:] == [b"m-name-dut-[host]\r\n", b"m-baud-[115200]\r\n", b""]
    for confirmation, reply in ((b"baud ok%", b""), (b"baud 921600%", b"m-baud-[921600]\r\n")):
        confirmed = session.raw(b"baud 921600%" + confirmation + b"x" * 3000 + b"%baud%")
        assert confirmed.split(READY)[2] == b"{921600 baud}" + reply
        assert confirmed.endswith(b"m-baud-[921600]\r\n" + READY) and b"115200" not in confirmed


def test_eighty_characters_are_taken_and_one_more_is_refused(session: Session) -> None:
    longest, longer = "x" * 80, "y" * 81
    assert session.replies(longest, longer, "z" * 5000, "name") == [
        b"e-[Unknown command: %s]\r\n" % longest.encode(),
        *[b"e-[Command longer than 80 characters]\r\n"] * 2,
        b"m-name-dut-[host]\r\n",
    ]
