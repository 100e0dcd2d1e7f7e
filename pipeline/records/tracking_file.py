"""Rows of runs appended to one CSV file, for tracking over months: whole or not at all, by several runs at once."""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.stage import fsync_file
from pipeline.text import csv_text


def append_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Columns that the file has not yet are added at its end; older rows are empty there."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            before, columns = _read(path)
            columns = list(dict.fromkeys([*columns, *(column for row in rows for column in row)]))
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            fresh.write_text(csv_text([*before, *rows], columns))
            fsync_file(fresh)
            os.replace(fresh, path)
    except OSError as error:
        raise ConfigError(f"--append {path}: cannot be written ({error.strerror}); choose another file") from error


def _read(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    if not path.exists():
        return [], []
    try:
        with path.open(newline="") as stream:
            reader = csv.DictReader(stream, restkey="", strict=True)
            rows = list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"--append {path}: is no CSV file ({error}); choose another file") from error
    if any("" in row for row in rows):
        raise ConfigError(f"--append {path}: has rows with more cells than columns; mend it or choose another file")
    return rows, list(reader.fieldnames or ())
