"""What a first day happens to: an attached board, its twin, or in tests the register model; all through one link."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from boards import ENERGY_BAUD, Board
from hil.bench.discovery import AttachedBoard
from hil.bench.flasher import Image, flash_image
from hil.bench.probes import pyocd_probes, stlink_firmware
from hil.link.device_link import DeviceLink
from hil.virtual.twin import Twin, qemu_version
from pipeline.errors import HardwareError
from stages.firmware.build.image import Images
from stages.flash.proof import flash_plan


class Device(Protocol):
    """Where images can be put and run."""

    source: Literal["hardware", "virtual"]
    has_chip: bool  # registers of an STM32 to read back

    def probe(self) -> str:
        """The debug probe and its firmware, as it tells; an error if there is none."""
        ...

    def probe_firmware(self) -> str | None:
        """None where it cannot be told."""
        ...

    @contextmanager
    def running(self, images: Images) -> Iterator[DeviceLink]:
        """The image flashed and started, with an open link that is not in sync yet."""
        ...

    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


class TwinDevice:
    """QEMU: no chip to read, no clock to compare."""

    source: Literal["virtual"] = "virtual"
    has_chip = False

    def __init__(self, board: Board) -> None:
        self._board = board

    def probe(self) -> str:
        return f"QEMU {qemu_version()}"

    def probe_firmware(self) -> str | None:
        return None

    @contextmanager
    def running(self, images: Images) -> Iterator[DeviceLink]:
        with Twin(images.twin, name=f"{self._board.name} twin") as twin:
            yield twin.link

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class AttachedDevice:
    """A board on USB."""

    source: Literal["hardware"] = "hardware"
    has_chip = True

    def __init__(self, board: Board, attached: AttachedBoard) -> None:
        self._board, self._attached = board, attached

    def probe(self) -> str:
        known = {probe.serial.upper(): probe.description for probe in pyocd_probes()}
        told = known.get(self._attached.probe_serial.upper(), "not seen by pyOCD")
        if not self._attached.port:
            raise HardwareError(f"{self._attached.probe_serial}: no serial port; update the ST-LINK (STSW-LINK007)")
        return f"{self._attached.probe_serial} at {self._attached.port} ({told})"

    def probe_firmware(self) -> str | None:
        return stlink_firmware(self._attached.probe_serial)

    @contextmanager
    def running(self, images: Images) -> Iterator[DeviceLink]:
        flash_image(Image(images.image, images.image_bin), self._attached, flash_plan(self._board))
        baud, name = self._board.console.baud, self._board.name
        with DeviceLink.open(self._attached.port, baud=baud, name=name, other_baud=ENERGY_BAUD) as link:
            link.sync()
            link.restart()  # a debugger that let go may have stopped the cycle counter
            yield link

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
