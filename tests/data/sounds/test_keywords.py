"""The built-in corpus: what is planned, and that espeak-ng really says it, the same every time."""

from __future__ import annotations

import shutil
import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data import SPLITS, Corpus, CorpusSize, keyword_corpus, load_manifest
from data.fetching.manifest import Prosody
from data.sounds.audio import CLIP_SAMPLES
from data.sounds.corpus import NO_CLIP
from data.sounds.espeak import Utterance, espeak_version, find_espeak, speak
from data.sounds.keywords import planned, voices_of
from pipeline.errors import StageError, ToolError

TINY = CorpusSize(voices=4, prosodies=1, copies=2, seed=7)
QUICK = CorpusSize(voices=58, prosodies=5, copies=3, seed=1)
CALM = Prosody(speed_wpm=160, pitch=50, ending="")


def tiny_corpus(workers: int) -> Corpus:
    return keyword_corpus(TINY, start=lambda total: None, advance=lambda count: None, workers=workers)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return tiny_corpus(workers=2)


def test_same_bytes_whatever_the_number_of_workers(corpus: Corpus) -> None:
    alone = tiny_corpus(workers=1)
    for split in SPLITS:
        assert np.array_equal(np.stack(corpus.splits[split].clips), np.stack(alone.splits[split].clips))
        ours, theirs = (each.rows(split, 0, each.examples) for each in (corpus, alone))
        assert ours.dtype == np.int16
        assert ours.tobytes() == theirs.tobytes()


def test_words_move_by_at_most_a_tenth_of_a_second(corpus: Corpus) -> None:
    assert [corpus.splits[split].mixing.shift_samples for split in SPLITS] == [1600, 800, 800]


def test_every_class_is_in_every_split_and_equally_often(corpus: Corpus) -> None:
    for split, each in (("train", 4), ("validation", 1), ("test", 1)):
        assert np.bincount(corpus.splits[split].labels).tolist() == [each] * 12


def test_labels_say_what_was_spoken(corpus: Corpus) -> None:
    manifest = load_manifest("builtin_keywords")
    audio, plan = corpus.splits["train"], planned(manifest, "train", TINY)
    for take, label in zip(audio.takes, audio.labels, strict=True):
        if take == NO_CLIP:
            assert corpus.classes[label] == "silence"
            continue
        word = plan[take].utterance.word
        assert corpus.classes[label] == (word if word in manifest.keywords else "unknown")
        assert np.array_equal(audio.clips[take], speak(plan[take].utterance, find_espeak()))


def test_no_voice_is_in_two_splits(corpus: Corpus) -> None:
    speakers = [speaker for split in SPLITS for speaker in corpus.splits[split].speakers]
    assert len(speakers) == len(set(speakers)) == 4


def test_no_clip_is_in_two_splits(corpus: Corpus) -> None:
    clips = [{clip.tobytes() for clip in corpus.splits[split].clips} for split in SPLITS]
    assert not clips[0] & clips[1] and not clips[0] & clips[2] and not clips[1] & clips[2]


def test_progress_counts_every_clip() -> None:
    heard: list[int] = []
    keyword_corpus(TINY, start=heard.append, advance=heard.append, workers=2)
    assert heard[0] == 2 * 12 + 2 * 11
    assert heard[1:] == [1] * heard[0]


def test_quick_corpus_is_large_balanced_and_split_by_voice() -> None:
    manifest = load_manifest("builtin_keywords")
    examples = {split: sum(take.copies for take in planned(manifest, split, QUICK)) for split in SPLITS}
    assert examples == {"train": 38 * 5 * 11 * 3, "validation": 8 * 5 * 11, "test": 12 * 5 * 11}
    voices = {split: set(voices_of(manifest, split, 58)) for split in SPLITS}
    assert not voices["train"] & voices["test"] and not voices["train"] & voices["validation"]


def test_unknown_is_said_in_all_other_words_and_about_equally_often() -> None:
    manifest = load_manifest("builtin_keywords")
    for split in SPLITS:
        plan = planned(manifest, split, QUICK)
        said = Counter(take.utterance.word for take in plan if take.utterance.word not in manifest.keywords)
        assert set(said) == set(manifest.unknown_words)
        assert max(said.values()) - min(said.values()) <= 1


