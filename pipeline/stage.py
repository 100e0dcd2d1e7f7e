"""The contract between the engine and a step: what a `stage.py` may import from the engine.

A step is a function. Its positional parameters are artifacts: each is named like a field of the result dataclass of
exactly one earlier step and receives that artifact's path (`Path`), or one path per board (`PerBoard`) when a step
that is not fanned out collects from one that is. Typed `Path | None` it may also be made by nobody, and then is None.
Its keyword-only parameters are handed in by the engine:

    config       the step's own section of the configuration (a `Config` subclass)
    <section>    any other parameter typed as a `Config` subclass: the section of that name
    out_dir      an empty folder; the step writes there and nowhere else
    board        name of the board: makes the step fan out over boards
    target       `Target`: board and whether it is real or virtual; fans out too
    experiment   name of the experiment
    progress     `Progress`: how far the work is
    checkpoint   `Checkpoint`: survives a kill, so that the next run continues

It returns a frozen dataclass whose fields are `Path`s below `out_dir` (files or folders).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from pipeline.errors import StageError

Source = Literal["hardware", "virtual"]
PerBoard = Mapping[str, Path]

_CHECKPOINT = "checkpoint-"
_HANDED_IN = {"config", "out_dir", "board", "target", "experiment", "progress", "checkpoint"}


class Config(BaseModel):
    """A section of the configuration: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def source_modules(self) -> tuple[str, ...]:
        """Modules beside pipeline.yaml that the section names, such as a user's own network: part of the key."""
        return ()

    @classmethod
    def completed(cls, values: Mapping[str, Any], sections: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """The section as written, with what it can take over from other sections, before it is checked."""
        return values

    def outside(self) -> Mapping[str, str]:
        """Digests of what the section points at outside the project, such as a folder of data: part of the key."""
        return {}


@dataclasses.dataclass(frozen=True)
class Target:
    """The board a step works on, real or virtual."""

    board: str
    source: Source


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a tool (`pipeline inspect`, ...) found: text for a person, plain values for a program."""

    text: str
    record: Any


class Progress(Protocol):
    """How far a long step is; the engine draws it."""

    def start(self, total: int, unit: str) -> None:
        """Begin a phase of `total` units ('epoch', 'clip', 'inference')."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """`count` more units are done; `note` is a few words such as 'loss 0.31'."""


class Checkpoint:
    """One file that outlives a killed run; it is replaced whole or not at all, and dropped once the step is done.

    Its name holds the digest of its bytes, so that one that was damaged since is never taken up.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def saved(self) -> Path | None:
        """The last complete checkpoint, if an earlier run left one."""
        for file in sorted(self._files(), key=lambda file: file.stat().st_mtime_ns, reverse=True):
            if file == self._named(file):
                return file
            file.unlink()
        return None

    def save(self, write: Callable[[Path], None]) -> None:
        """Let `write` fill a new file, then put it in place of the old one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh, old = self._folder / f"checkpoint.{os.getpid()}.tmp", self._files()
        write(fresh)
        fsync_file(fresh)
        file = self._named(fresh)
        os.replace(fresh, file)
        fsync_file(self._folder)
        for other in set(old) - {file}:
            other.unlink(missing_ok=True)

    def drop(self) -> None:
        """Forget the checkpoint, for instance when it cannot be read."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{_CHECKPOINT}*"))

    def _named(self, file: Path) -> Path:
        """What a checkpoint with these bytes is called."""
        with file.open("rb") as stream:
            return self._folder / f"{_CHECKPOINT}{hashlib.file_digest(stream, 'sha256').hexdigest()}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A step as declared by `@stage`; the signature of `function` says the rest."""

    name: str
    function: Callable[..., Any]
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    twin_programs: tuple[str, ...]
    optional_programs: tuple[str, ...]
    sources: tuple[str, ...]
    touches_hardware: bool
    check: str | None
    artifacts: Mapping[str, bool]  # input artifact -> collected per board?
    optional: frozenset[str]  # input artifacts that nobody need make
    sections: Mapping[str, type[Config]]  # configuration section -> its model
    handed_in: frozenset[str]
    outputs: tuple[str, ...]

    @property
    def fans_out(self) -> bool:
        return bool(self.handed_in & {"board", "target"})

    def programs_for(self, target: Target | None) -> tuple[str, ...]:
        """Executables without which the step cannot work on `target`."""
        on_twin = target is not None and target.source == "virtual"
        return self.programs + (self.twin_programs if on_twin else ())


def stage(
    name: str,
    *,
    packages: tuple[str, ...] = (),
    programs: tuple[str, ...] = (),
    twin_programs: tuple[str, ...] = (),
    optional_programs: tuple[str, ...] = (),
    sources: tuple[str, ...] = (),
    touches_hardware: bool = False,
    check: str | None = None,
) -> Callable[[Callable[..., Any]], Stage]:
    """Declare a step.

    packages           Python distributions whose versions enter the cache key ('torch')
    programs           executables whose versions enter the cache key ('arm-none-eabi-gcc')
    twin_programs      the same, but needed for virtual targets only ('qemu-system-arm')
    optional_programs  the same, but the step makes do without them
    sources            files or folders, beside the imported modules, that enter the key ('boards/{board}')
    check              'module:function', called with the step's sections before any step runs, should they name code of
                       the user's (`Config.source_modules`); it raises what the step itself would only find later
    """

    def declare(function: Callable[..., Any]) -> Stage:
        hints = typing.get_type_hints(function)
        artifacts: dict[str, bool] = {}
        sections: dict[str, type[Config]] = {}
        optional: set[str] = set()
        handed_in: set[str] = set()
        for parameter in inspect.signature(function).parameters.values():
            kind = hints[parameter.name]
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                artifacts[parameter.name] = kind == PerBoard
                if kind == Path | None:
                    optional.add(parameter.name)
            elif isinstance(kind, type) and issubclass(kind, Config):
                sections[name if parameter.name == "config" else parameter.name] = kind
            else:
                assert parameter.name in _HANDED_IN, f"{name}: the engine has no {parameter.name}"
                handed_in.add(parameter.name)
        return Stage(
            name=name,
            function=function,
            packages=packages,
            programs=programs,
            twin_programs=twin_programs,
            optional_programs=optional_programs,
            sources=sources,
            touches_hardware=touches_hardware,
            check=check,
            artifacts=artifacts,
            optional=frozenset(optional),
            sections=sections,
            handed_in=frozenset(handed_in),
            outputs=tuple(field.name for field in dataclasses.fields(hints["return"])),
        )

    return declare


def fsync_file(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> Path:
    """Write a dataclass, list or mapping as JSON that is the same bytes for the same value."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    path.write_text(json.dumps(plain, indent=2, sort_keys=True, allow_nan=False) + "\n")
    return path


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise StageError(f"{path}: not readable as JSON ({error}); remove it and run the step again") from error
