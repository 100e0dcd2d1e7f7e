"""Results on stdout: tables for a person, JSON for a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.stage import Answer
from pipeline.text import aligned, shown


def print_answer(answer: Answer, as_json: bool) -> None:
    if as_json:
        print_json(answer.record)
    else:
        print_lines(answer.text.rstrip().splitlines())


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_table(rows: Sequence[Sequence[str]]) -> None:
    print_lines(aligned(rows, range(len(rows[0]))) if rows else ())


def print_lines(lines: Iterable[str]) -> None:
    """Names that hold escapes are written out; letters that the terminal's encoding lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        sys.stdout.write(f"{shown(line)}\n".encode(encoding, "replace").decode(encoding))
