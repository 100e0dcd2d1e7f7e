"""The content-addressed cache: a step's key -> the files it made.

    <root>/entries/<step>/<key>/   the step's files, read-only, beside `entry.json`
    <root>/checkpoints/<key>/      what an interrupted step left for its next run
    <root>/locks/<key>             held while a key is being built, so that two runs do the work once
    <root>/tmp/<key>.<pid>/        where a step writes; renamed into entries/ once it is whole and on the disk
    <root>/in_use                  held shared by every run, alone by `gc` and `clean`

`entry.json` holds the digest of every file, and begins with the digest of all that follows: any flipped bit in an entry
is found when it is used. A damaged entry is moved away and reported; it is never trusted and never raised.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.digest import file_digest, files_below, names_below, stream_digest, value_digest
from pipeline.errors import CacheError
from pipeline.files import ensure_folder, settle, sync_folder, write_text
from pipeline.store.manifest import MANIFEST, Damaged, begins_with, sealed_record, sealed_text


class Remote(Protocol):
    """A store behind the cache. None of these raises: a store that does not answer has nothing and takes nothing."""

    def fetch(self, step: str, key: str, into: Path) -> bool: ...
    def publish(self, step: str, key: str, folder: Path) -> None: ...
    def fetch_checkpoint(self, key: str, into: Path) -> None: ...
    def checkpoint_advanced(self, key: str, folder: Path) -> None: ...
    def release(self) -> None: ...


@dataclass(frozen=True)
class Entry:
    """A finished step in the cache."""

    folder: Path
    outputs: Mapping[str, str]  # artifact -> path relative to folder
    files: Mapping[str, str]  # relative path -> sha256
    seal: str  # digest of its manifest: another one lies in this folder when it has another

    def path(self, artifact: str) -> Path:
        return self.folder / self.outputs[artifact]

    def digest(self, artifact: str) -> str:
        """Content digest of one artifact, from the digests of its files."""
        top = self.outputs[artifact]
        if top in self.files:
            return self.files[top]
        return value_digest({name: digest for name, digest in self.files.items() if name.startswith(f"{top}/")})


@dataclass(frozen=True)
class Swept:
    """What `gc` removed and left."""

    removed: int
    freed_bytes: int
    kept_bytes: int


def is_in_place(entry: Entry) -> bool:
    """No other run has replaced it since it was verified."""
    try:
        begin = begins_with(entry.seal).encode()
        with open(f"{entry.folder}/{MANIFEST}", "rb", buffering=0) as manifest:
            return manifest.read(len(begin)) == begin
    except OSError:
        return False


class Cache:
    """All entries below one folder. `report` receives a sentence about each damaged entry."""

    def __init__(self, root: Path, report: Callable[[str], None], remote: Remote | None = None) -> None:
        self.root = root
        self.remote = remote
        self._report = report
        self._absent: set[str] = set()  # keys that the store did not have when it was asked
        self._users = 0
        self._mutex = threading.Lock()
        self._verified: dict[str, Entry] = {}  # by key, which holds the step's name

    def entry_folder(self, step: str, key: str) -> Path:
        return Path(f"{self.root}/entries/{step}/{key}")

    def checkpoint_folder(self, key: str) -> Path:
        return Path(f"{self.root}/checkpoints/{key}")

    def lookup(self, step: str, key: str, *, discard: bool = False) -> Entry | None:
        """The entry of a key, every byte of it verified; None when there is none or it is damaged.

        With the key's lock held a damaged entry may be discarded; without it, another run may be mending it just now.
        """
        if (known := self._verified.get(key)) is not None:
            return known
        if (folder := self._found(step, key, ask_again=discard)) is None:
            return None
        try:
            entry = _read_entry(folder)
        except Damaged as damage:
            if discard:
                self._set_aside(folder)
                self._report(f"cache: {step}/{key[:12]}: {damage}; the entry is discarded and the step runs again")
                return self.lookup(step, key) if self._fetched(step, key, ask_again=True) else None
            return None
        with contextlib.suppress(OSError):  # a read-only cache still serves; only gc's idea of last use suffers
            os.utime(folder)
        self._verified[key] = entry
        return entry

    def glance(self, step: str, key: str) -> Entry | None:
        """What `lookup` would find, by its manifest and the names of its files: to plan with, never to read from."""
        if (known := self._verified.get(key)) is not None:
            return known
        if (folder := self._found(step, key, ask_again=False)) is None:
            return None
        try:
            return _listed_entry(folder)
        except Damaged:
            return None

    def _found(self, step: str, key: str, *, ask_again: bool) -> Path | None:
        """Its folder, here or by now; most questions are about what is not there, so they cost a string."""
        is_here = os.path.isdir(f"{self.root}/entries/{step}/{key}")
        return self.entry_folder(step, key) if is_here or self._fetched(step, key, ask_again=ask_again) else None

    def _fetched(self, step: str, key: str, *, ask_again: bool) -> bool:
        """Take an entry over from the store; it is verified like any other when it is used."""
        if self.remote is None or (key in self._absent and not ask_again):
            return False
        fresh = self.root / "tmp" / f"fetched.{key}.{os.getpid()}.{threading.get_ident()}"
        fresh.mkdir(parents=True, exist_ok=True)
        try:
            if not self.remote.fetch(step, key, fresh):
                self._absent.add(key)
                return False
            for file in files_below(fresh):
                file.chmod(0o444)
            final = self.entry_folder(step, key)
            final.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # another run was faster
                os.rename(fresh, final)
            return True
        finally:
            remove_tree(fresh)

    def take_up_checkpoint(self, key: str) -> None:
        """From the store, where this machine has none. Call with the key's lock held."""
        folder = self.checkpoint_folder(key)
        if self.remote is not None and not (folder.is_dir() and any(folder.iterdir())):
            self.remote.fetch_checkpoint(key, folder)

    def checkpoint_advanced(self, key: str) -> None:
        """A step that runs may have saved one."""
        if self.remote is not None:
            self.remote.checkpoint_advanced(key, self.checkpoint_folder(key))

    def building(self, key: str, on_wait: Callable[[], None]) -> AbstractContextManager[int]:
        """Hold the lock of a key; yields its descriptor, which the worker inherits so that the lock outlives us."""
        return _locked(f"{self.root}/locks/{key}", fcntl.LOCK_EX, on_wait)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep `gc` and `clean` away while a run reads entries."""
        waits = "cache: waiting for a clean-up to end"
        with _locked(f"{self.root}/in_use", fcntl.LOCK_SH, lambda: self._report(waits)):
            with self._mutex:
                self._users += 1
            try:
                yield
            finally:
                with self._mutex:
                    self._users -= 1
                    is_last = self._users == 0
                if self.remote is not None and is_last:
                    self.remote.release()

    def alone(self) -> AbstractContextManager[int]:
        """Refuse to go on while any run uses the cache."""

        def busy() -> None:
            raise CacheError(f"{self.root}: a run is using the cache; wait for it to end and try again")

        return _locked(f"{self.root}/in_use", fcntl.LOCK_EX, busy)

    def fresh_folder(self, key: str) -> Path:
        """An empty folder to build a key in; what a killed run left there is removed. Call with the key's lock held."""
        tmp = f"{self.root}/tmp"
        ensure_folder(tmp)
        for name in os.listdir(tmp):
            if name.startswith(f"{key}."):
                remove_tree(Path(tmp, name))
        folder = Path(f"{tmp}/{key}.{os.getpid()}")
        folder.mkdir()
        return folder

    def publish(self, step: str, key: str, built: Path, record: Mapping[str, Any]) -> Entry:
        """Put a finished folder in its place, whole and on the disk, or not at all."""
        names = set(names_below(str(built)))
        if MANIFEST in names:
            os.unlink(f"{built}/{MANIFEST}")
        files = {name: _settled(f"{built}/{name}") for name in sorted(names - {MANIFEST})}
        text, seal = sealed_text({**record, "files": files})
        write_text(f"{built}/{MANIFEST}", text, final=True)
        for folder in {os.path.dirname(f"{built}/{name}") for name in (*files, MANIFEST)}:
            sync_folder(folder)
        final = self.entry_folder(step, key)
        parent = os.path.dirname(final)
        ensure_folder(parent)
        if os.path.exists(final):
            self._set_aside(final)
        os.rename(built, final)
        sync_folder(parent)
        remove_tree(self.checkpoint_folder(key))
        entry = Entry(final, record["outputs"], files, seal)
        self._verified[key] = entry
        if self.remote is not None and "run" not in record["ingredients"]:  # on hardware: nobody asks for it again
            self.remote.publish(step, key, final)
        return entry

    def sweep(self, *, max_age_s: float | None, max_bytes: int | None, needed: Collection[str] = ()) -> Swept:
        """Remove entries unused for `max_age_s`, then the longest unused ones until `max_bytes` hold.

        Those with a key among the `needed` stay.
        """
        with self.alone():
            remove_tree(self.root / "tmp")
            entries = sorted((self.root / "entries").glob("*/*"), key=lambda folder: folder.stat().st_mtime)
            sizes = {folder: tree_bytes(folder) for folder in entries}
            left, removed, freed = sum(sizes.values()), 0, 0
            for folder in entries:
                too_old = max_age_s is not None and time.time() - folder.stat().st_mtime > max_age_s
                too_much = max_bytes is not None and left > max_bytes
                if (too_old or too_much) and folder.name not in needed:
                    self._set_aside(folder)
                    left, removed, freed = left - sizes[folder], removed + 1, freed + sizes[folder]
            oldest = time.time() - (max_age_s or 0)
            for checkpoint in (self.root / "checkpoints").glob("*"):
                if max_age_s is not None and checkpoint.stat().st_mtime < oldest:
                    remove_tree(checkpoint)
            return Swept(removed, freed, left)

    def _set_aside(self, folder: Path) -> None:
        """Take an entry out of reach in one rename, then delete it."""
        self._verified.pop(folder.name, None)
        tmp = self.root / "tmp"
        tmp.mkdir(parents=True, exist_ok=True)
        away = tmp / f"removed.{folder.name}.{os.getpid()}.{time.monotonic_ns()}"
        os.rename(folder, away)
        remove_tree(away)


