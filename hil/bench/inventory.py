"""What is on the bench: every probe with its board, port, drives, instrument and who is working with it now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hil.bench.bench_file import Bench
from hil.bench.discovery import AttachedBoard, attached_devices
from hil.bench.locks import board_lock
from hil.bench.probes import Probe, pyocd_probes
from pipeline.errors import HardwareError

Found = TypeVar("Found")


@dataclass(frozen=True)
class Listed:
    """One probe; '' for what it has not or nobody can tell."""

    probe_serial: str
    board: str
    port: str
    drives: tuple[str, ...]
    instrument: str  # kind and address, from bench.yaml
    held_by: str  # who has locked the board; '' when it is free


@dataclass(frozen=True)
class Inventory:
    """Everything found, and what could not be asked."""

    probes: tuple[Listed, ...]
    wired_but_absent: tuple[str, ...]  # serial numbers of bench.yaml that no attached probe has
    troubles: tuple[str, ...]


def take_inventory(
    bench: Bench | None,
    *,
    devices: Callable[[], Iterable[AttachedBoard]] = attached_devices,
    probes: Callable[[], Iterable[Probe]] = pyocd_probes,
    lock_folder: Path | None = None,
) -> Inventory:
    """Look at USB (pyserial), drives (mbed-tools), probes (pyOCD), bench.yaml and locks; one that fails is named."""
    troubles: list[str] = []
    found: dict[str, AttachedBoard] = {}
    for device in _asked(devices, troubles):
        found[device.probe_serial.upper()] = device
    for probe in _asked(probes, troubles):
        known = found.get(probe.serial.upper(), AttachedBoard("", probe.serial, ""))
        board = known.board or probe.board
        found[probe.serial.upper()] = AttachedBoard(board, known.probe_serial, known.port, known.drives)
    listed = [_listed(device, bench, lock_folder) for device in found.values()]
    wired = [] if bench is None else [serial for serial in bench.boards if serial.upper() not in found]
    return Inventory(
        tuple(sorted(listed, key=lambda one: (one.board, one.probe_serial))), tuple(wired), tuple(troubles)
    )


def _asked(source: Callable[[], Iterable[Found]], troubles: list[str]) -> list[Found]:
    try:
        return list(source())
    except HardwareError as error:
        troubles.append(str(error))
        return []


def _listed(device: AttachedBoard, bench: Bench | None, lock_folder: Path | None) -> Listed:
    wiring = None if bench is None else bench.wiring(device.probe_serial)
    holder = board_lock(device.probe_serial, folder=lock_folder).holder()
    return Listed(
        probe_serial=device.probe_serial,
        board=device.board,
        port=device.port,
        drives=tuple(map(str, device.drives)),
        instrument="" if wiring is None else f"{wiring.instrument} {wiring.address}",
        held_by="" if holder is None else str(holder),
    )
