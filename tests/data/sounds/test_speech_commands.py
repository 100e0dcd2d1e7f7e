"""Speech Commands in the official layout, on a small copy made here of noise bursts."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from data import SPLITS, load_manifest, speech_commands_corpus
from data.sounds.audio import WavClips
from data.sounds.noise import NOISE_FOLDER
from pipeline.errors import StageError

NAME = "speech_commands_v0.01"
MANIFEST = load_manifest(NAME)
TRAIN = [f"a{i:03d}" for i in range(6)]
VALIDATION = ["b000", "b001"]
TEST = ["c000", "c001", "c002"]


def write_wav(path: Path, samples: np.ndarray, rate_hz: int = 16_000, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(samples.astype("<i2").tobytes())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Each of 11 speakers says each of 30 words once, in 0.5 s."""
    rng = np.random.default_rng(0)
    folder = tmp_path / NAME
    for word in (*MANIFEST.keywords, *MANIFEST.unknown_words):
        for speaker in (*TRAIN, *VALIDATION, *TEST):
            write_wav(folder / word / f"{speaker}_nohash_0.wav", rng.integers(-9000, 9000, 8000))
    for name in ("hiss", "rumble"):
        write_wav(folder / NOISE_FOLDER / f"{name}.wav", rng.integers(-900, 900, 40_000))
    words = (*MANIFEST.keywords, *MANIFEST.unknown_words)
    for file, speakers in (("validation_list.txt", VALIDATION), ("testing_list.txt", TEST)):
        (folder / file).write_text("".join(f"{word}/{who}_nohash_0.wav\n" for word in words for who in speakers))
    return tmp_path


def counts(root: Path, split: str, copies: int = 1, unknown_share: float = 0.1) -> list[int]:
    corpus = speech_commands_corpus(NAME, root, copies=copies, seed=1, unknown_share=unknown_share)
    return np.bincount(corpus.splits[split].labels, minlength=12).tolist()  # type: ignore[index]


def test_counts_follow_the_lists_with_a_tenth_of_silence_and_of_unknown(root: Path) -> None:
    assert counts(root, "train") == [6] * 10 + [6, 6]
    assert counts(root, "validation") == [2] * 10 + [2, 2]
    assert counts(root, "test") == [3] * 10 + [3, 3]


def test_copies_multiply_the_training_split_only(root: Path) -> None:
    assert counts(root, "train", copies=3) == [18] * 12
    assert counts(root, "test", copies=3) == [3] * 12


def test_training_may_have_more_of_the_unknown_words_and_the_held_out_clips_stay(root: Path) -> None:
    assert counts(root, "train", unknown_share=0.5) == [6] * 10 + [6, 30]
    assert counts(root, "train", unknown_share=2) == [6] * 10 + [6, 120]  # all there are
    drawn = [speech_commands_corpus(NAME, root, copies=1, seed=1, unknown_share=share).splits for share in (0.1, 0.5)]
    assert set(drawn[0]["train"].takes) < set(drawn[1]["train"].takes)
    assert all(np.array_equal(drawn[0][split].takes, drawn[1][split].takes) for split in ("validation", "test"))


def test_speakers_are_those_of_the_lists(root: Path) -> None:
    corpus = speech_commands_corpus(NAME, root, copies=1, seed=1)
    assert [corpus.splits[split].speakers for split in SPLITS] == [tuple(TRAIN), tuple(VALIDATION), tuple(TEST)]
    assert corpus.source == "speech_commands_v0.01, local copy of 330 clips"
    assert [corpus.splits[split].mixing.shift_samples for split in SPLITS] == [1600, 0, 0]


def test_held_out_examples_are_the_recordings_followed_by_zeros(root: Path) -> None:
    audio = speech_commands_corpus(NAME, root, copies=1, seed=1)
    examples = audio.rows("test", 0, 64)
    with wave.open(str(root / NAME / "down" / "c001_nohash_0.wav")) as file:
        recorded = np.frombuffer(file.readframes(8000), dtype="<i2")
    assert np.array_equal(examples[1][:8000], recorded)
    assert not np.any(examples[1][8000:])


def test_labels_match_the_folder_of_each_clip(root: Path) -> None:
    corpus = speech_commands_corpus(NAME, root, copies=2, seed=1)
    audio = corpus.splits["train"]
    assert isinstance(audio.clips, WavClips)
    for take, label in zip(audio.takes, audio.labels, strict=True):
        word = "silence" if take < 0 else audio.clips.names[take].partition("/")[0]
        assert corpus.classes[label] == (word if word in (*MANIFEST.keywords, "silence") else "unknown")


def test_unknown_words_are_drawn_by_the_seed(root: Path) -> None:
    takes = [speech_commands_corpus(NAME, root, copies=1, seed=seed).splits["train"].takes for seed in (1, 1, 2)]
    assert np.array_equal(takes[0], takes[1])
    assert not np.array_equal(takes[0], takes[2])


def test_root_may_be_the_folder_of_the_data_set_itself(root: Path) -> None:
    assert counts(root / NAME, "test") == counts(root, "test")