@pytest.mark.parametrize("total", [3, 4, 5, 14, 30, 55, 56, 57, 58])
def test_voices_are_shared_out_in_full_with_some_for_each_split(total: int) -> None:
    shares = [len(voices_of(load_manifest("builtin_keywords"), split, total)) for split in SPLITS]
    assert sum(shares) == total
    assert min(shares) >= 1


@pytest.mark.parametrize("total", [2, 59])
def test_more_voices_than_there_are_is_refused(total: int) -> None:
    with pytest.raises(StageError, match=rf"data\.voices: found {total}, needed 3 to 58"):
        voices_of(load_manifest("builtin_keywords"), "train", total)


def test_more_prosodies_than_there_are_is_refused() -> None:
    size = CorpusSize(voices=4, prosodies=9, copies=1, seed=1)
    with pytest.raises(StageError, match=r"data\.prosodies: found 9, needed 1 to 8"):
        planned(load_manifest("builtin_keywords"), "train", size)


def test_a_real_data_set_has_no_voices() -> None:
    with pytest.raises(StageError, match=r"speech_commands_v0\.01: has no voices"):
        voices_of(load_manifest("speech_commands_v0.01"), "train", 4)


def test_spoken_clip_is_one_second_centred_at_half_scale() -> None:
    clip = speak(Utterance(word="left", voice="gmw/en-US+f2", prosody=CALM), find_espeak())
    assert clip.shape == (CLIP_SAMPLES,)
    assert np.max(np.abs(clip.astype(int))) == 16_384
    sounding = np.flatnonzero(clip)
    assert abs(int(sounding[0]) + int(sounding[-1]) - CLIP_SAMPLES) < 400
    assert 0.2 < (sounding[-1] - sounding[0]) / CLIP_SAMPLES < 0.9


def test_prosody_changes_the_clip_and_speed_its_length() -> None:
    def length(speed_wpm: int) -> int:
        prosody = Prosody(speed_wpm=speed_wpm, pitch=50, ending="")
        return int(np.ptp(np.flatnonzero(speak(Utterance(word="yes", voice="gmw/en", prosody=prosody), find_espeak()))))

    assert length(200) < length(160) < length(120)


def test_missing_espeak_says_how_to_get_it() -> None:
    with pytest.raises(ToolError, match=r"no-such-espeak: not found on PATH, .*apt-get install .*espeak-ng"):
        keyword_corpus(TINY, start=lambda total: None, advance=lambda count: None, program="no-such-espeak")


def test_unknown_voice_is_reported_with_the_command() -> None:
    with pytest.raises(ToolError, match=r"exit code 1, needed 0, from: .* -v nosuchvoice "):
        speak(Utterance(word="left", voice="nosuchvoice", prosody=CALM), find_espeak())


def script(folder: Path, body: str) -> str:
    path = folder / "espeak-ng"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_an_espeak_that_lacks_the_variants_is_noticed(tmp_path: Path) -> None:
    """It then speaks with the plain voice and exits with 0, and voices of two splits would be one."""
    real = shutil.which("espeak-ng")
    deaf = script(tmp_path, f'if [ "$1" = -v ]; then shift 2; exec {real} -v gmw/en "$@"; fi; exec {real} "$@"')
    with pytest.raises(StageError, match=r"espeak-ng: voices 'gmw/en-US' and 'gmw/en\+f2' say 'down' alike"):
        keyword_corpus(TINY, start=lambda total: None, advance=lambda count: None, program=deaf)


def test_an_espeak_that_says_nothing_is_noticed(tmp_path: Path) -> None:
    mute = script(tmp_path, f'exec {shutil.which("espeak-ng")} -v gmw/en --stdout ""')
    with pytest.raises(StageError, match=r"espeak-ng: gmw/en: 'left': "):
        speak(Utterance(word="left", voice="gmw/en", prosody=CALM), mute)


def test_version_is_a_number(tmp_path: Path) -> None:
    assert espeak_version(find_espeak())[0].isdigit()
    with pytest.raises(StageError, match="--version names no version"):
        espeak_version(script(tmp_path, "echo hello"))


@pytest.mark.slow
def test_all_voices_of_the_manifest_exist_and_differ() -> None:
    size = CorpusSize(voices=58, prosodies=1, copies=1, seed=1)
    corpus = keyword_corpus(size, start=lambda total: None, advance=lambda count: None)
    assert sum(len(corpus.splits[split].speakers) for split in SPLITS) == 58
    assert len({clip.tobytes() for split in SPLITS for clip in corpus.splits[split].clips}) == 58 * 11
