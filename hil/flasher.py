"""Put an image onto an attached board: by pyOCD, by OpenOCD or by a copy to the ST-LINK's drive, in that order.

The probe is always addressed by its serial number, so that of two attached boards the right one is written. pyOCD and
OpenOCD verify what they wrote; the drive cannot, so the caller asks the firmware for its build id afterwards in any
case.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hil.discovery import AttachedBoard
from pipeline.errors import HardwareError, ToolError

FLASH_S = 180.0
DRIVE_S = 30.0
_INSTALL = "pip install pyocd, apt-get install openocd, or mount the ST-LINK's drive"


@dataclass(frozen=True)
class Image:
    """The same program in the forms that the tools want."""

    elf: Path
    binary: Path


@dataclass(frozen=True)
class ToolNames:
    """How pyOCD and OpenOCD call the board."""

    pyocd_target: str
    openocd_config: str


def flash_image(image: Image, device: AttachedBoard, names: ToolNames, timeout_s: float = FLASH_S) -> str:
    """Write the image and start it; returns the method that worked."""
    failures = []
    for method, argv in _commands(image, device, names):
        try:
            _run(argv, timeout_s)
            return method
        except ToolError as error:
            failures.append(str(error))
    for drive in device.drives:
        try:
            copy_to_drive(image.binary, drive)
            return "drive"
        except HardwareError as error:
            failures.append(str(error))
    if not failures:
        raise ToolError.missing("pyocd or openocd", f"to flash {device.board} (probe {device.probe_serial})", _INSTALL)
    raise HardwareError(f"{device.board} (probe {device.probe_serial}): could not be flashed:\n" + "\n".join(failures))


def pyocd_argv(program: Sequence[str], image: Image, device: AttachedBoard, names: ToolNames) -> list[str]:
    """Flash and reset, one probe by its unique id."""
    return [*program, "flash", "--uid", device.probe_serial, "--target", names.pyocd_target, str(image.elf)]


def openocd_argv(program: str, image: Image, device: AttachedBoard, names: ToolNames) -> list[str]:
    """Flash, verify, reset, one probe by its serial number."""
    serial, write = f"adapter serial {device.probe_serial}", f"program {{{image.elf}}} verify reset exit"
    return [program, "-f", names.openocd_config, "-c", serial, "-c", write]


def copy_to_drive(binary: Path, drive: Path, settle_s: float = 1.0) -> None:
    """Copy to the ST-LINK's drive, which writes the flash and then re-mounts; FAIL.TXT on it says what went wrong."""
    try:
        with (drive / binary.name).open("wb") as stream:
            stream.write(binary.read_bytes())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise HardwareError(f"{drive}: cannot be written ({error}); is the ST-LINK's drive still mounted?") from error
    time.sleep(settle_s)
    report = drive / "FAIL.TXT"
    deadline = time.monotonic() + DRIVE_S
    while not drive.exists():  # it vanishes while it programs the flash
        if time.monotonic() > deadline:
            raise HardwareError(f"{drive}: did not come back within {DRIVE_S:g} s after flashing; reconnect the board")
        time.sleep(0.2)
    if report.exists():
        raise HardwareError(f"{drive}: the ST-LINK reports {report.read_text(errors='replace').strip()!r}; flash again")


def _commands(image: Image, device: AttachedBoard, names: ToolNames) -> list[tuple[str, list[str]]]:
    found = []
    beside_python = Path(sys.executable).with_name("pyocd")
    pyocd = str(beside_python) if beside_python.exists() else shutil.which("pyocd")
    if pyocd is not None:
        found.append(("pyocd", pyocd_argv([pyocd], image, device, names)))
    if (openocd := shutil.which("openocd")) is not None:
        found.append(("openocd", openocd_argv(openocd, image, device, names)))
    return found


def _run(argv: Sequence[str], timeout_s: float) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError.timed_out(argv, timeout_s) from error
    if done.returncode != 0:
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
