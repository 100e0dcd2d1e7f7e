"""A file from the network, whole and verified or not at all.

A download grows in NAME.part and continues there when it was interrupted (HTTP Range). Only when its sha256 is right is
it synced to the disk and renamed to NAME; a wrong one is removed. Two runs that want the same file wait for each other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from data.fetching.manifest import Archive
from pipeline.errors import DiskFull, StageError

_CHUNK_BYTES = 1 << 20
_TIMEOUT_S = 30.0  # without a byte
_ATTEMPTS = 4  # of a connection that breaks off; each continues where the one before stopped
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unreachable(StageError):
    """The network did not bring the file; another source may."""


@dataclass(frozen=True)
class Listener:
    """Hears how a download or a long search goes on."""

    start: Callable[[int, str], None]  # total and unit
    advance: Callable[[int], None]


def fetch(archive: Archive, folder: Path, listener: Listener) -> Path:
    """The archive as a verified file in `folder`; downloaded unless it is there."""
    path = folder / archive.name
    folder.mkdir(parents=True, exist_ok=True)
    with locked(path), explained_disk_full(path):
        if not path.exists():
            part = path.with_name(f"{path.name}.part")
            _download(archive, part, listener)
            _refuse_wrong_digest(archive, part)
            put_in_place(part, path)
    return path


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put_in_place(made: Path, path: Path) -> None:
    """Give a finished file or folder its name; after a power cut it is there whole or not at all."""
    sync(made)
    os.replace(made, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else makes `path` meanwhile."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def explained_disk_full(path: Path) -> Iterator[None]:
    """Turn the system's words for a full disk into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFull(str(path)) from error
        raise


def _download(archive: Archive, part: Path, listener: Listener) -> None:
    last = "no attempt"
    for _ in range(_ATTEMPTS):
        try:
            if _continue(archive, part, listener):
                return
            last = "the connection broke off"
        except urllib.error.HTTPError as error:
            error.close()
            raise Unreachable(
                f"{archive.url}: HTTP status {error.code}, needed 200; is the address still right?"
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            last = str(getattr(error, "reason", error)) or type(error).__name__
            if not part.exists():
                break  # the host is not there at all
    kept = f"{part.stat().st_size} bytes are kept" if part.exists() else "nothing was received"
    raise Unreachable(f"{archive.url}: cannot be downloaded ({last}), {kept}; run again to continue, or give data.root")


def _continue(archive: Archive, part: Path, listener: Listener) -> bool:
    """Receive what is still missing; whether that was all."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            error.close()
            return True  # the file ended where ours does; the digest will tell
        raise
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            have = 0  # this server sends everything again
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else 0
        listener.start(-(-total // _CHUNK_BYTES), "MiB")
        listener.advance(have // _CHUNK_BYTES)
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(_CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                listener.advance(1)
        return not total or have == total


def _refuse_wrong_digest(archive: Archive, part: Path) -> None:
    found = sha256_of(part)
    if found != archive.sha256:
        part.unlink()
        raise StageError(
            f"{archive.url}: sha256 is {found}, needed {archive.sha256}; it is removed: run again, or give data.root"
        )
