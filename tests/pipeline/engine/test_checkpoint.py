"""A checkpoint is the last one that was saved whole, with the bytes it was saved with, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.stage import Checkpoint


def save(checkpoint: Checkpoint, text: str) -> None:
    checkpoint.save(lambda path: path.write_text(text))


def test_the_last_one_counts_and_the_others_are_gone(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "made" / "on demand")
    assert checkpoint.saved() is None
    for text in ("one", "two", "two"):
        save(checkpoint, text)
    found = Checkpoint(tmp_path / "made" / "on demand").saved()
    assert found is not None and found.read_text() == "two"
    assert list(found.parent.iterdir()) == [found]
    checkpoint.drop()
    assert checkpoint.saved() is None and not list(found.parent.iterdir())


def test_changed_bytes_are_dropped(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    save(checkpoint, "weights")
    found = checkpoint.saved()
    assert found is not None
    found.write_text("veights")
    assert checkpoint.saved() is None and not found.exists()


def test_a_write_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    save(checkpoint, "one")

    def torn(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(torn)
    found = checkpoint.saved()
    assert found is not None and found.read_text() == "one"


def test_of_two_that_a_kill_left_the_newer_one_counts(tmp_path: Path) -> None:
    checkpoint, other = Checkpoint(tmp_path), Checkpoint(tmp_path / "other")
    save(checkpoint, "old")
    save(other, "new")
    old, new = checkpoint.saved(), other.saved()
    assert old is not None and new is not None
    os.utime(old, ns=(1, 1))
    os.replace(new, tmp_path / new.name)
    found = checkpoint.saved()
    assert found is not None and found.read_text() == "new"
    found.write_text("damaged")  # then the older one is still there
    again = checkpoint.saved()
    assert again is not None and again.read_text() == "old"
