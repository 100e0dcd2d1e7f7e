"""What `pipeline bringup` does: build, run, check, record."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from boards import load_board
from hil.bench.discovery import find_board
from hil.bench.locks import board_lock
from pipeline.stage import Answer
from stages.tools.bringup.checks import CLOCK_S, WATCHDOG_S
from stages.tools.bringup.device import AttachedDevice, TwinDevice
from stages.tools.bringup.first_day import first_day, write_record
from stages.tools.bringup.images import build_trial


def bringup(name: str, virtual: bool, out: Path, probe_serial: str = "") -> Answer:
    """The record as text and values; `ok` says whether the board may be measured."""
    board = load_board(name)
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        if virtual:
            record = first_day(board, TwinDevice(board), build_trial(board, Path(folder)), 0.0, WATCHDOG_S)
        else:
            attached = find_board(name, probe_serial=probe_serial)  # before minutes are spent on building
            trial = build_trial(board, Path(folder))
            with board_lock(attached.probe_serial, purpose=f"bring-up of {name}"):
                record = first_day(board, AttachedDevice(board, attached), trial, CLOCK_S, WATCHDOG_S)
    path = write_record(record, out)
    return Answer(f"{record.text}\nwritten to {path}", {**asdict(record), "ok": record.ok, "file": str(path)})
