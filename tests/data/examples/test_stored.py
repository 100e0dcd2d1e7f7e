"""Examples by their numbers from files that are never read whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from data.examples.stored import PIXELS, StoredRows, shard_path, stored_labels, stored_split
from pipeline.errors import StageError

MEAN, STD = (100.0, 50.0, 25.0), (60.0, 30.0, 15.0)


def pictures(folder: Path, count: int = 10, shard: int = 4) -> np.ndarray:
    """Random pictures in shards of `shard`."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 5, 6, 3), dtype=np.uint8)
    starts = range(0, count, shard)
    for number, start in enumerate(starts):
        np.save(shard_path(folder, "train", number), pixels[start : start + shard])
    record = {"mean": MEAN, "std": STD, "shards": {"train": len(starts)}}
    (folder / PIXELS).write_text(json.dumps(record))
    return pixels


@pytest.mark.parametrize("chosen", [[0], [9, 0, 3, 4, 4], list(range(10)), slice(2, 9, 3), slice(None)])
def test_any_examples_come_from_any_shards_standardised(tmp_path: Path, chosen: list[int] | slice) -> None:
    pixels = pictures(tmp_path)
    split = stored_split(tmp_path, "train")
    assert split.shape == (10, 5, 6, 3)
    expected = (pixels[chosen].astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
    assert np.array_equal(split[chosen], expected) and split[chosen].dtype == np.float32
    assert np.array_equal(split.stored(chosen), pixels[chosen])
    assert np.array_equal(np.concatenate(list(split.batches(3))), split[:])


def test_features_of_sounds_come_as_they_are(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((7, 4, 3, 1)).astype(np.float32)
    np.save(tmp_path / "test_x.npy", features)
    np.save(tmp_path / "test_y.npy", np.arange(7, dtype=np.int32))
    assert np.array_equal(stored_split(tmp_path, "test")[[6, 0]], features[[6, 0]])
    assert stored_labels(tmp_path, "test").tolist() == list(range(7))


def test_rows_are_counted_from_the_end_too(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(12).reshape(4, 3))
    rows = StoredRows(tmp_path / "rows.npy")
    assert rows[-1].tolist() == [9, 10, 11] and len(rows) == 4
    with pytest.raises(IndexError):
        rows[4]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: shard_path(folder, "train", 1).unlink(),
        lambda folder: shard_path(folder, "train", 0).write_bytes(shard_path(folder, "train", 0).read_bytes()[:-1]),
        lambda folder: shard_path(folder, "train", 0).write_bytes(b"no array"),
        lambda folder: np.save(shard_path(folder, "train", 1), np.zeros((1, 5, 6, 3), np.uint8)),
        lambda folder: (folder / PIXELS).write_text("{}"),
        lambda folder: (folder / PIXELS).write_text("{"),
    ],
    ids=["missing", "cut off", "no array", "too few", "no record", "no JSON"],
)
def test_what_is_not_whole_is_one_sentence(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    pictures(tmp_path)
    damage(tmp_path)
    with pytest.raises(StageError, match=r"train_x.npy: not readable as an array \(.*\); run the prepare step again$"):
        stored_split(tmp_path, "train")
