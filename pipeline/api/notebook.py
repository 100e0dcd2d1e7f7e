"""What a notebook shows while a run goes on: a row for each step, with a bar, redrawn in place."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from pipeline.engine.dag import Node

_REDRAW_S = 0.25


@dataclass
class _Row:
    state: str
    done: int = 0
    total: int = 0
    unit: str = ""
    note: str = ""

    def html(self, name: str) -> str:
        bar = f'<progress value="{self.done}" max="{self.total}"></progress> {self.done}/{self.total} {self.unit}'
        cells = (escape(name), escape(self.state), bar if self.total and self.state == "running" else "", self.note)
        return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


class NotebookReporter:
    """Steps come from several threads; the kernel draws at most a few times a second."""

    def __init__(self) -> None:
        self._display: Any = importlib.import_module("IPython.display")  # it has no types
        self._lock = threading.Lock()
        self._messages: list[str] = []
        self._rows: dict[Node, _Row] = {}
        self._drawn_at = 0.0
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def message(self, text: str) -> None:
        self._messages.append(text)
        self._draw()

    def planned(self, steps: int) -> None: ...

    def started(self, node: Node, reason: str) -> None:
        self._rows[node] = _Row("running", note=escape(reason))
        self._draw()

    def progressed(self, node: Node, event: Mapping[str, Any]) -> None:
        row = self._rows[node]
        if event["event"] == "start":
            row.done, row.total, row.unit = 0, event["total"], escape(event["unit"])
        elif event["event"] == "advance":
            row.done += event["count"]
            row.note = escape(event["note"]) or row.note
        if time.monotonic() - self._drawn_at >= _REDRAW_S:
            self._draw()

    def finished(self, node: Node, status: str, seconds: float) -> None:
        self._rows[node] = _Row(f"{seconds:.1f} s" if status == "ran" else status)
        self._draw()

    def _draw(self) -> None:
        with self._lock:
            self._drawn_at = time.monotonic()
            lines = "".join(f"<div>{escape(text)}</div>" for text in self._messages)
            rows = "".join(row.html(str(node)) for node, row in list(self._rows.items()))
            self._handle.update(self._display.HTML(f"{lines}<table>{rows}</table>"))
