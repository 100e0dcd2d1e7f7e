"""The cache by itself: what is published is found again, what is damaged is not, what is old is swept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipeline.digest import files_below, tree_digest, value_digest
from pipeline.engine.cache import MANIFEST, Cache, Entry, Swept, tree_bytes
from pipeline.errors import CacheError


class Said(list[str]):
    """What the cache reports."""


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def cache(tmp_path: Path, said: Said) -> Cache:
    return Cache(tmp_path / "elsewhere" / "cache", said.append)


def published(cache: Cache, key: str = "k" * 64, text: str = "flour") -> Entry:
    built = cache.fresh_folder(key)
    (built / "bag").mkdir()
    (built / "bag" / "a.txt").write_text(text)
    (built / "note.txt").write_text("note")
    return cache.publish("mill", key, built, {"outputs": {"flour": "bag", "note": "note.txt"}})


def test_what_is_published_is_found_by_a_later_run(cache: Cache) -> None:
    made = published(cache)
    found = Cache(cache.root, print).lookup("mill", "k" * 64)
    assert found == made and found.path("flour") == made.folder / "bag"
    assert found.digest("note") == found.files["note.txt"]
    assert found.digest("flour") == value_digest({"bag/a.txt": found.files["bag/a.txt"]})
    assert published(cache, "x" * 64, "other").digest("flour") != found.digest("flour")
    assert (made.folder / "note.txt").stat().st_mode & 0o777 == 0o444, "nobody writes into the cache by accident"
    assert cache.lookup("mill", "z" * 64) is None and not list((cache.root / "tmp").iterdir())


def test_a_damaged_entry_is_only_discarded_by_who_holds_the_lock(cache: Cache, said: Said) -> None:
    folder = published(cache).folder
    (folder / "stray.txt").write_text("not mine")
    later = Cache(cache.root, said.append)
    assert later.lookup("mill", "k" * 64) is None and folder.exists() and not said
    assert later.lookup("mill", "k" * 64, discard=True) is None and not folder.exists()
    discarded = "the entry is discarded and the step runs again"
    assert said == [f"cache: mill/kkkkkkkkkkkk: stray.txt does not belong to it; {discarded}"]


def test_a_manifest_of_another_version_is_damage(cache: Cache, said: Said) -> None:
    folder = published(cache).folder
    built = cache.fresh_folder("o" * 64)
    cache.publish("mill", "o" * 64, built, {"outputs": {}})
    (folder / MANIFEST).unlink()
    Cache(cache.root, said.append).lookup("mill", "k" * 64, discard=True)
    assert "entry.json cannot be read (No such file or directory)" in said[0]


def test_sweeping_takes_what_is_older_than_asked_then_the_oldest(cache: Cache) -> None:
    entries = [published(cache, key * 64, key * size) for key, size in (("a", 10), ("b", 20), ("c", 30), ("d", 40))]
    sizes = [tree_bytes(entry.folder) for entry in entries]
    for age_s, entry in zip((5000, 4000, 3000, 2000), entries, strict=True):
        os.utime(entry.folder, (time.time() - age_s,) * 2)
    for age_s, name in ((5000, "old"), (100, "new")):
        (cache.root / "checkpoints" / name).mkdir(parents=True)
        os.utime(cache.root / "checkpoints" / name, (time.time() - age_s,) * 2)
    assert cache.sweep(max_age_s=None, max_bytes=sum(sizes)) == Swept(0, 0, sum(sizes))
    assert cache.sweep(max_age_s=4500, max_bytes=None) == Swept(1, sizes[0], sum(sizes[1:]))
    assert [path.name for path in (cache.root / "checkpoints").iterdir()] == ["new"]
    assert cache.sweep(max_age_s=None, max_bytes=sum(sizes[2:]) + 1) == Swept(1, sizes[1], sum(sizes[2:]))
    assert [entry.folder.exists() for entry in entries] == [False, False, True, True]
    assert cache.lookup("mill", "a" * 64) is None, "what was swept is forgotten too"


def test_nobody_sweeps_while_a_run_reads(cache: Cache) -> None:
    with cache.in_use():
        with cache.in_use():
            pass
        with pytest.raises(CacheError, match="a run is using the cache; wait for it to end and try again"):
            cache.sweep(max_age_s=None, max_bytes=None)
    assert cache.sweep(max_age_s=None, max_bytes=None) == Swept(0, 0, 0)


def test_a_fresh_folder_is_empty_whatever_was_left_there(cache: Cache) -> None:
    left = cache.fresh_folder("k" * 64)
    (left / "half.txt").write_text("half")
    assert list(cache.fresh_folder("k" * 64).iterdir()) == []


def test_the_digest_of_a_folder_covers_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("1")
    (tmp_path / "a").write_text("2")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("3")
    assert [path.name for path in files_below(tmp_path)] == ["a", "x"]
    digests = [tree_digest(tmp_path)]
    (tmp_path / "a").write_text("4")
    digests.append(tree_digest(tmp_path))
    (tmp_path / "a").rename(tmp_path / "c")
    digests.append(tree_digest(tmp_path))
    assert len({*digests, tree_digest(tmp_path / "c")}) == 4
