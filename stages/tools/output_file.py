"""The file that a command writes: whole or not at all, and its name is looked at before any work is done."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from pipeline.errors import DiskFull, StageError
from pipeline.stage import fsync_file


def require_file_name(out: Path) -> None:
    """Raise StageError if the name is that of a folder."""
    if out.is_dir():
        raise StageError(f"{out}: is a folder, needed a file name")


def write_atomically(out: Path, content: bytes) -> None:
    """Put the file in place of whatever was there."""
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        fresh.write_bytes(content)
        fsync_file(fresh)
        os.replace(fresh, out)
        fsync_file(out.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise DiskFull(str(out)) from error
        raise StageError(f"{out}: cannot be written ({error.strerror}), needed a folder that exists") from error
