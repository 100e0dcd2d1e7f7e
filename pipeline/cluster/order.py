"""A step as it is sent to a node: plain values, and the files that it reads by their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.digest import file_digest, files_below
from pipeline.engine.worker import Job

Files = Mapping[str, str]  # path below an artifact ('' if it is a file itself) -> sha256


@dataclass(frozen=True)
class Order:
    """Everything a node has to know."""

    name: str
    job: str  # JSON
    made_of: Mapping[str, Any]
    log: Path
    cache: Path  # of whoever asks
    sign: Path  # lies in that cache: a node that sees it shares the filesystem
    folder: Path  # where the command runs
    environment: Mapping[str, str]  # what decides on threads: results may depend on them
    store: str | None  # URL
    inputs: Mapping[str, Files] | None = None  # by path; None: the node is thought to see them


def artifact_paths(job: Job) -> Iterator[Path]:
    for given in job.artifacts.values():
        if isinstance(given, dict):
            yield from given.values()
        elif given is not None:
            yield given


def with_paths(job: Job, place: Callable[[Path], Path]) -> dict[str, Path | dict[str, Path] | None]:
    """Its artifacts, each path replaced."""

    def placed(given: Path | dict[str, Path] | None) -> Path | dict[str, Path] | None:
        if isinstance(given, dict):
            return {board: place(path) for board, path in given.items()}
        return None if given is None else place(given)

    return {name: placed(given) for name, given in job.artifacts.items()}


def digests_below(path: Path, digest: Callable[[Path], str] = file_digest) -> Files:
    """Of a file or of every file in a folder."""
    if path.is_file():
        return {"": digest(path)}
    return {file.relative_to(path).as_posix(): digest(file) for file in files_below(path)}
