"""What each step of each experiment was last made of, so that `pipeline why` can name what changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.digest import canonical_json
from pipeline.engine.dag import Node
from pipeline.files import ensure_folder, replace_text


@dataclass(frozen=True)
class Use:
    """The last use of a step, and what it was made of when it was last different."""

    ingredients: Mapping[str, Any]
    before: Mapping[str, Any] | None
    status: str  # 'ran' or 'cached'


class History:
    """One small file per experiment and node; a lost or torn one only costs an explanation."""

    def __init__(self, root: Path, run_name: str) -> None:
        self._folder = f"{root}/history/{run_name}"
        self._known: dict[Node, Use | None] = {}

    def last(self, node: Node) -> Use | None:
        """As it was when it was first asked for, or recorded here."""
        if node not in self._known:
            self._known[node] = self._read(node)
        return self._known[node]

    def _read(self, node: Node) -> Use | None:
        try:
            with open(self._file(node), "rb", buffering=0) as file:
                record = json.loads(file.read())
            return Use(record["ingredients"], record["before"], record["status"])
        except (OSError, ValueError, KeyError):
            return None

    def record(self, node: Node, ingredients: Mapping[str, Any], status: str) -> None:
        last = self.last(node)
        if last and last.ingredients == ingredients and (last.status == status or status == "cached"):
            return
        before = None if last is None else last.before if last.ingredients == ingredients else last.ingredients
        ensure_folder(self._folder)
        use = {"ingredients": ingredients, "before": before, "status": status}
        replace_text(self._file(node), canonical_json(use))
        self._known[node] = Use(dict(ingredients), before, status)

    def _file(self, node: Node) -> str:
        return f"{self._folder}/{node}.json"
