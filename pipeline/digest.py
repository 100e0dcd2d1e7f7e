"""SHA-256 digests of files, folders and plain values.

The digest of a folder covers the relative path and the bytes of every file below it. Values are written as canonical
JSON first, so that equal values have equal digests whatever the order of their keys.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """The one JSON text of a plain value."""
    return _CANONICAL.encode(value)


def value_digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_digest(path: Path | str) -> str:
    with open(path, "rb", buffering=0) as file:
        return stream_digest(file)


def stream_digest(file: RawIOBase) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def files_below(path: Path) -> Iterator[Path]:
    """Every file of a folder in a fixed order; a file is its own only one."""
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if child.name != "__pycache__":
                yield from files_below(child)
    else:
        yield path


def names_below(folder: str, prefix: str = "") -> Iterator[str]:
    """The same files as relative names in no order: plain strings, because every look-up in the cache asks for them."""
    with os.scandir(folder) as children:
        for child in children:
            if child.is_dir():
                if child.name != "__pycache__":
                    yield from names_below(child.path, f"{prefix}{child.name}/")
            else:
                yield f"{prefix}{child.name}"


def tree_digest(path: Path) -> str:
    """Digest of a file, or of a folder with all its files."""
    if not path.is_dir():
        return file_digest(path)
    return value_digest([[file.relative_to(path).as_posix(), file_digest(file)] for file in files_below(path)])
