"""The checks in their order, image by image; one that everything behind it stands on ends the day when it fails."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from boards import Board
from pipeline.errors import PipelineError
from stages.tools.bringup import checks
from stages.tools.bringup.checks import Check
from stages.tools.bringup.device import Device
from stages.tools.bringup.images import Trial

_FULL, _ALL = 2, 3
STAGE_NAMES = {1: "internal clock, no caches, no MPU", _FULL: "full clock", _ALL: "caches and MPU"}


@dataclass(frozen=True)
class Record:
    """A first day, as bringup.json holds it."""

    board: str
    source: str
    when: str  # UTC
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def text(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [f"{'ok  ' if one.ok else 'FAIL'}  {one.name:{width}}  {one.found}" for one in self.checks]
        for one in self.checks:
            if not one.ok:
                lines += ["", f"{one.name}: expected {one.expected}; found {one.found}", f"  do: {one.todo}"]
        verdict = "all is well" if self.ok else "not ready to be measured"
        return "\n".join([f"{self.board} ({self.source}): {verdict}", *lines])


def first_day(board: Board, device: Device, trial: Trial, seconds: float, watchdog_s: float) -> Record:
    """Do all of it."""
    found = [*_probe(device)]
    if found[-1].ok:
        for stage in sorted(trial.images):
            found += _stage(board, device, trial, stage, seconds, watchdog_s)
            if any(not one.ok for one in found):
                break  # the next image asks more of what has failed already
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Record(board.name, device.source, when, tuple(found))


def _probe(device: Device) -> Iterator[Check]:
    todo = "connect the board by USB; a cable with data lines; the udev rule of hil/RUNNER.md"
    answered = checks.attempt("probe", "one that answers", todo, lambda: (True, device.probe()))
    yield answered
    if answered.ok and device.has_chip:
        yield checks.probe_firmware(device.probe_firmware)


def _stage(
    board: Board, device: Device, trial: Trial, stage: int, seconds: float, watchdog_s: float
) -> Iterator[Check]:
    images, expected = trial.images[stage], trial.expected[stage]
    try:
        with device.running(images) as link:
            yield checks.console(link, images.build_id)
            if device.has_chip:
                registers = link.chip()
                yield checks.chip(registers, board)
                yield checks.flash_size(registers, board)
                yield checks.option_bytes(registers, board)
                if stage == 1:
                    yield checks.revision(registers, board)
                yield checks.clock(link, board, stage >= _FULL)
                if stage >= _FULL:
                    yield checks.clock_tree(registers, board)
                yield checks.counter(registers)
            if stage == _FULL and device.has_chip:
                yield checks.time_base(link, device, seconds)
                yield checks.link_rates(link)
            if stage == _ALL:
                if device.has_chip:
                    yield checks.caches(registers, board)
                yield checks.ram(link)
                yield checks.flash(link, expected)
            yield checks.network(link, expected)
            if stage == _ALL:
                yield checks.stack(link, expected.stack_bound_bytes)
                yield checks.restart(link)
                yield checks.fault(link)
                yield checks.watchdog(link, watchdog_s)
    except PipelineError as error:
        todo = "flash by hand; watch the light: 1 flash: clock, 2: memory, 3: console stuck; check port and cable"
        yield Check("console", f"the image of stage {stage} ({STAGE_NAMES[stage]}) answers", str(error), False, todo)


def record_name(board: str) -> str:
    """Of a board's record, in the project's folder `bringup`; stages/report/bringup_record.py reads it."""
    return f"bringup_{board}.json"


def write_record(record: Record, folder: Path) -> Path:
    """bringup.json, which reports may quote, and bringup.md to read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / record_name(record.board)
    path.write_text(json.dumps({**asdict(record), "ok": record.ok}, indent=2) + "\n")
    rows = [
        f"| {'ok' if one.ok else '**failed**'} | {one.name} | {one.expected} | {one.found} | {one.todo} |"
        for one in record.checks
    ]
    head = ["| | check | expected | found | to do |", "|---|---|---|---|---|"]
    verdict = "all is well" if record.ok else "not ready"
    title = f"# First day of {record.board} ({record.source}), {record.when}: {verdict}"
    path.with_suffix(".md").write_text("\n".join([title, "", *head, *rows]) + "\n")
    return path
