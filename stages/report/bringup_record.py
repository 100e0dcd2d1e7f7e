"""What a page and its rows say of a board's first day: from the record of `pipeline bringup`, or that there is none.

Nothing heavy is imported here: every run does this, cached ones too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = "bringup"  # of the project


def bringup_words(project: Path, board: str) -> str:
    """One sentence: when, on what, the verdict, and the checks that failed."""
    path = project / FOLDER / f"bringup_{board}.json"
    if not path.exists():
        return f"no bring-up record for this board; make one with: pipeline bringup {board}"
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        failed = [check["name"] for check in record["checks"] if not check["ok"]]
        what = "its twin" if record["source"] == "virtual" else "the board"
        verdict = f"failed: {', '.join(failed)}" if failed else f"all {len(record['checks'])} checks passed"
        return f"{record['when']}, {what}: {verdict}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path.name} cannot be read ({type(error).__name__}); make it anew with: pipeline bringup {board}"
