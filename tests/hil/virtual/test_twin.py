"""The twin: a real QEMU with a real, tiny image."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hil.virtual.twin import Twin, qemu_version
from pipeline.errors import LinkTimeout, ToolError

CALL_AND_MARK = 12  # instructions around an op: call, arguments, reading the timer, the store to prof_stamp


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def gone_within(pid: int, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    return False


def test_twin_counts_the_instructions_that_the_assembly_has(tiny_twin: Path) -> None:
    with Twin(tiny_twin) as twin:
        ticks = [layer.ticks for layer in twin.link.layers()]
    by_hand = [1 + 2 * 1000 + 1, 3 * 8192 // 4 + 1, 1 + 3 * 8192 // 4 + 1]
    for counted, expected in zip(ticks, by_hand, strict=True):
        assert 0 <= counted - expected <= CALL_AND_MARK


def test_counts_are_the_same_in_every_run_and_every_start(tiny_twin: Path) -> None:
    seen = set()
    for _ in range(2):
        with Twin(tiny_twin) as twin:
            seen |= {twin.link.layers() for _ in range(3)}
    assert len(seen) == 1


def test_not_a_byte_of_the_boot_message_is_lost(tiny_twin: Path) -> None:
    with Twin(tiny_twin) as twin:
        assert twin.link.boot_lines == ("m-timestamp-mode-performance", "m-init-done")
        assert twin.link.build_id() == "00112233445566aa"


def test_twin_that_runs_free_answers_too(tiny_twin: Path) -> None:
    with Twin(tiny_twin, counting=False) as twin:
        assert twin.link.build_id() == "00112233445566aa"


def test_two_twins_do_not_disturb_each_other(tiny_twin: Path) -> None:
    with Twin(tiny_twin) as one, Twin(tiny_twin) as other:
        assert one.link.layers() == other.link.layers()


def test_no_process_is_left_behind(tiny_twin: Path) -> None:
    with Twin(tiny_twin) as twin:
        assert twin.pid is not None
        pid = twin.pid
        assert is_alive(pid)
    assert not is_alive(pid)
    assert not twin.is_running()


def test_twin_dies_with_a_parent_that_was_killed(tiny_twin: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from hil.virtual.twin import Twin\n"
        "twin = Twin(Path(sys.argv[1])).__enter__()\n"
        "print(twin.pid, flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tiny_twin)], stdout=subprocess.PIPE, cwd=root, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone_within(pid, 5.0)


def test_qemu_that_is_killed_mid_run_is_reported(tiny_twin: Path) -> None:
    with Twin(tiny_twin) as twin:
        assert twin.pid is not None
        os.kill(twin.pid, signal.SIGKILL)
        with pytest.raises(LinkTimeout, match="twin: (the port vanished|cannot send)"):
            twin.link.build_id()


def test_missing_qemu_names_the_package(tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="qemu-system-arm: not found on PATH.*apt-get install .*qemu-system-arm"):
        Twin(tiny_twin).__enter__()


def test_qemu_that_refuses_its_arguments_is_shown_with_its_own_words(tiny_twin: Path) -> None:
    with pytest.raises(ToolError, match="exit code 1, needed 0(.|\n)*no-such-option"):
        Twin(tiny_twin, arguments=("-no-such-option",)).__enter__()


def test_image_that_does_not_speak_is_reported(tmp_path: Path) -> None:
    silent = tmp_path / "silent.bin"
    silent.write_bytes(struct.pack("<IIH", 0x20001000, 0x8 | 1, 0xE7FE))  # stack, reset vector, and there: b .
    with pytest.raises(LinkTimeout, match="no sync within 1 s.*QEMU runs silent.bin, but the image does not speak"):
        Twin(silent, sync_s=1.0).__enter__()


def test_image_that_crashes_qemu_is_shown_with_the_last_lines(tmp_path: Path) -> None:
    broken = tmp_path / "broken.bin"
    broken.write_bytes(bytes(64))
    with pytest.raises(ToolError, match="qemu-system-arm: exit code -6, needed 0"):
        Twin(broken, sync_s=5.0).__enter__()


def test_missing_image_says_which_step_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no twin image at .*absent.elf.*run the firmware step"):
        Twin(tmp_path / "absent.elf").__enter__()


def test_version_is_a_number(tiny_twin: Path) -> None:
    assert int(qemu_version().split(".")[0]) >= 7
