"""Which of our modules a step is made of, found without running them.

A step's code is read as text, from its `stage.py` through every import of a module that lies below one of the given
roots, also imports inside functions. So a step that trains a network is keyed without importing torch. A line that only
looks like an import (in a docstring) may add a module of ours to the key, never leave one out.
Modules that are loaded by a name computed at run time are not seen; a step names those in `sources`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.digest import file_digest, tree_digest
from pipeline.engine.source_notes import RESTLESS_NS, SourceNotes
from pipeline.engine.tool_versions import program_version
from pipeline.errors import ConfigError

_ABSENT = "absent"
# Statements on a line of their own: syntax trees would say the same and take most of the time of a cached run.
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]+))", re.M)


@dataclass
class SourceTree:
    """Our modules below `roots`; what was parsed once is remembered."""

    roots: tuple[Path, ...]  # that of the project first, resolved
    notes: SourceNotes
    _files: dict[str, Path | None] = field(default_factory=dict)
    _imports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _reached: dict[str, dict[str, str]] = field(default_factory=dict)
    _trees: dict[Path, str] = field(default_factory=dict)
    _versions: dict[str, str | None] = field(default_factory=dict)
    _seen: dict[str, Hashable] = field(default_factory=dict)  # files and folders looked at -> how they were
    fixed: dict[Hashable, dict[str, Any]] = field(default_factory=dict)  # node -> what no setting changes

    def up_to_date(self) -> SourceTree:
        """This one while nothing that it looked at has changed, else one with nothing remembered but its notes."""
        is_same = all(_is_still(path, look) for path, look in list(self._seen.items()))
        return self if is_same else SourceTree(self.roots, self.notes)

    def file_of(self, module: str) -> Path | None:
        """The file of a module of ours; None for everybody else's."""
        if module not in self._files:
            parent = module.rpartition(".")[0]
            self._files[module] = None if parent and self.file_of(parent) is None else self._find(module)
        return self._files[module]

    def _find(self, module: str) -> Path | None:
        # Plain strings: some thousand candidates are tried in every cached run, and Path would take half of its time.
        relative = module.replace(".", "/")
        for root in self.roots:
            for candidate in (f"{root}/{relative}.py", f"{root}/{relative}/__init__.py"):
                self._note_place(os.path.dirname(candidate), str(root))
                if os.path.isfile(candidate):
                    return Path(candidate)
        return None

    def digests(self, module: str) -> dict[str, str]:
        """Digest of each module of ours that `module` reaches through imports, itself included."""
        if module not in self._reached:
            self._reached[module] = self._reachable(module)
        return self._reached[module]

    def tree_digest(self, path: Path) -> str:
        """Of a further source: a file, or a folder with all its files."""
        if path not in self._trees:
            for folder, _, files in os.walk(path):
                for name in ("", *files):
                    self._note(os.path.join(folder, name))
            self._note(str(path))
            self._trees[path] = tree_digest(path)
        return self._trees[path]

    def version_of(self, program: str) -> str | None:
        """What a program answers to --version; None if there is none."""
        if program not in self._versions:
            self._versions[program] = self.notes.version_of(program, program_version)
        return self._versions[program]

    def _reachable(self, module: str) -> dict[str, str]:
        if self.file_of(module) is None:
            raise ConfigError(f"{module}: no such module beside pipeline.yaml, needed as a step; check 'steps'")
        pending, reached = [module], set[str]()
        while pending:
            name = pending.pop()
            if name not in reached:
                reached.add(name)
                pending.extend(self._imports_of(name))
        return {name: self._digest_of(name) for name in sorted(reached)}

    def _digest_of(self, module: str) -> str:
        if module not in self._digests:
            file = self.file_of(module)
            assert file is not None
            self._note(str(file))
            self._digests[module] = self.notes.of(file)[0]
        return self._digests[module]

    def _imports_of(self, module: str) -> tuple[str, ...]:
        if module not in self._imports:
            file = self.file_of(module)
            assert file is not None
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            imported = {_absolute(name, package) for name in self.notes.of(file)[1]}
            ours = {name for name in imported if self.file_of(name.partition(".")[0]) is not None}
            names = set(_with_packages(ours))
            self._imports[module] = tuple(sorted(name for name in names if self.file_of(name) is not None))
        return self._imports[module]

    def _note_place(self, folder: str, root: str) -> None:
        """Where a file that is not there would appear: in its folder, or in the nearest one above it that exists."""
        while folder not in self._seen:
            look = _look(folder)
            if look != _ABSENT or folder == root:
                self._seen[folder] = look
            else:
                folder = os.path.dirname(folder)

    def _note(self, path: str) -> None:
        """Before it is read."""
        if path not in self._seen:
            self._seen[path] = _look(path)


def _look(path: str) -> Hashable:
    """How a file or folder is: size, time and inode, or its content if it changed just now and its time says little."""
    try:
        seen = os.stat(path)
        if time.time_ns() - seen.st_mtime_ns > RESTLESS_NS:
            return seen.st_size, seen.st_mtime_ns, seen.st_ino
        return _content(path)
    except OSError:
        return _ABSENT


def _is_still(path: str, look: Hashable) -> bool:
    """As it was at an earlier look."""
    try:
        if isinstance(look, tuple):
            seen = os.stat(path)
            return look == (seen.st_size, seen.st_mtime_ns, seen.st_ino)
        return look == _content(path)
    except OSError:
        return look == _ABSENT


def _content(path: str) -> Hashable:
    if os.path.isdir(path):
        return frozenset(os.listdir(path))
    return file_digest(path)


def imported_names(text: str) -> Iterator[str]:
    """As they are written: `..b` means from the package above."""
    for base, names, plain in _IMPORT.findall(text):
        if plain:
            yield from (part.split()[0] for part in plain.split(",") if part.split())
            continue
        yield base
        for part in names.strip("()").split(","):
            words = part.partition("#")[0].split()
            if words:
                yield f"{base}{'' if base.endswith('.') else '.'}{words[0]}"


def _absolute(name: str, package: str) -> str:
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], name.lstrip(".")]).strip(".")


def _with_packages(names: Iterable[str]) -> Iterator[str]:
    """`a.b.c` also runs `a` and `a.b`."""
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
