"""Flashing: stand-in tools that choose by serial number, drives as folders, and the real tools' view of our lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from boards import board_names, load_board
from hil.bench.discovery import AttachedBoard
from hil.bench.drive import Limits, copy_to_drive
from hil.bench.flasher import FlashPlan, Image, flash_image, openocd_argv, pyocd_argv
from pipeline.cli.doctor import findings
from pipeline.config import load_project
from pipeline.engine.tool_versions import program_version
from pipeline.errors import HardwareError, ToolError
from stages.flash.proof import flash_plan
from tests.hil.bench.fake_drives import put_drive
from tests.hil.bench.stub_tools import PYTHON, put_failing_tool, put_tools

PLAN = FlashPlan("stm32f767zi", "board/st_nucleo_f7.cfg", "0818")
F7 = {"target": "stm32f767zi", "config": "board/st_nucleo_f7.cfg"}
LOOK_ALIKES = {"066AFF01": F7, "066AFF02": F7, "066AFF03": F7}
PROJECT = Path(__file__).parents[3] / "pipeline.yaml"
QUICK = Limits(copy_s=2.0, settle_s=0.1, return_s=0.5)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    image = Image(tmp_path / "firmware.elf", tmp_path / "firmware.bin")
    image.elf.write_bytes(b"ELF")
    image.binary.write_bytes(b"code")
    return image


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH on which only what the test puts there can be found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    return folder


def device(*drives: Path, serial: str = "066AFF02") -> AttachedBoard:
    return AttachedBoard("nucleo_f767zi", serial, "/dev/ttyACM0", drives)


@pytest.mark.parametrize("tool", ["pyocd", "openocd"])
@pytest.mark.parametrize("serial", sorted(LOOK_ALIKES))
def test_of_three_look_alikes_the_one_with_the_serial_number_is_flashed(
    image: Image, tools: Path, tool: str, serial: str
) -> None:
    put_tools(tools, LOOK_ALIKES, tool)
    assert flash_image(image, device(serial=serial), PLAN) == tool
    assert [path.name for path in tools.glob("*.flash")] == [f"{serial}.flash"]
    assert (tools / f"{serial}.flash").read_bytes() == b"ELF"


def test_pyocd_is_told_probe_target_and_image(image: Image, tools: Path) -> None:
    put_tools(tools, LOOK_ALIKES, "pyocd")
    flash_image(image, device(), PLAN)
    where = ["--no-config", "--no-wait", "--uid", "066AFF02", "--target", "stm32f767zi"]
    assert (tools / "pyocd.arguments").read_text().splitlines() == ["flash", *where, str(image.elf)]


def test_openocd_is_told_config_probe_and_to_read_back(image: Image, tools: Path) -> None:
    put_tools(tools, LOOK_ALIKES, "openocd")
    flash_image(image, device(), PLAN)
    wanted = ["-f", "board/st_nucleo_f7.cfg", "-c", "adapter serial 066AFF02", "-c"]
    assert (tools / "openocd.arguments").read_text().splitlines() == [
        *wanted,
        f"program {{{image.elf}}} verify reset exit",
    ]


def test_a_tool_that_fails_is_followed_by_the_next_in_the_boards_order(image: Image, tools: Path) -> None:
    put_tools(tools, LOOK_ALIKES, "pyocd", "openocd")
    put_failing_tool(tools, "pyocd", 1)
    assert flash_image(image, device(), PLAN) == "openocd"
    swapped = FlashPlan("stm32f767zi", "board/st_nucleo_f7.cfg", "0818", order=("openocd", "pyocd"))
    put_failing_tool(tools, "openocd", 1)
    put_tools(tools, LOOK_ALIKES, "pyocd")
    assert flash_image(image, device(), swapped) == "pyocd"


@pytest.mark.parametrize("tool", ["pyocd", "openocd"])
def test_a_board_that_shuts_the_debugger_out_is_tried_again_under_reset(image: Image, tools: Path, tool: str) -> None:
    put_tools(tools, {"066AFF02": {**F7, "shut": True}}, tool)
    stubborn = FlashPlan("stm32f767zi", "board/st_nucleo_f7.cfg", "0818", connect_under_reset=True)
    assert flash_image(image, device(), stubborn) == f"{tool} under reset"
    (tools / "066AFF02.flash").unlink()
    with pytest.raises(HardwareError, match="could not be flashed"):
        flash_image(image, device(), PLAN)
    assert not (tools / "066AFF02.flash").exists()


def test_the_h743_is_tried_under_reset() -> None:
    assert flash_plan(load_board("nucleo_h743zi2")).connect_under_reset
    assert not flash_plan(load_board("nucleo_f767zi")).connect_under_reset


def test_openocd_reaches_an_h743_under_reset_as_a_plain_debug_port(image: Image) -> None:
    plan = flash_plan(load_board("nucleo_h743zi2"))
    line = openocd_argv("openocd", image, device(), plan, under_reset=True)
    assert line[1:7] == [
        *("-f", "interface/stlink-dap.cfg", "-c", "transport select dapdirect_swd"),
        *("-f", "target/stm32h7x_dual_bank.cfg"),
    ]
    assert "connect_assert_srst" in line[line.index("adapter serial 066AFF02") + 2]
    assert openocd_argv("openocd", image, device(), plan)[1:3] == ["-f", "board/st_nucleo_h743zi.cfg"]


def test_the_doctor_refuses_an_openocd_that_cannot_choose_a_probe(tools: Path, tmp_path: Path) -> None:
    (tools / "openocd").write_text("#!/bin/sh\necho Open On-Chip Debugger 0.11.0 >&2\n")
    (tools / "openocd").chmod(0o755)
    program_version.cache_clear()
    asked = load_project(PROJECT).least_versions
    fixes = {item.check: item.fix for item in findings(tmp_path, tmp_path, {}, {}, asked)}
    program_version.cache_clear()
    assert fixes["program openocd"] == "install openocd 0.12 or newer"


def test_the_discovery_board_has_the_name_that_pyocds_pack_gives_it() -> None:
    assert load_board("disco_f746ng").flashing.pyocd_target == "stm32f746nghx"


def test_drive_is_the_last_resort_and_chosen_by_the_probe(image: Image, tools: Path, tmp_path: Path) -> None:
    drives = [put_drive(tmp_path / f"NODE_F767ZI{number}", "nucleo_f767zi") for number in range(3)]
    assert flash_image(image, device(drives[1]), PLAN) == "drive"
    assert [(drive / "firmware.bin").exists() for drive in drives] == [False, True, False]
    assert (drives[1] / "firmware.bin").read_bytes() == b"code"


def test_without_any_tool_the_ways_to_get_one_are_named(image: Image, tools: Path) -> None:
    with pytest.raises(
        ToolError, match="pyocd or openocd: not found on PATH.*pip install pyocd, apt-get install openocd"
    ):
        flash_image(image, device(), PLAN)


def test_all_failures_are_shown(image: Image, tools: Path, tmp_path: Path) -> None:
    put_tools(tools, {"OTHER": F7}, "pyocd")
    put_failing_tool(tools, "openocd", 4)
    with pytest.raises(HardwareError, match="probe 066AFF02.: could not be flashed") as caught:
        flash_image(image, device(tmp_path / "unmounted"), PLAN)
    for part in ("No connected debug probe matches unique ID '066AFF02'", "exit code 4", "no ST-LINK drive there"):
        assert part in str(caught.value)


def test_tool_that_hangs_is_ended_with_what_it_started(image: Image, tools: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tools / "pyocd").write_text(f"#!/bin/sh\n/bin/sleep 60 &\necho $! > {pid}\nwait\n")
    (tools / "pyocd").chmod(0o755)
    with pytest.raises(HardwareError, match="still running after 0.5 s, ended"):
        flash_image(image, device(), PLAN, timeout_s=0.5)
    deadline = time.monotonic() + 5
    while _is_alive(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_alive(int(pid.read_text()))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def test_fail_txt_on_the_drive_is_an_error(image: Image, tmp_path: Path) -> None:
    drive = put_drive(tmp_path / "drive", "nucleo_f767zi")
    (drive / "FAIL.TXT").write_text("The interface firmware FAILED to reset/halt the target MCU\n")
    with pytest.raises(HardwareError, match="the ST-LINK reports 'The interface firmware FAILED"):
        copy_to_drive(image.binary, drive, "0818", QUICK)


def test_drive_of_another_board_is_not_written_to(image: Image, tmp_path: Path) -> None:
    drive = put_drive(tmp_path / "drive", "nucleo_h743zi2")
    with pytest.raises(HardwareError, match="is the drive of a board with code 0836, needed 0818"):
        copy_to_drive(image.binary, drive, "0818", QUICK)
    assert not (drive / "firmware.bin").exists()


def test_mount_point_without_its_drive_is_not_written_to(image: Image, tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="no ST-LINK drive there.*is it still mounted"):
        copy_to_drive(image.binary, tmp_path, "0818", QUICK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["firmware.bin", "firmware.elf"]


def test_full_drive_is_named_with_the_size_of_the_image(image: Image, tmp_path: Path) -> None:
    drive = put_drive(tmp_path / "drive", "nucleo_f767zi")
    (drive / "firmware.bin").symlink_to("/dev/full")  # the kernel's own full device: every write is ENOSPC
    with pytest.raises(HardwareError, match="full, an image of 4 B does not fit; remove files"):
        copy_to_drive(image.binary, drive, "0818", QUICK)


def test_drive_that_vanishes_with_the_copy_and_stays_away_is_reported(image: Image, tmp_path: Path) -> None:
    drive = put_drive(tmp_path / "drive", "nucleo_f767zi")
    with _unmounting(drive, tmp_path / "gone"), pytest.raises(HardwareError, match="did not come back within 0.5 s"):
        copy_to_drive(image.binary, drive, "0818", QUICK)


def test_drive_that_vanishes_and_comes_back_is_flashed(image: Image, tmp_path: Path) -> None:
    drive = put_drive(tmp_path / "drive", "nucleo_f767zi")
    with _unmounting(drive, tmp_path / "gone", back_after_s=0.2):
        copy_to_drive(image.binary, drive, "0818", QUICK)
    assert drive.exists()


def test_copy_that_never_ends_is_given_up(image: Image, tmp_path: Path) -> None:
    drive = put_drive(tmp_path / "drive", "nucleo_f767zi")
    os.mkfifo(drive / "firmware.bin")  # opening it for writing blocks, as a drive pulled out does
    with pytest.raises(HardwareError, match="the copy was not done after 0.2 s; reconnect the board"):
        copy_to_drive(image.binary, drive, "0818", Limits(copy_s=0.2))
    os.close(os.open(drive / "firmware.bin", os.O_RDONLY | os.O_NONBLOCK))  # let the thread go


class _unmounting:
    """Moves the drive away as soon as the image is on it."""

    def __init__(self, drive: Path, aside: Path, back_after_s: float | None = None) -> None:
        back = "" if back_after_s is None else f"; sleep {back_after_s}; mv '{aside}' '{drive}'"
        wait = f"until [ -s '{drive}/firmware.bin' ]; do sleep 0.005; done; mv '{drive}' '{aside}'{back}"
        self._argv = ["/bin/sh", "-c", wait]

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._argv)

    def __exit__(self, *_: object) -> None:
        self._process.wait(timeout=10)


@pytest.mark.parametrize("board", board_names())
def test_the_real_openocd_accepts_config_serial_number_and_reset_line(board: str, image: Image) -> None:
    program = shutil.which("openocd")
    if program is None:
        pytest.skip("openocd is not installed: apt-get install --no-install-recommends openocd")
    plan = flash_plan(load_board(board))
    for under_reset in (False, True):
        *line, flag, write = openocd_argv(program, image, device(), plan, under_reset)
        assert (flag, write.split(" ")[0]) == ("-c", "program")
        check = [*line, "-c", "noinit", "-c", "flash banks", "-c", "shutdown"]
        done = subprocess.run(check, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert "(stm32" in done.stdout + done.stderr, "a flash bank of the family"


def test_the_real_pyocd_accepts_target_and_options(image: Image, board: str = "nucleo_h743zi2") -> None:
    program = Path(PYTHON).with_name("pyocd")
    if not program.exists():
        pytest.skip("pyocd is not installed: pip install pyocd")
    absent = AttachedBoard(board, "NOSUCHPROBE", "")
    line = pyocd_argv(str(program), image, absent, flash_plan(load_board(board)), under_reset=True)
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "No connected debug probe matches unique ID 'NOSUCHPROBE'" in done.stdout + done.stderr
