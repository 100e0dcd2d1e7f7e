"""All runs of a project: `runs/<name>/<id>/`, `latest` beside them, and dropped ones below `.dropped` until `gc`.

A run is kept until somebody drops it. `pipeline runs --drop` takes it out of sight, `--keep` takes it back, and the
next `gc` removes it for good together with what only it needed.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.files import replace_text

RECORD = "run.json"
LATEST = "latest"
STAGING, _DROPPED = ".staging", ".dropped"
_ENCODER = json.JSONEncoder(allow_nan=False)
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,}")
_BACK = re.compile(r"(?:(?P<name>.+)/)?latest(?:~(?P<back>\d+))?")


@dataclass(frozen=True)
class StoredRun:
    """A run as its run.json tells it."""

    folder: Path
    facts: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def name(self) -> str:
        """That of its experiment, with -quick where it is the quick one."""
        return str(self.facts["name"])

    @property
    def state(self) -> str:
        """running, done, failed or killed."""
        return str(self.facts["state"])

    @property
    def is_whole(self) -> bool:
        """Done with every step, not only some of them."""
        return bool(self.facts["whole"])

    @property
    def age_s(self) -> float:
        """Since its start."""
        start = datetime.datetime.fromisoformat(self.facts["start"])
        return (datetime.datetime.now(datetime.UTC) - start).total_seconds()

    @property
    def keys(self) -> set[str]:
        """Of the entries in the cache that its files come from."""
        return {step["key"] for step in self.facts["steps"]}

    def path(self, artifact: str, board: str | None = None) -> Path | None:
        """The file or folder of an artifact, of one board where there are several; None if the run has none."""
        for step in self.facts["steps"]:
            if artifact in step["outputs"] and (board is None or step["board"] == board):
                place: str = step["outputs"][artifact]
                return self.folder.joinpath(step["folder"], place)
        return None


@dataclass(frozen=True)
class RunStore:
    """The runs below one folder."""

    root: Path

    def folder(self, name: str) -> Path:
        return self.root / name

    def names(self) -> list[str]:
        """Experiments that have been run, in alphabetical order."""
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if path.is_dir() and not path.name.startswith("."))

    def runs(self, name: str | None = None, *, dropped: bool = False) -> list[StoredRun]:
        """Of one experiment or of all, oldest first."""
        found = []
        for each in self.names() if name is None else [name]:
            own = _runs_in(self.folder(each) / _DROPPED if dropped else self.folder(each))
            if not dropped:
                self._mend_latest(each, own)
            found += own
        return sorted(found, key=lambda run: (run.id, run.name))

    def _mend_latest(self, name: str, runs: Sequence[StoredRun]) -> None:
        """Of a run that was killed when its record was final and `latest` did not lead to it yet."""
        newest = max((run for run in runs if run.is_whole), key=lambda run: run.id, default=None)
        link = self.folder(name) / LATEST
        if newest is None or (link.is_symlink() and os.readlink(link) >= newest.id):
            return
        with contextlib.suppress(OSError):  # somebody else's folder, or just dropped
            if not _is_locked(newest.folder):  # one that is about to do it itself
                self.point_latest(name)

    def find(self, text: str, *, dropped: bool = False) -> StoredRun:
        """By id or the end of one, `latest`, `latest~2`, `EXPERIMENT/latest`, or its folder."""
        if (Path(text) / RECORD).is_file() and (run := read_run(Path(text).resolve())) is not None:
            return run
        if (back := _BACK.fullmatch(text)) is not None and not dropped:
            return self._counted_back(text, back["name"], int(back["back"] or 0))
        wanted = text.rstrip("/").rpartition("/")[2]
        runs = [run for run in self.runs(dropped=dropped) if wanted and run.id.endswith(wanted)]
        if len(runs) == 1:
            return runs[0]
        what = "dropped run" if dropped else "run"
        if runs:
            raise ConfigError(f"{text}: {len(runs)} runs end like this: {', '.join(run.id for run in runs)}; say more")
        raise ConfigError(f"{text}: no such {what} in {self.root}; the list is: pipeline runs")

    def _counted_back(self, text: str, name: str | None, back: int) -> StoredRun:
        whole = [run for run in self.runs(name) if run.is_whole]
        if whole and name is None:
            whole = [run for run in whole if run.name == whole[-1].name]
        if len(whole) <= back:
            where = self.root if name is None else self.folder(name)
            raise ConfigError(f"{text}: {where} has {len(whole)} whole runs, needed {back + 1}; see: pipeline runs")
        return whole[-1 - back]

    def newest_files(self, name: str) -> dict[str, Path]:
        """sha256 -> file, of the newest whole run."""
        run = read_run(self.folder(name) / LATEST)
        steps = () if run is None else run.facts["steps"]
        folder = self.folder(name) / LATEST
        return {sha256: folder / step["folder"] / path for step in steps for path, sha256 in step["files"].items()}

    def drop(self, run: StoredRun) -> None:
        """Out of sight, until `gc` removes it or `keep` takes it back."""
        if run.state == "running":
            raise ConfigError(f"{run.id}: is still running; end it first")
        away = self.folder(run.name) / _DROPPED
        away.mkdir(exist_ok=True)
        os.rename(run.folder, away / run.id)
        self.point_latest(run.name)

    def keep(self, run: StoredRun) -> None:
        """Take a dropped run back."""
        os.rename(run.folder, self.folder(run.name) / run.id)
        self.point_latest(run.name)

    def remove_dropped(self) -> int:
        """For good; returns how many."""
        runs = self.runs(dropped=True)
        for name in self.names():
            shutil.rmtree(self.folder(name) / _DROPPED, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.folder(name).rmdir()  # nothing else was in it
        return len(runs)

    def point_latest(self, name: str) -> None:
        """Let `latest` lead to the newest whole run, or nowhere."""
        with exclusive(self.folder(name)):
            whole = [run.id for run in _runs_in(self.folder(name)) if run.is_whole]
            _lead(self.folder(name) / LATEST, max(whole, default=None))

    def advance_latest(self, name: str, run_id: str) -> str | None:
        """Let `latest` lead to this run, unless a newer one was faster; returns where it led before."""
        folder = self.folder(name)
        link = folder / LATEST
        with exclusive(folder):
            before = os.readlink(link) if os.path.exists(link) else None
            if before is None or before < run_id:
                _lead(link, run_id)
            return before


def _runs_in(folder: Path) -> list[StoredRun]:
    folders = [path for path in folder.iterdir() if _ID.fullmatch(path.name)] if folder.is_dir() else []
    return [run for path in folders if (run := read_run(path)) is not None]


def _lead(link: Path, run_id: str | None) -> None:
    if run_id is None:
        return link.unlink(missing_ok=True)
    fresh = link.with_name(f".{link.name}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(run_id)
    os.replace(fresh, link)


def record_text(facts: Mapping[str, Any], known: Mapping[str, str]) -> str:
    """run.json: a line for every fact and every step. The encoder indents in Python, ten times slower: not for this.

    `known` has the lines of some that do not change.
    """
    return "{\n" + ",\n".join([known.get(key) or fact_line(key, value) for key, value in facts.items()]) + "\n}\n"


def fact_line(key: str, value: Any) -> str:
    if key == "steps" and value:
        return ' "steps": [\n  ' + ",\n  ".join(map(_ENCODER.encode, value)) + "\n ]"
    return f' "{key}": {_ENCODER.encode(value)}'


def read_run(folder: Path) -> StoredRun | None:
    """The run of a folder; one that was killed is marked on the way. None where there is no record to be read."""
    try:
        facts = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or not {"id", "name", "state", "whole", "steps", "rows"} <= facts.keys():
        return None
    if facts["state"] == "running" and not _is_locked(folder):
        facts = json.loads((folder / RECORD).read_text())  # it may have come to its end just now
        if facts["state"] == "running":
            facts |= {"state": "killed", "error": "its process was gone before it was done"}
            with contextlib.suppress(OSError):  # somebody else's folder: told, not written
                _settle(folder, facts)
    return StoredRun(folder, facts)


def _settle(folder: Path, facts: Mapping[str, Any]) -> None:
    """Make the record of a killed run final; what it does not name goes."""
    named = {RECORD, *(step["folder"] for step in facts["steps"])}
    for path in folder.iterdir():
        if path.name not in named:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(folder.parent / STAGING / folder.name, ignore_errors=True)
    replace_text(f"{folder}/{RECORD}", record_text(facts, {}), final=True)


def _is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others may be asking too
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One process at a time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
