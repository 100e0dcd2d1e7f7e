"""No command line can hurt the firmware: under address and undefined sanitizers on the host, and on the twin."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from stages.firmware.stage import Firmware
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph
from tests.boards.link.hostile_lines import hostile_lines
from tests.boards.twin.qemu_twin import running_twin
from tests.stages.firmware.front_ends import Task

READY = b"m-ready\r\n"
LINE = re.compile(rb"(m-[ -~]*|e-\[[ -~]*\])")
SHOWN_BY_THE_HOST = re.compile(rb"\{\d+ baud\}")


def check_survival(program: Path, lines: Sequence[bytes], graph: Graph) -> int:
    """Send all lines and then an honest inference; returns how many lines were refused.

    Each line ends with `m-ready`, everything printed is well formed, and the inference comes out right after all that.
    """
    shape = graph.tensors[graph.inputs[0]].shape
    data = np.random.default_rng(5).integers(-128, 128, shape, dtype=np.int8)
    hexed = data.tobytes().hex()
    honest = [
        "",
        f"db load {data.size}",
        *(f"db {hexed[i : i + 62]}" for i in range(0, len(hexed), 62)),
        "infer 1 0",
        "output",
    ]
    sent = b"".join(line + b"%" for line in (*lines, *(line.encode() for line in honest)))
    done = subprocess.run([program], input=sent, capture_output=True, timeout=250)
    assert done.returncode == 0, done.stderr.decode()
    received = SHOWN_BY_THE_HOST.sub(b"", done.stdout)
    assert received.count(READY) == 1 + len(lines) + len(honest)
    for line in received.split(b"\r\n")[:-1]:
        assert LINE.fullmatch(line), line
    expected = run_graph(graph, data)[graph.outputs[0]].tobytes()
    assert received.endswith(b"m-output-[" + expected.hex().encode() + b"]\r\n" + READY)
    return sum(b"\r\ne-[" in b"\r\n" + reply for reply in received.split(READY)[1 : 1 + len(lines)])


def test_a_hundred_thousand_hostile_lines_leave_the_firmware_sound(host_firmware: Path, network: Graph) -> None:
    lines = list(hostile_lines(100_000))
    assert lines[:1000] == list(hostile_lines(1000)), "the same seed gives the same lines"
    refused = check_survival(host_firmware, lines, network)
    assert 0.5 < refused / len(lines) < 0.9, "most lines are refused, many are not"


def test_audio_commands_survive_as_well(audio_host_firmware: Path, audio_task: Task) -> None:
    lines = list(hostile_lines(100_000, seed=2))
    assert 0.3 < check_survival(audio_host_firmware, lines, audio_task.graph) / len(lines) < 0.9


@pytest.mark.parametrize("load", ["", "db load 189", "db load 190", "db load 4294967295", "db load 4294967297"])
def test_bytes_without_end_stay_within_the_input(load: str, host_firmware: Path, network: Graph) -> None:
    """What the stock firmware does not survive: more bytes than announced, or none announced at all."""
    lines = [load.encode(), *[b"db " + b"5a" * 37] * 200, b"db print", b"db load 1", b"db 01", b"db 02"]
    assert check_survival(host_firmware, lines, network) >= 190


@pytest.mark.slow
def test_the_twin_survives_two_thousand_hostile_lines_without_a_fault(images: dict[str, Firmware]) -> None:
    """There the MPU is the judge: a stray access would send `e-[Fault: ...]` and boot messages."""
    with running_twin(images["nucleo_h743zi2"].twin, timeout_s=60) as (twin, _):
        for line in hostile_lines(2000, seed=3, slow_share=0.0):
            twin.send(line + b"%")
            while not twin.hears_within(10.0):  # a long line may outrun a busy twin, which then lacks its end
                twin.send(b"%")
            reply = twin.bytes_until_ready()
            assert b"Fault" not in reply and b"m-init-done" not in reply, line
            assert all(LINE.fullmatch(one) for one in reply.split(b"\r\n")[:-1]), (line, reply)
        assert twin.ask("name") == ["m-name-dut-[virtual nucleo_h743zi2]"]
