"""Which boards are attached: probe serial number, serial port, drive and board name of each.

The engine asks at every start, so the answer "none" must be quick: USB serial ports of ST's vendor id are looked for
first (pyserial), and only if there is one, mbed-tools reads the drives to tell which board it is. A probe whose board
cannot be told (no drive mounted) is listed without a name: guessing by USB id would flash the wrong board one day.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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


def attached_devices(
    ports: Callable[[], Iterable[UsbPort]] | None = None, identify: Callable[[], Mapping[str, Identity]] | None = None
) -> tuple[AttachedBoard, ...]:
    """Every ST-LINK that is attached. The parameters are where the facts come from, for tests."""
    probes = [port for port in (ports or _usb_ports)() if port.vid == ST_VENDOR_ID and port.serial_number]
    if not probes:
        return ()
    identities = (identify or _identities)()
    found = []
    for port in probes:
        serial_number = str(port.serial_number)
        identity = identities.get(serial_number.upper(), Identity("", ()))
        found.append(AttachedBoard(identity.board, serial_number, port.device, identity.drives))
    return tuple(sorted(found))


def find_board(board: str, devices: Iterable[AttachedBoard] | None = None, probe_serial: str = "") -> AttachedBoard:
    """The attached board of that name; with two of a kind the probe's serial number must say which."""
    known = tuple(attached_devices() if devices is None else devices)
    matching = [found for found in known if found.board == board and probe_serial in ("", found.probe_serial)]
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


def _identities() -> Mapping[str, Identity]:
    """Board by probe serial number, from the drives that mbed-tools finds."""
    from mbed_tools.devices import get_connected_devices  # type: ignore[import-untyped]
    from mbed_tools.lib.exceptions import ToolsError  # type: ignore[import-untyped]

    try:
        connected = get_connected_devices()
    except (ToolsError, OSError) as error:
        raise HardwareError(f"mbed-tools: cannot list the attached boards ({error}); is udev running?") from error
    return {
        device.serial_number.upper(): Identity(
            device.mbed_board.board_type.lower(), tuple(map(Path, device.mount_points))
        )
        for device in connected.identified_devices
    }
