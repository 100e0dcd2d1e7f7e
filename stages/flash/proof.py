"""Flash and ask: an image counts as flashed when the running firmware answers with the image's own build id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from boards import Board, OpenOcdSetup, load_board
from hil.bench.discovery import AttachedBoard, find_board
from hil.bench.flasher import FlashPlan, Image, flash_image
from hil.bench.locks import board_lock
from hil.link.device_link import ENERGY_BAUD, DeviceLink
from hil.virtual.twin import Twin
from pipeline.errors import HardwareError, StageError


@dataclass(frozen=True)
class FlashProof:
    """What runs where, and how it got there."""

    board: str
    source: str
    method: str  # qemu, pyocd, openocd, drive (perhaps 'under reset'), or unchanged when it ran this image already
    probe_serial: str  # empty on the twin
    port: str  # likewise
    build_id: str  # as answered by the running firmware
    image_sha256: str


def boot_twin(image: Path, board: str, build_id: str) -> FlashProof:
    """Start the twin and ask for its build id."""
    with Twin(image, name=f"{board} twin") as twin:
        answered = twin.link.build_id()
    _same_build(f"{board} twin", answered, build_id)
    return FlashProof(board, "virtual", "qemu", "", "", answered, _sha256(image))


@dataclass(frozen=True)
class BoardWanted:
    """Which board, and how long to wait for another job to let go of it."""

    name: str
    probe_serial: str = ""
    wait_s: float = 0.0
    lock_folder: Path | None = None
    baud: int | None = None  # of the image, where it is not the board's usual rate


def flash_board(
    image: Image, wanted: BoardWanted, build_id: str, devices: Iterable[AttachedBoard] | None = None
) -> FlashProof:
    """Flash the attached board, unless it runs this very image already; nobody else works with it meanwhile."""
    board = load_board(wanted.name)
    device = find_board(wanted.name, devices, wanted.probe_serial)
    with board_lock(
        device.probe_serial, folder=wanted.lock_folder, timeout_s=wanted.wait_s, purpose=f"flash {board.name}"
    ):
        baud = wanted.baud or board.console.baud
        answered, method = _running_build(device, baud), "unchanged"
        if answered != build_id:
            method = flash_image(image, device, flash_plan(board))
            with DeviceLink.open(device.port, baud=baud, name=board.name, other_baud=ENERGY_BAUD) as link:
                link.sync()
                link.restart()  # a debugger that let go may have stopped the cycle counter (pyOCD: DEMCR = 0)
                answered = link.build_id()
    _same_build(board.name, answered, build_id)
    return FlashProof(board.name, "hardware", method, device.probe_serial, device.port, answered, _sha256(image.elf))


def flash_plan(board: Board) -> FlashPlan:
    names = board.flashing
    return FlashPlan(
        pyocd_target=names.pyocd_target,
        openocd_config=names.openocd_config,
        mbed_code=board.probe.mbed_code,
        openocd_under_reset=_openocd_arguments(names.openocd_under_reset),
        order=names.order,
        connect_under_reset=names.connect_under_reset,
    )


def _openocd_arguments(setup: OpenOcdSetup | None) -> tuple[str, ...]:
    if setup is None:
        return ()
    interface, *others = setup.files
    files = [argument for file in others for argument in ("-f", file)]
    return ("-f", interface, "-c", f"transport select {setup.transport}", *files)


def _running_build(device: AttachedBoard, baud: int) -> str:
    """The build id of what runs on the board now; empty when that is something else or nothing."""
    try:
        with DeviceLink.open(device.port, baud=baud, name=device.board, other_baud=ENERGY_BAUD) as link:
            link.sync(timeout_s=4.0)  # two tries at each of two rates
            return link.build_id()
    except HardwareError:
        return ""


def _same_build(where: str, answered: str, needed: str) -> None:
    if answered != needed:
        raise StageError(f"{where}: runs build {answered}, needed {needed}; force the firmware step, then flash again")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
