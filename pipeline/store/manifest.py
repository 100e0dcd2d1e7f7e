"""`entry.json`: what an entry is made of and the digest of every file, behind the digest of all that follows.

The same bytes lie in the local cache and in a shared store, so that whoever reads them can tell whether they are whole.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from pipeline.digest import canonical_json

MANIFEST = "entry.json"
_SEAL, _SEALED = '{"sha256":"', '",'  # around the digest, so that the whole is JSON
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Damaged(Exception):
    """What is wrong with an entry."""


def sealed_text(record: Mapping[str, Any]) -> tuple[str, str]:
    """The file's text and its seal."""
    text = canonical_json(record)
    seal = hashlib.sha256(text.encode()).hexdigest()
    return f"{_SEAL}{seal}{_SEALED}{text[1:]}", seal


def sealed_record(content: str) -> tuple[Mapping[str, Any], str]:
    """The record and its seal; raises `Damaged`."""
    seal, _, rest = content.removeprefix(_SEAL).partition(_SEALED)
    text = f"{{{rest}"
    if hashlib.sha256(text.encode()).hexdigest() != seal:
        raise Damaged(f"{MANIFEST} does not match its own sha256")
    try:
        record = from_json(text)
        files, _ = record["files"], record["outputs"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{MANIFEST} is of another version ({error})") from error
    for name, digest in files.items():
        if name.startswith("/") or ".." in name.split("/") or not _SHA256.fullmatch(digest):
            raise Damaged(f"{MANIFEST} names {name!r}, needed files below its folder")
    return record, seal


def begins_with(seal: str) -> str:
    """How a manifest of this seal begins."""
    return f"{_SEAL}{seal}"
