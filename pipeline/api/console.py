"""What a person sees while a run goes on, on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.engine.dag import Node
from pipeline.text import shown

_PLAIN_EVERY_S = 5.0
_AT_ONCE_S = 1.0  # what is done so soon was there already, such as the epochs of a resumed training


class PlainReporter:
    """One line per event; progress at most every few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self._done: dict[Node, int] = {}
        self._total: dict[Node, tuple[int, str]] = {}
        self._told: dict[Node, float] = {}
        self._base: dict[Node, tuple[float, int]] = {}  # from when and where on the pace is measured
        self._steps = self._ended = 0

    def message(self, text: str) -> None:
        with self._lock:
            sys.stderr.write("".join(f"{shown(line)}\n" for line in text.splitlines()))
            sys.stderr.flush()

    def planned(self, steps: int) -> None:
        self._steps, self._ended = steps, 0

    def started(self, node: Node, reason: str) -> None:
        self.message(f"{self._clock()} {node}: running ({reason})")

    def progressed(self, node: Node, event: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if event["event"] == "start":
            self._done[node], self._total[node] = 0, (event["total"], event["unit"])
            self._base[node] = (now, 0)
        elif event["event"] == "advance":
            total, unit = self._total.get(node, (0, "step"))
            self._done[node] = self._done.get(node, 0) + event["count"]
            done = self._done[node]
            begin, had = self._base.get(node, (now, 0))
            if now - begin < _AT_ONCE_S:
                had = done
                self._base[node] = (begin, had)
            if now - self._told.get(node, 0.0) >= _PLAIN_EVERY_S or done == total:
                self._told[node] = now
                note = f", {event['note']}" if event["note"] else ""
                if had < done < total:
                    note += f", {(now - begin) / (done - had) * (total - done):.0f} s left"
                self.message(f"{self._clock()} {node}: {unit} {done}/{total}{note}")

    def finished(self, node: Node, status: str, seconds: float) -> None:
        self._ended += 1
        taken = f" in {seconds:.1f} s" if status == "ran" else ""
        counted = f", step {self._ended} of {self._steps}" if self._steps else ""
        self.message(f"{self._clock()} {node}: {status}{taken}{counted}")

    def _clock(self) -> str:
        return f"[{time.monotonic() - self._begin:6.1f} s]"


class RichReporter:
    """A bar per running step above one for the whole run, a tick per finished step."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[Node, Any] = {}
        self._done: dict[Node, tuple[int, int, str]] = {}  # of how many, of what
        self._whole: Any = None
        self._steps = self._ended = 0

    def message(self, text: str) -> None:
        self._console.print("\n".join(map(shown, text.splitlines())), markup=False, highlight=False)

    def planned(self, steps: int) -> None:
        self._steps, self._ended = steps, 0
        self._whole = self.progress.add_task("whole run", total=steps, count=f"step 0 of {steps}", note="")

    def started(self, node: Node, reason: str) -> None:
        self._console.print(f"[cyan]▶[/] {_escaped(str(node))} [dim]({_escaped(reason)})[/]", highlight=False)
        self._tasks[node] = self.progress.add_task(_escaped(str(node)), total=None, count="", note="")

    def progressed(self, node: Node, event: Mapping[str, Any]) -> None:
        if event["event"] == "start":
            self._done[node] = (0, event["total"], event["unit"])
            self.progress.reset(self._tasks[node], total=event["total"], count=self._count(node), note="")
        elif event["event"] == "advance":
            done, total, unit = self._done.get(node, (0, 0, ""))
            self._done[node] = (done + event["count"], total, unit)
            note = _escaped(event["note"])
            self.progress.update(self._tasks[node], advance=event["count"], count=self._count(node), note=note)

    def finished(self, node: Node, status: str, seconds: float) -> None:
        if node in self._tasks:
            self.progress.remove_task(self._tasks.pop(node))
        self._ended += 1
        if self._whole is not None:
            self.progress.update(self._whole, advance=1, count=f"step {self._ended} of {self._steps}")
        detail = f"{seconds:.1f} s" if status == "ran" else "cached"
        self._console.print(f"[green]✔[/] {_escaped(str(node))} [dim]{detail}[/]", highlight=False)

    def _count(self, node: Node) -> str:
        done, total, unit = self._done[node]
        return f"{_escaped(unit)} {done}/{total}" if total else ""


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(shown(text))


@contextlib.contextmanager
def reporter_for_stderr() -> Iterator[PlainReporter | RichReporter]:
    if sys.stderr.isatty():
        rich = RichReporter()
        with rich.progress:
            yield rich
    else:
        yield PlainReporter()
