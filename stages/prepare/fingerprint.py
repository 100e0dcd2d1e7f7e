"""What lies in `data.root`, in one digest: an ingredient of the cache key, so that changed data are prepared again.

Names, sizes and times of change of all files, not their contents: 25,000 clips take a fraction of a second. A file that
is replaced by another of the same size and the same time goes unnoticed. A copy elsewhere counts as changed when it did
not keep its times (`cp` without -p); that costs a run, never a wrong result. Downloads are pinned by the sha256 in
their manifest, which is in the key already, and data made on the spot depend on the configuration alone.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_DEEPEST = 8  # levels of folders; a link that leads back up must not go on for ever


def folder_fingerprint(root: Path | None) -> str:
    """Digest over (path, size, time of change) of every file, in the order of the paths; 'none' without a folder."""
    if root is None or not root.is_dir():
        return "none"
    digest = hashlib.sha256()
    for line in sorted(_lines(root, "")):
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _state(entry: os.DirEntry[str]) -> str:
    try:
        state = entry.stat()
    except OSError:
        return "a link to nowhere"
    return f"{state.st_size}\0{state.st_mtime_ns}"


def _lines(folder: Path | str, prefix: str) -> list[str]:
    lines = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir() and prefix.count("/") < _DEEPEST:
                lines += _lines(entry.path, f"{name}/")
            elif not entry.is_dir():
                lines.append(f"{name}\0{_state(entry)}\n")
    return lines
