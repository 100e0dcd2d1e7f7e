"""An ST-LINK's own firmware, as OpenOCD tells it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hil.bench.probes import is_new_enough, stlink_firmware
from pipeline.errors import HardwareError

TELLS = """#!/bin/sh
case "$*" in *"adapter serial 066DFF02"*) ;; *) echo "Error: open failed" >&2; exit 1;; esac
echo "Info : STLINK V2J37M26 (API v2) VID:PID 0483:374B" >&2
echo "Info : Target voltage: 3.24" >&2
"""


@pytest.fixture
def openocd(tmp_path: Path) -> str:
    program = tmp_path / "openocd"
    program.write_text(TELLS)
    program.chmod(0o755)
    return str(program)


def test_openocd_tells_the_firmware_of_the_probe_with_that_serial_number(openocd: str) -> None:
    assert stlink_firmware("066DFF02", openocd) == "V2J37M26"


def test_a_probe_that_does_not_open_is_an_error(openocd: str) -> None:
    with pytest.raises(HardwareError, match=r"probe 066DFF03: openocd did not open it \(Error: open failed\)"):
        stlink_firmware("066DFF03", openocd)


def test_the_real_openocd_understands_the_question() -> None:
    program = shutil.which("openocd")
    if program is None:
        pytest.skip("openocd is not installed: apt-get install --no-install-recommends openocd")
    with pytest.raises(HardwareError, match=r"openocd did not open it \(Error: open failed\)"):
        stlink_firmware("NOSUCHPROBE", program)
    assert b"STLINK %s (API v%d)" in Path(program).read_bytes(), "the words that are looked for"


def test_without_openocd_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stlink_firmware("066DFF02") is None


@pytest.mark.parametrize(
    ("firmware", "enough"),
    [("V2J27M15", False), ("V2J28M16", True), ("V2J45S7", True), ("V3J2M1", False), ("V3J3M2", True), ("", False)],
)
def test_old_firmware_is_told_from_new(firmware: str, enough: bool) -> None:
    assert is_new_enough(firmware) == enough
