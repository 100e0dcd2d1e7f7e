"""What was read of each source file, so that the next run need not read it again: its digest and what it imports; and
which version a program says it is.

A note holds while size, time of change and inode of its file do. A file that changed within the last seconds is not
noted: it could change again without its time telling.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pipeline.files import ensure_folder, replace_text

RESTLESS_NS = 3_000_000_000
_FORMAT = 1
_ELF = b"\x7fELF"


class SourceNotes:
    """One JSON file; a lost, torn or foreign one only costs time."""

    def __init__(self, file: Path, names_of: Callable[[str], Iterable[str]]) -> None:
        self._file, self._names_of = file, names_of
        self._notes: dict[str, list[object]] = {}
        self._programs: dict[str, list[object]] = {}
        self._is_changed = False
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(file.read_text())
            if stored["format"] == _FORMAT:
                self._notes, self._programs = dict(stored["files"]), dict(stored["programs"])

    def of(self, path: Path) -> tuple[str, list[str]]:
        """Digest of a file, and every line of it that may be an import, as `names_of` gives them."""
        state = _state(path)
        match self._notes.get(str(path)):
            case [size, changed, inode, str(digest), list(names)] if [size, changed, inode] == state:
                return digest, names
        content = path.read_bytes()
        digest, names = hashlib.sha256(content).hexdigest(), sorted(set(self._names_of(content.decode())))
        if _is_at_rest(state):
            self._notes[str(path)] = [*state, digest, names]
            self._is_changed = True
        return digest, names

    def version_of(self, program: str, ask: Callable[[str], str | None]) -> str | None:
        """What a program answers to --version. A script may start another one tomorrow: it is asked every time."""
        found = shutil.which(program)
        if found is None:
            return None
        path = os.path.realpath(found)
        state = _state(path)
        match self._programs.get(path):
            case [size, changed, inode, str(version)] if [size, changed, inode] == state:
                return version
        answer = ask(program)
        with open(path, "rb") as file:
            is_binary = file.read(len(_ELF)) == _ELF
        if answer is not None and is_binary and _is_at_rest(state):
            self._programs[path] = [*state, answer]
            self._is_changed = True
        return answer

    def save(self) -> None:
        if not self._is_changed:
            return
        self._is_changed = False
        with contextlib.suppress(OSError):  # a read-only cache
            ensure_folder(str(self._file.parent))
            notes, programs = dict(self._notes), dict(self._programs)  # other threads may be adding to them
            replace_text(str(self._file), json.dumps({"format": _FORMAT, "files": notes, "programs": programs}))


def _state(path: Path | str) -> list[int]:
    seen = os.stat(path)
    return [seen.st_size, seen.st_mtime_ns, seen.st_ino]


def _is_at_rest(state: list[int]) -> bool:
    return time.time_ns() - state[1] > RESTLESS_NS
