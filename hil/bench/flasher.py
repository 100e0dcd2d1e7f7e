"""Put an image onto an attached board: by pyOCD, by OpenOCD or by a copy to the ST-LINK's drive, in the board's order.

The probe is always addressed by its serial number, so that of two attached boards the right one is written. A board
that may refuse the debugger while its program runs is tried a second time with its reset line held (`under reset`).
OpenOCD reads back what it wrote; the others do not, so the caller asks the firmware for its build id in any case.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from hil.bench.discovery import AttachedBoard
from hil.bench.drive import copy_to_drive
from hil.bench.probes import pyocd_path
from pipeline.errors import HardwareError, ToolError

Method = Literal["pyocd", "openocd", "drive"]
FLASH_S = 180.0
_INSTALL = "pip install pyocd, apt-get install openocd, or mount the ST-LINK's drive"
# srst_nogate: the debug port answers while reset is held; connect_assert_srst holds it from the first contact on.
_UNDER_RESET = "reset_config srst_only srst_nogate connect_assert_srst"


@dataclass(frozen=True)
class Image:
    """The same program in the forms that the tools want."""

    elf: Path
    binary: Path


@dataclass(frozen=True)
class FlashPlan:
    """How the tools call the board, and what to try in which order."""

    pyocd_target: str
    openocd_config: str
    mbed_code: str
    openocd_under_reset: tuple[str, ...] = ()  # arguments instead of the config, where reset is to be held
    order: tuple[Method, ...] = ("pyocd", "openocd", "drive")
    connect_under_reset: bool = False


def flash_image(image: Image, device: AttachedBoard, plan: FlashPlan, timeout_s: float = FLASH_S) -> str:
    """Write the image and start it; returns how it was done, such as 'pyocd' or 'pyocd under reset'."""
    failures = []
    for name, attempt in _attempts(image, device, plan, timeout_s):
        try:
            attempt()
            return name
        except (ToolError, HardwareError) as error:
            failures.append(str(error))
    if not failures:
        raise ToolError.missing("pyocd or openocd", f"to flash {device.board} (probe {device.probe_serial})", _INSTALL)
    raise HardwareError(f"{device.board} (probe {device.probe_serial}): could not be flashed:\n" + "\n".join(failures))


def pyocd_argv(
    program: str, image: Image, device: AttachedBoard, plan: FlashPlan, under_reset: bool = False
) -> list[str]:
    """Flash and reset, one probe by its unique id; a probe that is gone is an error, not a reason to wait."""
    connect = ["--connect", "under-reset"] if under_reset else []
    where = ["--no-config", "--no-wait", "--uid", device.probe_serial, "--target", plan.pyocd_target]
    return [program, "flash", *where, *connect, str(image.elf)]


def openocd_argv(
    program: str, image: Image, device: AttachedBoard, plan: FlashPlan, under_reset: bool = False
) -> list[str]:
    """Flash, read back, reset, one probe by its serial number."""
    connect = ["-c", _UNDER_RESET] if under_reset else []
    config = plan.openocd_under_reset if under_reset else ()
    serial, write = f"adapter serial {device.probe_serial}", f"program {{{image.elf}}} verify reset exit"
    return [program, *(config or ("-f", plan.openocd_config)), "-c", serial, *connect, "-c", write]


def _attempts(
    image: Image, device: AttachedBoard, plan: FlashPlan, timeout_s: float
) -> Iterator[tuple[str, Callable[[], None]]]:
    tools = {"pyocd": (pyocd_path(), pyocd_argv), "openocd": (shutil.which("openocd"), openocd_argv)}
    for method in plan.order:
        if method == "drive":
            for drive in device.drives:
                yield "drive", partial(copy_to_drive, image.binary, drive, plan.mbed_code)
            continue
        program, argv = tools[method]
        if program is None:
            continue
        yield method, partial(_run, argv(program, image, device, plan), timeout_s)
        if plan.connect_under_reset:
            yield f"{method} under reset", partial(_run, argv(program, image, device, plan, True), timeout_s)


def _run(argv: Sequence[str], timeout_s: float) -> None:
    """In a session of its own: what the tool starts ends with it when its time is up."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise ToolError.timed_out(argv, timeout_s) from error
        raise
    if process.returncode != 0:
        raise ToolError.failed(argv, process.returncode, output)
