"""The results of the report step, and the record of the run they belong to -> the files in that run's folder.

The step knows nothing of the run it is part of, so that it can be served from the cache. Nothing heavy is imported
here: every run does this, cached ones too.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.text import csv_text
from stages.report.bringup_record import bringup_words
from stages.report.page.run_record import with_run

_TRAINS = "prune"  # whose seed is that of the row


def completed(artifacts: Mapping[str, Path], record: Mapping[str, Any], project: Path) -> dict[str, bytes]:
    """Artifact -> its bytes; `record` is what run.json says of the run so far, `project` the project's folder."""
    rows = list(csv.DictReader(io.StringIO(artifacts["summary"].read_text())))
    own = run_columns(record)
    bringup = {row["board"]: bringup_words(project, row["board"]) for row in rows}
    columns = [*(rows[0] if rows else ()), *own, "bringup"]
    summary = csv_text([{**row, **own, "bringup": bringup[row["board"]]} for row in rows], columns)
    steps = [{key: value for key, value in step.items() if key != "files"} for step in record["steps"]]
    page = with_run(artifacts["page"].read_text(), {**record, "steps": steps, "bringup": bringup})
    return {"summary": summary.encode(), "page": page.encode()}


def run_columns(record: Mapping[str, Any]) -> dict[str, object]:
    """What every row of a run says of it."""
    git = record["git"] or {}
    versions = sorted(record["versions"].items())
    return {
        "run_id": record["id"],
        "date": record["start"],
        "seed": record["seed"].get(_TRAINS),
        "commit": git.get("commit"),
        "dirty": git.get("dirty"),
        "config_digest": record["config_digest"],
        "tool_versions": "; ".join(f"{name}={version}" for name, version in versions if version),
    }