def _settled(path: str) -> str:
    """The digest of a file that is on the disk and stays as it is."""
    with open(path, "rb", buffering=0) as file:
        settle(file.fileno())
        return stream_digest(file)


def _read_entry(folder: Path) -> Entry:
    entry = _listed_entry(folder)
    for name, sha256 in entry.files.items():
        try:
            digest = file_digest(f"{folder}/{name}")
        except OSError as error:
            raise Damaged(f"{name} cannot be read ({error.strerror})") from error
        if digest != sha256:
            raise Damaged(f"{name} does not match its sha256")
    return entry


def _listed_entry(folder: Path) -> Entry:
    """Its manifest is whole and names exactly the files that are there."""
    try:
        with open(f"{folder}/{MANIFEST}", errors="replace") as manifest:
            content = manifest.read()
    except OSError as error:
        raise Damaged(f"{MANIFEST} cannot be read ({error.strerror})") from error
    record, seal = sealed_record(content)
    entry = Entry(folder, record["outputs"], record["files"], seal)
    found = set(names_below(str(folder))) - {MANIFEST}
    for name in sorted(entry.files.keys() ^ found):
        raise Damaged(f"{name} is missing" if name in entry.files else f"{name} does not belong to it")
    return entry


@contextlib.contextmanager
def _locked(file: str, mode: int, on_wait: Callable[[], None]) -> Iterator[int]:
    folder = os.path.dirname(file)
    try:
        ensure_folder(folder)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CacheError(
            f"{folder}: the cache cannot be written ({error.strerror}); set PIPELINE_CACHE to a folder of your own"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, mode)
        yield descriptor
    finally:
        os.close(descriptor)


def tree_bytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in files_below(folder))


def remove_tree(folder: Path) -> None:
    """Delete a folder if it is there; somebody else may be deleting it too."""
    if os.path.lexists(folder):
        shutil.rmtree(folder, ignore_errors=True)
