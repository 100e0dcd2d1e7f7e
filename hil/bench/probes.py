"""Debug probes as pyOCD sees them: also those without serial port or drive. Without pyOCD there are none to see.

`pyocd json --probes` is asked, because importing pyOCD into a long-lived process would keep the USB devices busy. It
does not tell an ST-LINK's own firmware; OpenOCD does when it opens one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import HardwareError

_LIST_S = 20.0
# Hardware version -> firmware: J28 reaches all access ports of an H7, V3's J2 stumbles when the protocol is changed.
LEAST_FIRMWARE = {2: 28, 3: 3}
_FIRMWARE = re.compile(r"STLINK (V([0-9]+)J([0-9]+)\S*) \(API v[0-9]+\)")  # OpenOCD's words
_UNTOLD = "Generic"  # what pyOCD says of a board that it does not know


@dataclass(frozen=True, order=True)
class Probe:
    """One debug probe."""

    serial: str
    board: str  # '' when pyOCD cannot tell
    description: str


def pyocd_path() -> str | None:
    """pyOCD of this Python's environment, or else of the PATH."""
    beside = Path(sys.executable).with_name("pyocd")
    return str(beside) if beside.exists() else shutil.which("pyocd")


def pyocd_probes(program: str | None = None, timeout_s: float = _LIST_S) -> tuple[Probe, ...]:
    """Every probe that pyOCD finds, sorted by serial number."""
    program = program or pyocd_path()
    if program is None:
        return ()
    argv = [program, "json", "--probes", "--no-config"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        record = json.loads(done.stdout)
        if record["status"] != 0:
            raise HardwareError(f"pyocd: cannot list the probes ({_last_line(str(record.get('error')))})")
        return tuple(
            sorted(_probe(entry["unique_id"], entry["board_name"], entry["info"]) for entry in record["boards"])
        )
    except subprocess.TimeoutExpired as error:
        raise HardwareError(f"pyocd: no list of the probes within {timeout_s:g} s; is a probe stuck?") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HardwareError(f"pyocd: answered no list of probes ({error}); is it installed whole?") from error


def stlink_firmware(serial: str, program: str | None = None, timeout_s: float = _LIST_S) -> str | None:
    """Such as V2J37M26, by OpenOCD; None without OpenOCD, an error where the probe does not open."""
    program = program or shutil.which("openocd")
    if program is None:
        return None
    argv = [program, "-f", "interface/stlink-dap.cfg", "-c", "transport select dapdirect_swd"]
    argv += ["-c", f"adapter serial {serial}", "-c", "init", "-c", "shutdown"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HardwareError(f"probe {serial}: openocd did not tell its firmware ({error}); is it stuck?") from error
    found = _FIRMWARE.search(done.stdout + done.stderr)
    if found is None:
        raise HardwareError(f"probe {serial}: openocd did not open it ({_last_line(done.stderr)}); is it in use?")
    return found[1]


def is_new_enough(firmware: str) -> bool:
    """An ST-LINK with this firmware can do all that is asked of it here."""
    match = re.match(r"V([0-9]+)J([0-9]+)", firmware)
    return match is not None and int(match[2]) >= LEAST_FIRMWARE.get(int(match[1]), 0)


def board_name(vendor_name: str) -> str:
    """The name in boards/ of what ST, Mbed and pyOCD call NUCLEO_F767ZI or NUCLEO-H7A3ZI-Q."""
    return vendor_name.lower().replace("-", "_")


def _probe(serial: str, name: str | None, description: str) -> Probe:
    return Probe(serial, "" if name in (None, "", _UNTOLD) else board_name(str(name)), description)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
