"""Flashing: command lines seen by stand-in tools, the drive as a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from hil.discovery import AttachedBoard
from hil.flasher import Image, ToolNames, copy_to_drive, flash_image
from pipeline.errors import HardwareError, ToolError

NAMES = ToolNames("stm32f767zi", "board/st_nucleo_f7.cfg")


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


def put_tool(folder: Path, name: str, exit_code: int = 0) -> Path:
    """A program that writes its arguments, one a line, and ends with `exit_code`."""
    record = folder / f"{name}.arguments"
    program = folder / name
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{record}'\necho no probe >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return record


def device(*drives: Path) -> AttachedBoard:
    return AttachedBoard("nucleo_f767zi", "066AFF01", "/dev/ttyACM0", drives)


def test_pyocd_is_told_probe_target_and_image(image: Image, tools: Path) -> None:
    record = put_tool(tools, "pyocd")
    assert flash_image(image, device(), NAMES) == "pyocd"
    arguments = record.read_text().splitlines()
    assert arguments == ["flash", "--uid", "066AFF01", "--target", "stm32f767zi", str(image.elf)]


def test_openocd_follows_when_pyocd_fails_and_verifies(image: Image, tools: Path) -> None:
    put_tool(tools, "pyocd", exit_code=1)
    record = put_tool(tools, "openocd")
    assert flash_image(image, device(), NAMES) == "openocd"
    arguments = record.read_text().splitlines()
    assert arguments[:2] == ["-f", "board/st_nucleo_f7.cfg"]
    assert arguments.index("adapter serial 066AFF01") < arguments.index(f"program {{{image.elf}}} verify reset exit")


def test_drive_is_the_last_resort(image: Image, tools: Path, tmp_path: Path) -> None:
    drive = tmp_path / "drive"
    drive.mkdir()
    assert flash_image(image, device(drive), NAMES) == "drive"
    assert (drive / "firmware.bin").read_bytes() == b"code"


def test_without_any_tool_the_ways_to_get_one_are_named(image: Image, tools: Path) -> None:
    with pytest.raises(
        ToolError, match="pyocd or openocd: not found on PATH.*pip install pyocd, apt-get install openocd"
    ):
        flash_image(image, device(), NAMES)


def test_all_failures_are_shown(image: Image, tools: Path, tmp_path: Path) -> None:
    put_tool(tools, "pyocd", exit_code=3)
    put_tool(tools, "openocd", exit_code=4)
    with pytest.raises(HardwareError, match="probe 066AFF01.: could not be flashed") as caught:
        flash_image(image, device(tmp_path / "unmounted"), NAMES)
    for part in ("exit code 3", "exit code 4", "no probe", "is the ST-LINK's drive still mounted"):
        assert part in str(caught.value)


def test_fail_txt_on_the_drive_is_an_error(image: Image, tmp_path: Path) -> None:
    (tmp_path / "FAIL.TXT").write_text("The interface firmware FAILED to reset/halt the target MCU\n")
    with pytest.raises(HardwareError, match="the ST-LINK reports 'The interface firmware FAILED"):
        copy_to_drive(image.binary, tmp_path, settle_s=0.0)


def test_tool_that_hangs_is_ended(image: Image, tools: Path) -> None:
    (tools / "pyocd").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tools / "pyocd").chmod(0o755)
    with pytest.raises(HardwareError, match="still running after 0.3 s, ended"):
        flash_image(image, device(), NAMES, timeout_s=0.3)
