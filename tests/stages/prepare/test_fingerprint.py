"""What lies in data.root enters the cache key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stages.prepare.config import DataConfig
from stages.prepare.fingerprint import folder_fingerprint as fingerprint


def test_any_change_of_a_file_changes_the_fingerprint_and_changing_it_back_restores_it(tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    file = tmp_path / "yes" / "a.wav"
    file.write_bytes(b"1234")
    os.utime(file, ns=(5, 5))
    first = fingerprint(tmp_path)
    assert first == fingerprint(tmp_path) and len(first) == 64

    file.write_bytes(b"12345")
    os.utime(file, ns=(5, 5))
    longer = fingerprint(tmp_path)
    file.write_bytes(b"4321")
    os.utime(file, ns=(6, 6))
    later = fingerprint(tmp_path)
    (tmp_path / "yes" / "b.wav").write_bytes(b"")
    more = fingerprint(tmp_path)
    assert len({first, longer, later, more}) == 4

    (tmp_path / "yes" / "b.wav").unlink()
    file.write_bytes(b"1234")
    os.utime(file, ns=(5, 5))
    assert fingerprint(tmp_path) == first


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.wav").write_bytes(b"1")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "word").symlink_to(tmp_path / "real")
    (tmp_path / "set" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "set" / "loop").symlink_to(tmp_path / "set")
    before = fingerprint(tmp_path / "set")
    (tmp_path / "real" / "a.wav").write_bytes(b"12")
    assert fingerprint(tmp_path / "set") != before


def test_where_no_folder_is_read_there_is_nothing(tmp_path: Path) -> None:
    for source, root in (("builtin_keywords", tmp_path), ("builtin_images", tmp_path), ("cifar10", None)):
        assert DataConfig(source=source, root=root).outside() == {"root": "none"}
    assert DataConfig(source="cifar10", root=tmp_path / "gone").outside() == {"root": "none"}
    assert len(DataConfig(source="cifar10", root=tmp_path).outside()["root"]) == 64


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, stages.prepare.fingerprint; print([m for m in ('torch', 'numpy', 'yaml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_changed_files_in_the_root_change_the_cache_key(tmp_path):
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "a.wav").write_bytes(b"one")
    data = DataConfig(source="folder", root=tmp_path)
    before = data.outside()
    (tmp_path / "yes" / "a.wav").write_bytes(b"other")
    assert data.outside() != before
