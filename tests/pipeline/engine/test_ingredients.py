"""Differences between two lists of ingredients, and the modules a step is made of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.digest import file_digest
from pipeline.engine.ingredients import differences
from pipeline.engine.source_notes import SourceNotes
from pipeline.engine.sources import SourceTree, imported_names
from pipeline.errors import ConfigError


def test_what_the_user_set_comes_first_and_digests_are_shortened() -> None:
    old = {
        "input.corn": "a" * 64,
        "version.torch": "2.0",
        "code.m": "b" * 64,
        "config.b": 1,
        "config.a": "c" * 64,
        "same": 0,
    }
    new = {
        "input.corn": "d" * 64,
        "version.torch": "2.1",
        "file.f": "e" * 64,
        "config.b": 2,
        "config.a": "f" * 64,
        "same": 0,
    }
    assert differences(old, new) == [
        f"config.a: {'c' * 64} -> {'f' * 64}",
        "config.b: 1 -> 2",
        "code.m: bbbbbbbbbbbb -> (none)",
        "file.f: (none) -> eeeeeeeeeeee",
        "version.torch: 2.0 -> 2.1",
        "input.corn: aaaaaaaaaaaa -> dddddddddddd",
    ]


TREE = {
    "room/__init__.py": "",
    "room/step.py": "import os, room.plain as short, far.away\n"
    "from room.many import (\n    one,  # a reason\n    two,\n)\n"
    "def late():\n    from .near import thing\n",
    "room/plain.py": '"""\nfrom room.told import nothing\n"""\n',
    "room/many/__init__.py": "from . import two\nfrom .. import up\n",
    "room/many/one.py": "",
    "room/many/two.py": "from ..near import thing\n",
    "room/near.py": "",
    "room/up.py": "",
    "room/told.py": "",
    "room/unused.py": "",
    "far/__init__.py": "",
    "far/away.py": "",
}


def test_modules_are_those_reached_by_any_form_of_import(tmp_path: Path) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    tree = SourceTree((tmp_path / "nowhere", tmp_path), SourceNotes(tmp_path / "notes.json", imported_names))
    found = tree.digests("room.step")
    reached = {"room", "room.step", "room.plain", "room.many", "room.many.one", "room.many.two", "room.near", "room.up"}
    assert set(found) == reached | {"room.told", "far", "far.away"}, "what only looks like an import counts too"
    assert len(set(found.values())) == 5, "empty ones are equal"
    assert (tree.file_of("os"), tree.file_of("room")) == (None, tmp_path / "room" / "__init__.py")
    with pytest.raises(ConfigError, match="room.gone: no such module beside pipeline.yaml, needed as a step"):
        tree.digests("room.gone")


@pytest.mark.parametrize("at_rest", [True, False])
@pytest.mark.parametrize("appears", ["back/far/away.py", "front/far/away.py", "front/far.py", "nowhere/far/away.py"])
def test_what_was_read_is_forgotten_when_a_module_appears(tmp_path: Path, appears: str, at_rest: bool) -> None:
    """Also below a folder that was not there, in a root that comes first, or in a root that was not there itself."""
    for name, text in {"back/far/__init__.py": "", "back/step.py": "import far.away", "front/other.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for path in tmp_path.rglob("*") if at_rest else ():
        os.utime(path, (1e9, 1e9))
    roots = (tmp_path / "nowhere", tmp_path / "front", tmp_path / "back")
    tree = SourceTree(roots, SourceNotes(tmp_path / "notes.json", imported_names))
    assert set(tree.digests("step")) == {"step", "far"}
    assert tree.up_to_date() is tree
    (tmp_path / appears).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / appears).write_text("")
    assert tree.up_to_date() is not tree


def test_notes_of_sources_hold_until_a_file_changes(tmp_path: Path) -> None:
    file, stored = tmp_path / "a.py", tmp_path / "notes.json"
    reads: list[str] = []

    def names_of(text: str) -> list[str]:
        reads.append(text)
        return [text]

    def asked() -> list[str]:
        notes = SourceNotes(stored, names_of)
        digest, names = notes.of(file)
        notes.save()
        assert digest == file_digest(file)
        return names

    file.write_text("old")
    assert (asked(), asked(), reads) == (["old"], ["old"], ["old", "old"]), "changed just now: not noted"
    os.utime(file, (1e9, 1e9))
    assert (asked(), asked(), reads[2:]) == (["old"], ["old"], ["old"])
    for change in (lambda: file.write_text("new"), lambda: os.utime(file, (2e9 - 1e9 + 5, 1e9 + 5))):
        change()
        assert asked() == ["new"]
    other = tmp_path / "b.py"
    other.write_text("two")
    os.utime(other, (1e9 + 5, 1e9 + 5))
    os.replace(other, file)
    assert asked() == ["two"], "the same size and time, another file"
    for damaged in ("", "[]", '{"format": 1}', '{"format": 1, "files": {"x": 1}, "programs": []}', "\0"):
        stored.write_text(damaged)
        assert asked() == ["two"]


def test_a_program_is_asked_once_and_a_script_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(program: str) -> str:
        asked.append(program)
        return "1.0"

    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    os.utime(script, (1e9, 1e9))
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    (tmp_path / "binary").chmod(0o755)
    os.utime(tmp_path / "binary", (1e9, 1e9))
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        notes = SourceNotes(tmp_path / "notes.json", list)
        assert [notes.version_of(name, ask) for name in ("binary", "script", "none")] == ["1.0", "1.0", None]
        notes.save()
    assert asked == ["binary", "script", "script"]
    os.utime(tmp_path / "binary", (1e9 + 1, 1e9 + 1))
    SourceNotes(tmp_path / "notes.json", list).version_of("binary", ask)
    assert asked[3:] == ["binary"]
