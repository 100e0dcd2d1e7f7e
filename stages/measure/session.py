"""One session with a device: timed inferences, per-op counts, the output of every golden input, memory use.

A sample on a board is one `infer 1 0`, timed by the device's own clock. On the twin it is one `layers`, whose ticks
are instructions: `infer` tells microseconds only, which would round the exact count. A board is locked for as long as
its link is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boards import Board
from hil.bench.discovery import AttachedBoard, find_board
from hil.bench.locks import board_lock
from hil.link.device_link import ENERGY_BAUD, DeviceLink, Limits
from hil.link.replies import Burst
from hil.virtual.twin import Twin, qemu_version
from pipeline.errors import HardwareError, StageError
from pipeline.stage import Progress, Source, Target
from stages.measure.golden import Golden, check_output
from stages.measure.seen import Sample, Seen

MOST_BURST = 32  # inferences (boards/firmware/link/bench.h)


@dataclass(frozen=True)
class OpenLink:
    """A link in sync, and what kind of device is at its other end."""

    link: DeviceLink
    source: Source
    where: str
    probe_serial: str = ""  # of a board


@dataclass(frozen=True)
class BoardAccess:
    """How a board is reached: which job may have it, and what is attached (None: look)."""

    wait_s: float = 0.0  # for another job that works with it
    lock_folder: Path | None = None
    devices: Sequence[AttachedBoard] | None = None
    limits: Limits | None = None
    baud: int | None = None  # another serial rate, if the firmware agrees
    first_baud: int | None = None  # at which the image starts, where that is not the board's usual rate


@contextmanager
def open_link(
    target: Target, board: Board, flashed: Mapping[str, Any], twin: Path, access: BoardAccess | None = None
) -> Iterator[OpenLink]:
    """Connect to what the flash step left running: the board, which nobody else gets meanwhile, or a new twin."""
    if target.source == "virtual":
        with Twin(twin, name=f"{board.name} twin") as running:
            yield OpenLink(running.link, "virtual", f"{board.name} twin")
        return
    access, serial = access or BoardAccess(), flashed["probe_serial"]
    device = find_board(board.name, access.devices, serial)
    with (
        board_lock(
            device.probe_serial, folder=access.lock_folder, timeout_s=access.wait_s, purpose=f"measure {board.name}"
        ),
        DeviceLink.open(
            device.port,
            baud=access.first_baud or board.console.baud,
            name=board.name,
            limits=access.limits,
            other_baud=ENERGY_BAUD,
            relocate=lambda: find_board(board.name, access.devices, serial).port,
        ) as link,
    ):
        link.sync()
        link.restart()  # what it says when it starts belongs to the measurement; a debugger's traces are gone
        if access.baud is not None:
            link.change_baud(access.baud)
        yield OpenLink(link, "hardware", board.name, device.probe_serial)


def check_clock(device: OpenLink, board: Board) -> None:
    """Refuse a board that runs from another clock than the described one: its times would be no measurement."""
    found = device.link.clock_hz()
    if found != board.clock_hz:
        told = next((line for line in device.link.boot_lines if line.startswith("m-[trouble")), "")
        reason = f" ({told.removeprefix('m-[').removesuffix(']')})" if told else ""
        raise HardwareError(
            f"{device.where}: runs at {found / 1e6:g} MHz, needed {board.clock_hz / 1e6:g} MHz{reason}; "
            f"find out with: pipeline bringup {board.name}"
        )


def measure_device(
    device: OpenLink, golden: Golden, ops: int, build_id: str, runs: int, warmup: int, progress: Progress
) -> Seen:
    """Do everything that is to be measured, in the same order every time."""
    link = device.link
    answered = link.build_id()
    if answered != build_id:
        raise StageError(f"{device.where}: runs build {answered}, needed {build_id}; force the flash step")
    clock_hz = link.clock_hz()
    progress.start(runs + len(golden.inputs), "inference")
    samples, op_ticks, burst = link.on_input(
        golden.bytes_of(0), lambda: _timed_inferences(device, clock_hz, runs, warmup, progress)
    )
    if len(op_ticks) != ops:
        raise StageError(f"{device.where}: reports {len(op_ticks)} ops, the model has {ops}; force the firmware step")
    outputs = [_golden_output(device, golden, index, progress) for index in range(len(golden.inputs))]
    boot_lines = tuple(line for line in link.boot_lines if not line.startswith("m-lap-us-"))
    version = qemu_version() if device.source == "virtual" else None
    return Seen(samples, op_ticks, np.stack(outputs), link.memory(), clock_hz, answered, boot_lines, version, burst)


def _timed_inferences(
    device: OpenLink, clock_hz: int, runs: int, warmup: int, progress: Progress
) -> tuple[tuple[Sample, ...], tuple[int, ...], Burst | None]:
    if warmup > 0:
        device.link.infer(1, warmup)
    samples = tuple(_sample(device, clock_hz, progress) for _ in range(runs))
    burst = device.link.burst(min(runs, MOST_BURST)) if device.link.knows("check") else None
    return samples, tuple(layer.ticks for layer in device.link.layers()), burst


def _sample(device: OpenLink, clock_hz: int, progress: Progress) -> Sample:
    if device.source == "virtual":
        sample = Sample(sum(layer.ticks for layer in device.link.layers()), None, None)
    elif not device.link.tells_time():  # in energy mode the clock is read at the marks between the ops only
        cycles = sum(layer.ticks for layer in device.link.layers())
        sample = Sample(None, cycles, cycles / clock_hz * 1e3)
    elif device.link.knows("check"):  # our own firmware: cycles of the counter itself, not of whole microseconds
        cycles = device.link.burst(1).ticks
        sample = Sample(None, cycles, cycles / clock_hz * 1e3)
    else:
        elapsed_us = device.link.infer(1, 0).elapsed_us
        sample = Sample(None, round(elapsed_us * clock_hz / 1e6), elapsed_us / 1e3)
    progress.advance()
    return sample


def _golden_output(device: OpenLink, golden: Golden, index: int, progress: Progress) -> np.ndarray:
    output = device.link.outputs_of(golden.bytes_of(index), golden.runs)
    progress.advance()
    return check_output(index, output, golden.outputs[index], device.where)
