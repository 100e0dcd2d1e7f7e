"""Which boards are attached: probe serial number, serial port, drive and board name of each.

The engine asks at every start, so the answer "none" must be quick: USB serial ports of ST's vendor id are looked for
first (pyserial), and only if there is one, mbed-tools reads the drives to tell which board it is. Where no drive is
mounted, as on most servers, pyOCD asks the probe itself. A probe whose board nobody can tell is listed without a name:
guessing by USB id would flash the wrong board one day.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from hil.bench.locks import LENT
from pipeline.errors import HardwareAbsent, HardwareError

ST_VENDOR_ID = 0x0483


@dataclass(frozen=True, order=True)
class AttachedBoard:
    """One debug probe on USB, with the board it sits on."""

    board: str  # as in boards/, or '' when it cannot be told
    probe_serial: str
    port: str
    drives: tuple[Path, ...] = ()


class UsbPort(Protocol):
    """What pyserial tells of a port."""

    device: str
    vid: int | None
    serial_number: str | None


@dataclass(frozen=True)
class Identity:
    """What the probe's drive says."""

    board: str
    drives: tuple[Path, ...]


def attached_boards() -> tuple[str, ...]:
    """Names of the boards that are attached, sorted; empty within milliseconds when there is no probe."""
    return tuple(sorted({found.board for found in attached_devices() if found.board}))


def probe_serials() -> frozenset[str]:
    """Serial numbers of the probes on USB, without a look at any of them."""
    return frozenset(
        str(port.serial_number) for port in _usb_ports() if port.vid == ST_VENDOR_ID and port.serial_number
    )


def attached_devices(
    ports: Callable[[], Iterable[UsbPort]] | None = None,
    identify: Callable[[], Mapping[str, Identity]] | None = None,
    name_probes: Callable[[], Mapping[str, str]] | None = None,
) -> tuple[AttachedBoard, ...]:
    """Every ST-LINK with a serial port. The parameters are where the facts come from, for tests.

    `name_probes` tells boards by probe serial number (pyOCD) and is asked for what `identify` does not know.
    """
    probes = [port for port in (ports or _usb_ports)() if port.vid == ST_VENDOR_ID and port.serial_number]
    if not probes:
        return ()
    identities = (identify or identities_of)()
    found = []
    for port in probes:
        serial_number = str(port.serial_number)
        identity = identities.get(serial_number.upper(), Identity("", ()))
        found.append(AttachedBoard(identity.board, serial_number, port.device, identity.drives))
    if any(not device.board for device in found):
        named = (name_probes or _named_by_pyocd)()
        found = [replace(one, board=one.board or named.get(one.probe_serial.upper(), "")) for one in found]
    return tuple(sorted(found))


def find_board(board: str, devices: Iterable[AttachedBoard] | None = None, probe_serial: str = "") -> AttachedBoard:
    """The attached board of that name; with two of a kind the probe's serial number must say which.

    Where a worker lends this process one, that one is meant.
    """
    known = tuple(attached_devices() if devices is None else devices)
    probe_serial = probe_serial or os.environ.get(LENT, "")
    wanted_serial = probe_serial.upper()
    matching = [found for found in known if found.board == board and wanted_serial in ("", found.probe_serial.upper())]
    if len(matching) == 1:
        return matching[0]
    if matching:
        serials = ", ".join(found.probe_serial for found in matching)
        raise HardwareError(
            f"{board}: {len(matching)} are attached ({serials}), needed one; set flash.probe_serial to choose"
        )
    others = ", ".join(f"{found.board or 'unknown board'} ({found.probe_serial})" for found in known) or "no ST-LINK"
    wanted = f" with probe {probe_serial}" if probe_serial else ""
    raise HardwareAbsent(
        f"{board}{wanted}: not attached, found {others}; connect it by USB, or run its twin with --virtual"
    )


def _usb_ports() -> Iterable[UsbPort]:
    if sys.platform.startswith("linux") and not any(Path("/dev").glob("ttyACM*")):
        return []  # an ST-LINK is a CDC device there; this saves the import of pyserial
    from serial.tools import list_ports

    return list(list_ports.comports())


def identities_of(devices: Iterable[Any] | None = None) -> Mapping[str, Identity]:
    """Board by probe serial number, as mbed-tools tells from the drives it finds (or from the `devices` given)."""
    # A board that is not in the offline database is unknown to us too; asking the network would only take time.
    os.environ.setdefault("MBED_DATABASE_MODE", "OFFLINE")
    from mbed_tools.devices import get_connected_devices  # type: ignore[import-untyped]
    from mbed_tools.lib.exceptions import ToolsError  # type: ignore[import-untyped]

    from hil.bench.probes import board_name

    try:
        found = get_connected_devices().identified_devices if devices is None else devices
    except (ToolsError, OSError) as error:
        raise HardwareError(f"mbed-tools: cannot list the attached boards ({error}); is udev running?") from error
    return {
        device.serial_number.upper(): Identity(board_name(device.mbed_board.board_type), tuple(device.mount_points))
        for device in found
    }


def _named_by_pyocd() -> Mapping[str, str]:
    from hil.bench.probes import pyocd_probes

    return {probe.serial.upper(): probe.board for probe in pyocd_probes() if probe.board}