def refused(root: Path, name: str = NAME) -> str:
    with pytest.raises(StageError) as caught:
        corpus = speech_commands_corpus(name, root, copies=1, seed=1)
        for split in SPLITS:
            corpus.rows(split, 0, corpus.examples)
    return str(caught.value)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "no such folder, needed a copy of speech_commands_v0.01" in refused(tmp_path / "nowhere")


@pytest.mark.parametrize("inner", ["", NAME])
def test_a_copy_of_the_other_version_is_recognised_and_the_source_says_so(root: Path, inner: str) -> None:
    corpus = speech_commands_corpus("speech_commands_v0.02", root / inner, copies=1, seed=1)
    assert corpus.source == (
        "speech_commands_v0.01, local copy of 330 clips (in place of speech_commands_v0.02, which data.source names)"
    )
    assert np.bincount(corpus.splits["test"].labels).tolist() == [3] * 12


def test_a_copy_of_neither_version_is_refused(root: Path) -> None:
    (root / NAME / "wow").rename(root / "wow")
    sentence = refused(root / NAME, "speech_commands_v0.02")
    assert "['backward', 'follow', 'forward', 'learn', 'visual', 'wow'] missing for speech_commands_v0.02" in sentence


def test_no_speaker_is_in_two_splits_and_every_listed_clip_is_in_its_split(root: Path) -> None:
    splits = speech_commands_corpus(NAME, root, copies=1, seed=1).splits
    heard = [{name.partition("/")[2].partition("_")[0] for name in splits[split].clips.names} for split in SPLITS]
    assert heard == [set(TRAIN), set(VALIDATION), set(TEST)]
    for split, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt")):
        listed = (root / NAME / file).read_text().split()
        assert sorted(splits[split].clips.names) == sorted(listed)


def test_word_that_does_not_belong_is_refused(root: Path) -> None:
    (root / NAME / "hello").mkdir()
    assert "found words ['hello'] too many" in refused(root)


def test_missing_list_is_refused(root: Path) -> None:
    (root / NAME / "testing_list.txt").unlink()
    assert "testing_list.txt: not found, needed for the official split" in refused(root)


def test_listed_clip_that_is_not_there_is_refused(root: Path) -> None:
    (root / NAME / "go" / "c000_nohash_0.wav").unlink()
    assert "testing_list.txt: 1 of its clips are not there, first go/c000_nohash_0.wav" in refused(root)


def test_empty_list_is_refused(root: Path) -> None:
    (root / NAME / "validation_list.txt").write_text("")
    assert "no clips in the validation split" in refused(root)


def test_speaker_in_two_splits_is_refused(root: Path) -> None:
    listed = root / NAME / "testing_list.txt"
    listed.write_text(listed.read_text().replace("down/c000_nohash_0.wav\n", ""))
    assert "speaker is in train and in test; the list files were changed" in refused(root)


def test_missing_noise_is_refused(root: Path) -> None:
    for path in (root / NAME / NOISE_FOLDER).iterdir():
        path.unlink()
    assert "no .wav files, needed background noise" in refused(root)


def test_noise_shorter_than_a_second_is_refused(root: Path) -> None:
    write_wav(root / NAME / NOISE_FOLDER / "hiss.wav", np.ones(100))
    assert "hiss.wav: 100 samples or all zero, needed a second of noise" in refused(root)


@pytest.mark.parametrize(
    ("samples", "rate_hz", "channels", "sentence"),
    [
        (np.ones(8000), 800, 1, "800 Hz, needed 16000 Hz"),
        (np.ones(0), 16_000, 1, "no samples, needed up to one second"),
    ],
)
def test_bad_clip_is_refused_by_name(
    root: Path, samples: np.ndarray, rate_hz: int, channels: int, sentence: str
) -> None:
    write_wav(root / NAME / "yes" / "c002_nohash_0.wav", samples, rate_hz, channels)
    found = refused(root)
    assert "c002_nohash_0.wav" in found
    assert sentence in found


def test_clip_that_was_cut_off_is_refused_by_name(root: Path) -> None:
    path = root / NAME / "yes" / "c002_nohash_0.wav"
    path.write_bytes(path.read_bytes()[:9000])
    assert "c002_nohash_0.wav: WAV cut off, 8956 bytes of audio where its header tells 16000" in refused(root)


def test_stereo_at_another_rate_is_repaired(root: Path) -> None:
    time_s = np.arange(8000) / 8000
    tone = np.rint(9000 * np.sin(2 * np.pi * 440 * time_s))
    stereo = np.stack([1.5 * tone, 0.5 * tone], axis=1).ravel()
    write_wav(root / NAME / "down" / "c000_nohash_0.wav", stereo, 8000, 2)
    heard = speech_commands_corpus(NAME, root, copies=1, seed=1).rows("test", 0, 1)[0]
    expected = 9000 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    assert np.max(np.abs(heard[200:-200] - expected[200:-200])) < 20


def test_empty_file_is_refused_by_name(root: Path) -> None:
    (root / NAME / "up" / "a000_nohash_0.wav").write_bytes(b"")
    assert "a000_nohash_0.wav: 0 bytes that are no WAV" in refused(root)
