"""Results on stdout: tables for a person, JSON for a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from pipeline.stage import Answer


def print_answer(answer: Answer, as_json: bool) -> None:
    if as_json:
        print_json(answer.record)
    else:
        # Tensors may be named in letters that the terminal's encoding lacks; those become question marks.
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(f"{answer.text.rstrip()}\n".encode(encoding, "replace").decode(encoding))


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    for row in rows:
        sys.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n")
