"""A sweep as its user sees it on stderr: a table that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.sweeps.results import PointResult
from pipeline.sweeps.spec import Point
from pipeline.text import shown

if TYPE_CHECKING:
    from rich.table import Table

_PLAIN_EVERY_S = 15.0


@dataclass
class _Going:
    """Where a point is."""

    begin: float
    step: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    note: str = ""

    def __str__(self) -> str:
        count = f" {self.unit} {self.done}/{self.total}" if self.total else ""
        return f"{self.step}{count}" if self.step else "begins"


class PlainBoard:
    """One line for each point that has ended, and now and then one about those that run."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._begin = time.monotonic()
        self._told = self._begin
        self._said: set[str] = set()
        self.going: dict[Point, _Going] = {}
        self.points = self.up_to_date = self.done = self.failed = 0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin

    def message(self, text: str) -> None:
        """Once: many points say the same."""
        with self._mutex:
            if text not in self._said:
                self._said.add(text)
                self.write(text)

    def planned(self, points: int, up_to_date: int) -> None:
        self.points, self.up_to_date, self._begin = points, up_to_date, time.monotonic()
        self.done = self.failed = 0
        self.write(f"{points} points, {up_to_date} of them up to date")

    def point_started(self, point: Point) -> None:
        with self._mutex:
            self.going[point] = _Going(time.monotonic())

    def point_step(self, point: Point, step: str, event: Mapping[str, Any]) -> None:
        with self._mutex:
            going = self.going[point]
            if event["event"] == "start":
                going.step, going.done, going.total, going.unit = step, 0, event["total"], event["unit"]
            elif event["event"] == "advance":
                going.step, going.done, going.note = step, going.done + event["count"], event["note"]
            if time.monotonic() - self._told > _PLAIN_EVERY_S:
                self._told = time.monotonic()
                self.still_going()

    def point_ended(self, point: Point, result: PointResult) -> None:
        with self._mutex:
            del self.going[point]
            self.done += result.state == "done"
            self.failed += result.state == "failed"
            self._told = time.monotonic()
            why = "" if result.error is None else f": {result.error.splitlines()[0]}"
            self.write(f"{self.progress()}: {point}: {result.state} in {result.seconds:.1f} s{why}")

    def progress(self) -> str:
        """`[  12.3 s] 3 of 12 points, 30 s left`."""
        ended = self.done + self.failed
        left = self.points - self.up_to_date - ended
        until = f", {_duration(self.elapsed_s / ended * left)} left" if ended and left else ""
        return f"[{self.elapsed_s:6.1f} s] {self.up_to_date + ended} of {self.points} points{until}"

    def still_going(self) -> None:
        self.write(f"{self.progress()}; running: {', '.join(f'{point} ({at})' for point, at in self.going.items())}")

    def write(self, text: str) -> None:
        sys.stderr.write("".join(f"{shown(line)}\n" for line in text.splitlines()))
        sys.stderr.flush()


class LiveBoard(PlainBoard):
    """The points that run as rows of a table, drawn four times a second; those that ended scroll away above it."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self.console = Console(stderr=True)

    def write(self, text: str) -> None:
        self.console.print("\n".join(map(shown, text.splitlines())), markup=False, highlight=False)

    def still_going(self) -> None: ...

    def table(self) -> Table:
        from rich.table import Table

        with self._mutex:
            failed = f", {self.failed} failed" if self.failed else ""
            table = Table("point", "step", "", "seconds", title=f"{self.progress()}{failed}", title_justify="left")
            for point, going in self.going.items():
                seconds = f"{time.monotonic() - going.begin:.0f}"
                table.add_row(*(shown(cell) for cell in (point, going, going.note, seconds)))
            return table


@contextlib.contextmanager
def board_for_stderr() -> Iterator[PlainBoard]:
    if not sys.stderr.isatty():
        yield PlainBoard()
        return
    from rich.live import Live

    board = LiveBoard()
    with Live(get_renderable=board.table, console=board.console, transient=True, refresh_per_second=4):
        yield board


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
