"""Your own data: class sub-folders of clips or pictures."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data import SPLITS, Corpus, ImageSet, folder_data
from data.examples.class_folders import found_files
from data.fetching.splits import hash_share, hashed_split
from pipeline.errors import StageError


def write_wav(path: Path, samples: np.ndarray, rate_hz: int = 16_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate_hz, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())


def clips(root: Path, classes: tuple[str, ...] = ("bark", "miaow"), count: int = 40, samples: int = 4000) -> Path:
    for label, name in enumerate(classes):
        for i in range(count):
            write_wav(root / name / f"{i}.wav", np.full(samples, 1000 * (label + 1) + i))
    return root


def pictures(root: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 40) -> Path:
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (20, 30), (100 * label, i, 0)).save(root / name / f"{i}.png")
    return root


def opened(root: Path) -> Corpus | ImageSet:
    return folder_data(root, image_px=16, copies=1, seed=1)


def test_clips_become_a_corpus_with_the_folders_as_classes(tmp_path: Path) -> None:
    corpus = opened(clips(tmp_path))
    assert isinstance(corpus, Corpus)
    assert corpus.classes == ("bark", "miaow")
    assert [len(corpus.splits[split].labels) for split in SPLITS] == [61, 10, 9]
    assert [corpus.splits[split].mixing.shift_samples for split in SPLITS] == [1600, 0, 0]
    heard = corpus.rows("test", 0, 1)[0]
    assert not heard[:6000].any() and not heard[10_000:].any(), "a short clip is centred"
    assert heard[6000:10_000].min() >= 1000
    for label, level in ((0, 1000), (1, 2000)):
        rows = corpus.rows("test", 0, 99)[corpus.splits["test"].labels == label]
        assert set((rows.max(axis=1) // 1000 * 1000).tolist()) == {level}


@pytest.mark.parametrize("side_px, used_px", [(20, 20), (300, 96), (4, 8)])
def test_pictures_without_a_size_get_that_of_their_shorter_side(side_px: int, used_px: int, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(40):
            Image.new("RGB", (side_px, side_px + 10)).save(tmp_path / name / f"{i}.png")
    images = folder_data(tmp_path, image_px=None, copies=1, seed=1)
    assert isinstance(images, ImageSet) and images.image_px == used_px
    assert images.rows("test", 0, 1).shape == (1, used_px, used_px, 3)


def test_copies_are_of_training_clips_alone(tmp_path: Path) -> None:
    once, thrice = (folder_data(clips(tmp_path), image_px=16, copies=copies, seed=1) for copies in (1, 3))
    for split, times in zip(SPLITS, (3, 1, 1), strict=True):
        assert len(thrice.splits[split].labels) == times * len(once.splits[split].labels)
    assert isinstance(once, Corpus)
    assert not np.array_equal(once.splits["train"].noises[0], once.splits["test"].noises[0])


def test_a_long_clip_keeps_its_middle(tmp_path: Path) -> None:
    clips(tmp_path, count=40, samples=4000)
    for path in (tmp_path / "bark").iterdir():
        write_wav(path, np.concatenate([np.full(8000, 1), np.full(16_000, 5000), np.full(8000, 2)]))
    corpus = opened(tmp_path)
    assert isinstance(corpus, Corpus)
    assert set(corpus.rows("test", 0, 1)[0].tolist()) == {5000}


def test_pictures_become_an_image_set(tmp_path: Path) -> None:
    images = opened(pictures(tmp_path))
    assert isinstance(images, ImageSet)
    rows = images.rows("test", 0, 99)
    assert rows.shape[1:] == (16, 16, 3)
    assert np.array_equal(rows[:, 8, 8, 0], 100 * images.splits["test"].labels)


def test_a_file_stays_in_its_split_when_others_are_added(tmp_path: Path) -> None:
    before = found_files(clips(tmp_path)).paths
    for i in range(100, 140):
        write_wav(tmp_path / "bark" / f"{i}.wav", np.ones(10))
    after = found_files(tmp_path).paths
    for split in SPLITS:
        assert set(before[split]) <= set(after[split])


def test_shares_of_the_hash_are_even() -> None:
    names = [hashed_split(f"class/{i}.wav") for i in range(5000)]
    assert [round(names.count(split) / 5000, 1) for split in SPLITS] == [0.8, 0.1, 0.1]
    assert 0.48 < np.mean([hash_share(str(i)) for i in range(5000)]) < 0.52


def test_splits_laid_out_as_folders_are_kept(tmp_path: Path) -> None:
    for split, count in (("train", 30), ("val", 4), ("test", 3)):
        clips(tmp_path / split, count=count)
    files = found_files(tmp_path)
    assert [len(files.paths[split]) for split in SPLITS] == [60, 8, 6]
    assert files.rule == "split by its sub-folders"
    assert all(path.parent.parent.name == "test" for path in files.paths["test"])


def test_validation_is_taken_from_train_where_it_is_missing(tmp_path: Path) -> None:
    for split, count in (("train", 60), ("test", 3)):
        clips(tmp_path / split, count=count)
    files = found_files(tmp_path)
    assert len(files.paths["test"]) == 6
    assert [len(files.paths[split]) for split in SPLITS] == [107, 13, 6]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda root: None, "0 class sub-folders found, needed two or more"),
        (lambda root: clips(root, ("bark",)), "1 class sub-folders found, needed two or more"),
        (lambda root: clips(root, ("bark", ".hidden")), "1 class sub-folders found"),
        (lambda root: clips(root, count=1), "has no files in the .* split, needed at least one"),
    ],
)
def test_folder_that_cannot_be_used_is_refused(tmp_path: Path, make, sentence: str) -> None:
    make(tmp_path)
    with pytest.raises(StageError, match=sentence):
        opened(tmp_path)


def test_clips_and_pictures_together_are_refused(tmp_path: Path) -> None:
    pictures(clips(tmp_path), ("cat", "dog"))
    with pytest.raises(StageError, match="holds both .wav files and pictures, needed one kind"):
        opened(tmp_path)


def test_noise_of_the_folder_is_used_and_is_no_class(tmp_path: Path) -> None:
    write_wav(clips(tmp_path) / "_background_noise_" / "hiss.wav", np.random.default_rng(0).integers(-99, 99, 30_000))
    corpus = opened(tmp_path)
    assert isinstance(corpus, Corpus)
    assert corpus.classes == ("bark", "miaow")
    assert [len(noise) for noise in corpus.splits["train"].noises] == [30_000]


@pytest.mark.parametrize("make", [clips, pictures])
def test_at_most_so_many_files_of_each_class_and_split(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    whole, some = found_files(make(tmp_path)), found_files(tmp_path, 6)
    for split in SPLITS:
        assert set(some.paths[split]) <= set(whole.paths[split])
        for label in (0, 1):
            assert some.labels[split].count(label) == min(6, whole.labels[split].count(label))
