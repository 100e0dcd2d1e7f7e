"""The lab's store behind the local cache: content-addressed, whole or not at all also where nothing can be renamed.

    objects/<xx>/<sha256>          the bytes of a file, whoever made it
    entries/<step>/<key>.json      `entry.json` of the entry, sealed; written last, so what it names is there
    checkpoints/<key>/<name>       what an unfinished step left; the name holds the digest of the bytes
    leases/<id>.json               somebody works here until a time; no object is swept meanwhile
    sweeping.json                  somebody sweeps; nobody begins meanwhile

A reader believes nothing: the cache verifies every byte before it uses an entry. What does not match is fetched again,
then removed, and the step runs. A store that does not answer costs a sentence, not the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.digest import file_digest
from pipeline.store.bucket import Bucket, Listed, StoreError
from pipeline.store.manifest import MANIFEST, Damaged, sealed_record

_T = TypeVar("_T")
LEASE_S = 3600.0
_RENEW_S = LEASE_S / 4
_PAUSE_S = 60.0  # without the store, after it did not answer
_CHECKPOINT_EVERY_S = 120.0
_FETCHES = 3  # of an object whose bytes do not match, before it counts as damaged


@dataclass(frozen=True)
class StoreSwept:
    """What a sweep removed and left."""

    removed: int
    freed_bytes: int
    kept_bytes: int


@dataclass(frozen=True)
class StoreStatus:
    """What `pipeline store status` shows."""

    url: str
    entries: int
    objects: int
    bytes: int
    checkpoints: int
    leases: tuple[str, ...]


class SharedStore:
    """What `Cache` asks when it has no entry, and tells when it has a new one."""

    def __init__(self, bucket: Bucket, report: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self.bucket, self._report, self._clock = bucket, report, clock
        self._silent_until = 0.0
        self._mutex = threading.Lock()
        self._lease: str | None = None
        self._renewed = 0.0
        self._saved: dict[str, float] = {}  # key -> when its checkpoint was last sent

    @classmethod
    def at(cls, url: str, report: Callable[[str], None]) -> SharedStore:
        return cls(Bucket(url), report)

    # What a run does: a failure is told once, and for a while the run goes on alone.

    def fetch(self, step: str, key: str, into: Path) -> bool:
        """Fill a folder with an entry; False if there is none that can be had whole."""
        return self._if_it_answers(lambda: self.pull(step, key, into), False)

    def publish(self, step: str, key: str, folder: Path) -> None:
        def act() -> None:
            self.push(step, key, folder)
            self.drop_checkpoint(key)

        self._if_it_answers(act, None)

    def fetch_checkpoint(self, key: str, into: Path) -> None:
        self._if_it_answers(lambda: self._pull_checkpoint(key, into), None)

    def checkpoint_advanced(self, key: str, folder: Path) -> None:
        """Send what a running step has saved, now and then."""
        now = time.monotonic()
        with self._mutex:
            if now - self._saved.setdefault(key, now) < _CHECKPOINT_EVERY_S:
                return
            self._saved[key] = now
        self._if_it_answers(lambda: self.push_checkpoint(key, folder), None)

    # The same with its errors.

    def pull(self, step: str, key: str, into: Path) -> bool:
        """Fill a folder with an entry, and say whether that was possible."""
        name, damage = _entry_name(step, key), ""
        for _ in range(_FETCHES):
            content = self.bucket.read(name)
            if content is None:
                return False
            try:
                record, _ = sealed_record(content.decode(errors="replace"))
                break
            except Damaged as found:
                damage = str(found)
        else:
            self._report(f"store: {name}: {damage}; it is removed and the step runs again")
            self.bucket.remove(name)
            return False
        for path, digest in record["files"].items():
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.fetch_object(digest, target):
                self._report(
                    f"store: {name}: {path} is missing or damaged; the entry is removed and the step runs again"
                )
                self.bucket.remove(name)
                return False
        (into / MANIFEST).write_bytes(content)
        return True

    def push(self, step: str, key: str, folder: Path) -> bool:
        """Publish an entry; False if the store has the same one already."""
        content, name = (folder / MANIFEST).read_bytes(), _entry_name(step, key)
        try:
            record, _ = sealed_record(content.decode(errors="replace"))
        except Damaged as damage:
            raise StoreError(f"{folder}: {damage}; run the experiment again, which mends it") from damage
        if self.bucket.read(name) == content:
            return False
        with self.working():
            for path, digest in record["files"].items():
                self.send_object(folder / path, digest)
            self.bucket.write(name, content)
        return True

    def push_checkpoint(self, key: str, folder: Path) -> None:
        """The newest file of a checkpoint, then away with older ones."""
        files = sorted(folder.glob("checkpoint-*"), key=lambda file: file.stat().st_mtime_ns)
        if not files:
            return
        place = f"checkpoints/{key}/{files[-1].name}"
        with contextlib.suppress(FileNotFoundError), self.working():  # replaced by a newer one meanwhile: next time
            if self.bucket.size_bytes(place) is None:
                self.bucket.send(files[-1], place)
            for old in self.bucket.names(f"checkpoints/{key}"):
                if old.name != place:
                    self.bucket.remove(old.name)

    def _pull_checkpoint(self, key: str, into: Path) -> None:
        for listed in self.bucket.names(f"checkpoints/{key}"):
            into.mkdir(parents=True, exist_ok=True)
            fresh = into / f"fetched.{os.getpid()}.tmp"
            if self.bucket.fetch(listed.name, fresh):  # the step compares its bytes with its name
                os.replace(fresh, into / Path(listed.name).name)

    def drop_checkpoint(self, key: str) -> None:
        """Of a step that has ended, if this process sent one."""
        if self._saved.pop(key, None) is not None:
            for listed in self.bucket.names(f"checkpoints/{key}"):
                self.bucket.remove(listed.name)

    def send_object(self, file: Path, digest: str) -> None:
        """The bytes of a file, unless they are there. Call while `working`."""
        place = _object_name(digest)
        if self.bucket.size_bytes(place) != file.stat().st_size:
            self.bucket.send(file, place)

    def fetch_object(self, digest: str, target: Path) -> bool:
        """Verified; False if there is none that can be had whole."""
        place = _object_name(digest)
        for _ in range(_FETCHES):
            if not self.bucket.fetch(place, target):
                return False
            if file_digest(target) == digest:
                return True
        self.bucket.remove(place)  # so that the next one who makes it sends it again
        return False

    # Leases.

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Hold a lease, one for this process; it runs out by itself after a kill."""
        with self._mutex:
            if self._lease is None or self._clock() - self._renewed > _RENEW_S:
                self._renew()
        yield

    def _renew(self) -> None:
        name = self._lease or f"leases/{platform.node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        until = self._clock() + LEASE_S
        self.bucket.write(name, json.dumps({"until": until}).encode())
        self._lease, self._renewed = name, self._clock()
        if self._sweeper() is not None:  # it has seen the lease, or we see it: never neither
            self.release()
            raise StoreError(
                f"store {self.bucket}: is being swept just now; `pipeline push` later sends what is missing"
            )

    def release(self) -> None:
        """At the end of a run."""
        with contextlib.suppress(StoreError):
            if self._lease is not None:
                self.bucket.remove(self._lease)
        self._lease = None

    def _sweeper(self) -> str | None:
        told = _told(self.bucket.read("sweeping.json"))
        return str(told["who"]) if told and told.get("until", 0) > self._clock() else None

    def _leases(self) -> list[str]:
        """Live ones but our own; those that ran out are removed on the way."""
        live = []
        for listed in list(self.bucket.names("leases")):
            told = _told(self.bucket.read(listed.name))
            if told is not None and told.get("until", 0) > self._clock():
                if listed.name != self._lease:
                    live.append(Path(listed.name).stem)
            elif self._clock() - listed.changed > LEASE_S:
                self.bucket.remove(listed.name)
        return live

    # The whole store.

    def status(self) -> StoreStatus:
        objects = list(self.bucket.names("objects"))
        return StoreStatus(
            url=str(self.bucket),
            entries=sum(1 for _ in self.bucket.names("entries")),
            objects=len(objects),
            bytes=sum(listed.size_bytes for listed in objects),
            checkpoints=sum(1 for _ in self.bucket.names("checkpoints")),
            leases=tuple(self._leases()),
        )

    def sweep(self, max_age_s: float) -> StoreSwept:
        """Remove entries published longer ago, and every object that no entry names; refused while others work."""
        self.release()
        who = f"{platform.node()}-{os.getpid()}"
        other = self._sweeper()
        if other is not None:
            raise StoreError(f"store {self.bucket}: {other} is sweeping it already; wait for it to end")
        self.bucket.write("sweeping.json", json.dumps({"who": who, "until": self._clock() + LEASE_S}).encode())
        try:
            busy = self._leases()
            if busy:
                raise StoreError(
                    f"store {self.bucket}: in use by {', '.join(busy)}; "
                    f"sweep it when they have ended (a lease runs out after {LEASE_S / 60:.0f} min)"
                )
            return self._swept(max_age_s)
        finally:
            self.bucket.remove("sweeping.json")

    def _swept(self, max_age_s: float) -> StoreSwept:
        now, named, removed = self._clock(), set[str](), 0
        for listed in list(self.bucket.names("entries")):
            files: Mapping[str, str] | None = None
            with contextlib.suppress(Damaged):
                files = sealed_record((self.bucket.read(listed.name) or b"").decode(errors="replace"))[0]["files"]
            if files is None or now - listed.changed > max_age_s:
                self.bucket.remove(listed.name)
                removed += 1
            else:
                named |= {_object_name(digest) for digest in files.values()}
        objects = list(self.bucket.names("objects"))
        gone: list[Listed] = [listed for listed in objects if listed.name not in named]
        gone += [one for one in self.bucket.names("checkpoints") if now - one.changed > max_age_s]
        for listed in gone:
            self.bucket.remove(listed.name)
        kept = sum(listed.size_bytes for listed in objects if listed.name in named)
        return StoreSwept(removed, sum(listed.size_bytes for listed in gone), kept)

    def _if_it_answers(self, act: Callable[[], _T], otherwise: _T) -> _T:
        if time.monotonic() < self._silent_until:
            return otherwise
        try:
            return act()
        except StoreError as error:
            self._silent_until = time.monotonic() + _PAUSE_S
            self._report(f"{error}; this run goes on with the local cache alone for {_PAUSE_S:.0f} s")
            return otherwise


def _entry_name(step: str, key: str) -> str:
    return f"entries/{step}/{key}.json"


def _object_name(digest: str) -> str:
    return f"objects/{digest[:2]}/{digest}"


def _told(content: bytes | None) -> Mapping[str, Any] | None:
    try:
        told = json.loads(content or b"")
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
