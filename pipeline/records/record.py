"""The record of one run while it goes on: `runs/<name>/<id>/` with the files of every step, and `run.json`.

Files are hard links to those of the cache, or copies where the cache lies on another disk: whatever happens to the
cache later, they stay. A step's folder appears by rename, then run.json names it; what run.json does not name is no
part of the run. While the run lives it holds a lock on its folder: a record that says `running` without one was killed.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import CacheError, ConfigError
from pipeline.files import ensure_folder, replace_text
from pipeline.records.store import LATEST, RECORD, STAGING, RunStore, exclusive, fact_line, record_text

FORMAT = 1
_CHANGING = {"state", "whole", "seconds", "error", "versions", "steps", "rows"}
_NO_LINKS = {errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOTSUP}  # another disk, too many, not allowed, unknown


class OpenRun:
    """A run that goes on. Steps are added from several threads."""

    def __init__(self, store: RunStore, name: str, facts: Mapping[str, Any]) -> None:
        self._store, self._name = store, name
        self._mutex = threading.Lock()
        self.before: str | None = None  # the whole run before this one, known at the end
        self._begin = time.monotonic()
        start = datetime.datetime.now(datetime.UTC)
        self.folder = _new_folder(store.folder(name), start)
        self._held = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._staging = self.folder.parent / STAGING / self.folder.name
        self.facts: dict[str, Any] = {
            **{"format": FORMAT, "id": self.folder.name, "name": name, "state": "running", "whole": False},
            **{"start": start.isoformat(timespec="milliseconds"), "seconds": None, "error": None},
            **facts,
            **{"steps": [], "rows": []},
        }
        self._known = {key: fact_line(key, value) for key, value in self.facts.items() if key not in _CHANGING}
        self._write()

    @property
    def id(self) -> str:
        return self.folder.name

    def add_step(
        self,
        place: str,
        facts: Mapping[str, Any],
        source: Path,
        files: Mapping[str, str],
        made: Mapping[str, bytes],
        is_unchanged: Callable[[], bool],
    ) -> None:
        """Put the files of a step (path -> sha256, below `source`) into the run.

        `made` replaces some with new bytes. `is_unchanged` is asked at the end: were they those that were verified?
        """
        staged = f"{self._staging}/{place}"
        digests = {**files, **{name: hashlib.sha256(content).hexdigest() for name, content in made.items()}}
        for folder in {staged, *(os.path.dirname(f"{staged}/{name}") for name in digests)}:
            ensure_folder(folder)
        for name, content in made.items():
            Path(staged, name).write_bytes(content)
            os.chmod(f"{staged}/{name}", 0o444)
        try:
            for name in files.keys() - made.keys():
                self._link(f"{source}/{name}", f"{staged}/{name}", digests[name])
        except FileNotFoundError:
            raise _replaced(place) from None
        if not is_unchanged():
            raise _replaced(place)
        with self._mutex:
            os.rename(staged, f"{self.folder}/{place}")
            self.facts["steps"].append({**facts, "folder": place, "files": digests})
            self._write()

    def add_versions(self, versions: Mapping[str, str]) -> None:
        """Of tools; written with the next step."""
        with self._mutex:
            self.facts["versions"] |= versions

    def add_rows(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Results; written with the next step."""
        with self._mutex:
            self.facts["rows"] += rows

    def close(self, state: str, *, order: Sequence[str], whole: bool = False, error: str | None = None) -> None:
        """The end: the record is final, on the disk, and `latest` leads to it if it is a whole one."""
        self.facts["steps"].sort(key=lambda step: order.index(step["folder"]))
        seconds = round(time.monotonic() - self._begin, 3)
        self.facts |= {"state": state, "whole": whole and state == "done", "seconds": seconds, "error": error}
        self._write(final=True)
        try:
            os.rmdir(self._staging)
        except OSError:  # a step failed half-way, or none began
            shutil.rmtree(self._staging, ignore_errors=True)
        if self.facts["whole"]:
            self.before = self._store.advance_latest(self._name, self.id)
        os.close(self._held)

    def _link(self, source: str, target: str, digest: str) -> None:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._copy(source, target, digest)

    def _copy(self, source: str, target: str, digest: str) -> None:
        """From another disk: linked to the same bytes of an earlier run where there are some, so copied only once."""
        if (same := self._earlier.get(digest)) is not None:
            try:
                return os.link(same, target)
            except OSError:
                pass  # gone since, or linked too often
        shutil.copyfile(source, target)
        os.chmod(target, 0o444)

    @functools.cached_property
    def _earlier(self) -> dict[str, Path]:
        return self._store.newest_files(self._name)

    def _write(self, final: bool = False) -> None:
        replace_text(f"{self.folder}/{RECORD}", record_text(self.facts, self._known), final=final)


def _replaced(place: str) -> CacheError:
    return CacheError(f"{place}: another run has replaced its files in the cache just now; run this one again")


def _new_folder(parent: Path, start: datetime.datetime) -> Path:
    """Named by the moment of its start, UTC, in steps of 15 us: names sort by time."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with exclusive(parent):
            _remove_old_links(parent)
            moment, part = start.strftime("%Y%m%d-%H%M%S"), start.microsecond * 65536 // 1_000_000
            while (folder := parent / f"{moment}-{part:04x}").exists():
                part += 1
            folder.mkdir()
            return folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ConfigError(
            f"{parent}: cannot be made or written ({error.strerror}), needed for the files of the run; "
            "move away what is in its place, or run in a folder of your own"
        ) from error


@functools.cache  # a sweep puts thousands of runs there
def _remove_old_links(parent: Path) -> None:
    """Before runs were kept, links to the newest files of each step lay here: nobody should take them for a run's."""
    for path in parent.iterdir():
        if path.is_symlink() and path.name != LATEST:
            path.unlink(missing_ok=True)
