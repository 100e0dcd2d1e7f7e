"""The file that a command writes is there whole, or as it was before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.errors import DiskFull, StageError
from stages.tools.output_file import write_atomically


def test_a_file_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "out", content)
        assert (tmp_path / "out").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"out: cannot be written \(No such file or directory\), needed a folder"):
        write_atomically(tmp_path / "nowhere" / "out", b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_called_that(tmp_path: Path) -> None:
    fresh = tmp_path / f".out.{os.getpid()}.tmp"
    fresh.symlink_to("/dev/full")
    with pytest.raises(DiskFull):
        write_atomically(tmp_path / "out", b"x")
    assert list(tmp_path.iterdir()) == []
