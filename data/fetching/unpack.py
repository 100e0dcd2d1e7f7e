"""An archive becomes a folder, whole or not at all, and nothing of it lands elsewhere.

Refused before the first byte is written: absolute paths, '..', links, devices and other special files, and names that
occur as file and as folder. Everything is unpacked under another name, synced, marked and renamed.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from data.fetching.download import explained_disk_full, locked, put_in_place, sync
from pipeline.errors import StageError

MARKER = ".complete"  # in an unpacked folder: holds the sha256 of what it was made of
_COPY_BYTES = 1 << 20


def unpacked(archives: tuple[tuple[Path, str], ...], folder: Path, advance: Callable[[int], None]) -> Path:
    """`folder` with the contents of the archives, each given with its sha256; unpacked unless it is there."""
    wanted = "".join(f"{digest}\n" for _, digest in archives)
    with locked(folder), explained_disk_full(folder):
        if not is_complete(folder, wanted):
            _make(archives, folder, wanted, advance)
    return folder


def is_complete(folder: Path, wanted: str) -> bool:
    """Whether the folder was unpacked to the end from just these archives."""
    marker = folder / MARKER
    return marker.is_file() and marker.read_text() == wanted


def _make(archives: tuple[tuple[Path, str], ...], folder: Path, wanted: str, advance: Callable[[int], None]) -> None:
    fresh = folder.with_name(f"{folder.name}.unpacking")
    for left_over in (fresh, folder):  # of a run that was killed, or of other archives
        if left_over.exists():
            shutil.rmtree(left_over)
    fresh.mkdir(parents=True)
    try:
        for path, _ in archives:
            _unpack(path, fresh, advance)
        (fresh / MARKER).write_text(wanted)
        _sync_tree(fresh)
        put_in_place(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _unpack(path: Path, folder: Path, advance: Callable[[int], None]) -> None:
    try:
        with _members(path) as (names, contents):
            for name in names:
                _refuse_unsafe(name, path)
            for name, content in contents:
                _write(folder / name, content, path)
                advance(1)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise StageError(
            f"{path}: cannot be unpacked ({error}), needed a whole archive; remove it and run again"
        ) from error


@contextmanager
def _members(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[str, IO[bytes]]]]]:
    """Names of all members, then name and content of every file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            for info in infos:
                kind = stat.S_IFMT(info.external_attr >> 16)
                _refuse_special(info.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR), path)
            yield (
                [info.filename for info in infos],
                ((info.filename, archive.open(info)) for info in infos if not info.is_dir()),
            )
    else:
        with tarfile.open(path) as archive:
            members = archive.getmembers()
            for member in members:
                _refuse_special(member.name, member.isfile() or member.isdir(), path)
            yield (
                [member.name for member in members],
                ((m.name, cast(IO[bytes], archive.extractfile(m))) for m in members if m.isfile()),
            )


def _refuse_special(name: str, is_plain: bool, archive: Path) -> None:
    if not is_plain:
        raise StageError(f"{archive}: holds {name!r}, a link or special file; needed plain files and folders only")


def _refuse_unsafe(name: str, archive: Path) -> None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not name or name.startswith(("/", "\\")) or ".." in parts or "\0" in name or (parts and ":" in parts[0]):
        raise StageError(f"{archive}: holds {name!r}, which would land outside its folder; do not trust this archive")


def _write(target: Path, content: IO[bytes], archive: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("xb") as file:
            shutil.copyfileobj(content, file, _COPY_BYTES)
    except (FileExistsError, NotADirectoryError) as error:
        raise StageError(f"{archive}: holds {target.name!r} twice; do not trust this archive") from error


def _sync_tree(folder: Path) -> None:
    """One sync of the file system: thousands of files one by one would take minutes."""
    os.sync()
    sync(folder)
