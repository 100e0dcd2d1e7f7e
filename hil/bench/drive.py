"""Flash by copying an image to the ST-LINK's drive, which writes it into the flash and then mounts anew.

A mount point may vanish and another board's drive take its place, and a folder without a mount is still a folder: so
the drive's own marker files are read before the copy and after it, and only the board's code on them counts. The copy
runs beside us with a limit, because writing to a drive that was pulled out can block for ever.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import HardwareError

COPY_S = 60.0
RETURN_S = 30.0
_POLL_S = 0.1
_MARKERS = ("MBED.HTM", "mbed.htm", "MBED.htm")
_CODE = re.compile(r"(?:code|auth)=([0-9A-Fa-f]{4})")


@dataclass(frozen=True)
class Limits:
    """How long to wait."""

    copy_s: float = COPY_S
    settle_s: float = 1.0  # until the drive has gone away to write the flash
    return_s: float = RETURN_S


def board_code(drive: Path) -> str | None:
    """The four characters by which the drive names its board; None where there is no ST-LINK drive."""
    for name in _MARKERS:
        try:
            match = _CODE.search((drive / name).read_text(errors="replace"))
        except OSError:
            continue
        return match[1].upper() if match else None
    return None


def copy_to_drive(binary: Path, drive: Path, code: str, limits: Limits | None = None) -> None:
    """Copy the image to the drive of the board with this code; FAIL.TXT on it says what went wrong."""
    limits = limits or Limits()
    _refuse_other(drive, code)
    image = binary.read_bytes()
    _within(limits.copy_s, drive, lambda: _write(drive / binary.name, image))
    time.sleep(limits.settle_s)
    deadline = time.monotonic() + limits.return_s
    while board_code(drive) is None:
        if time.monotonic() > deadline:
            raise HardwareError(
                f"{drive}: did not come back within {limits.return_s:g} s after the copy; reconnect the board"
            )
        time.sleep(_POLL_S)
    _refuse_other(drive, code)
    report = drive / "FAIL.TXT"
    if report.exists():
        raise HardwareError(f"{drive}: the ST-LINK reports {report.read_text(errors='replace').strip()!r}; flash again")


def _refuse_other(drive: Path, code: str) -> None:
    found = board_code(drive)
    if found is None:
        raise HardwareError(f"{drive}: no ST-LINK drive there (no MBED.HTM with a board code); is it still mounted?")
    if found != code.upper():
        raise HardwareError(f"{drive}: is the drive of a board with code {found}, needed {code}; look at the cables")


def _write(path: Path, image: bytes) -> None:
    try:
        with path.open("wb") as stream:
            stream.write(image)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        drive = path.parent
        if error.errno in (errno.ENOSPC, errno.EFBIG):
            raise HardwareError(
                f"{drive}: full, an image of {len(image)} B does not fit; remove files from it or reconnect the board"
            ) from error
        raise HardwareError(f"{drive}: cannot be written ({error}); is the ST-LINK's drive still mounted?") from error


def _within(limit_s: float, drive: Path, act: Callable[[], None]) -> None:
    """Run `act` in a thread that is left behind should it never end."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except HardwareError as error:
            failures.append(error)

    thread = threading.Thread(target=guarded, name=f"copy to {drive}", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise HardwareError(f"{drive}: the copy was not done after {limit_s:g} s; reconnect the board")
    if failures:
        raise failures[0]
