"""What each step of each experiment was last made of, so that `pipeline why` can name what changed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.digest import canonical_json
from pipeline.engine.dag import Node


@dataclass(frozen=True)
class Use:
    """The last use of a step, and what it was made of when it was last different."""

    ingredients: Mapping[str, Any]
    before: Mapping[str, Any] | None
    status: str  # 'ran' or 'cached'


class History:
    """One small file per experiment and node; a lost or torn one only costs an explanation."""

    def __init__(self, root: Path, run_name: str) -> None:
        self._folder = root / "history" / run_name
        self._known: dict[Node, Use | None] = {}

    def last(self, node: Node) -> Use | None:
        """As it was when it was first asked for, or recorded here."""
        if node not in self._known:
            self._known[node] = self._read(node)
        return self._known[node]

    def _read(self, node: Node) -> Use | None:
        try:
            record = json.loads(self._file(node).read_text())
            return Use(record["ingredients"], record["before"], record["status"])
        except (OSError, ValueError, KeyError):
            return None

    def record(self, node: Node, ingredients: Mapping[str, Any], status: str) -> None:
        last = self.last(node)
        if last and last.ingredients == ingredients and (last.status == status or status == "cached"):
            return
        before = None if last is None else last.before if last.ingredients == ingredients else last.ingredients
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._file(node).with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        fresh.write_text(canonical_json({"ingredients": ingredients, "before": before, "status": status}))
        os.replace(fresh, self._file(node))
        self._known[node] = Use(dict(ingredients), before, status)

    def _file(self, node: Node) -> Path:
        return self._folder / f"{node}.json"
