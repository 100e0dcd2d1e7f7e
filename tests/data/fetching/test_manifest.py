"""Manifests: what is defined, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml

from data.fetching.manifest import MANIFESTS, load_manifest, manifest_names, variant
from data.fetching.splits import SPLITS
from pipeline.errors import StageError

KEYWORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")


@pytest.mark.parametrize("name", ["builtin_keywords", "speech_commands_v0.01", "speech_commands_v0.02"])
def test_every_keyword_data_set_has_the_same_twelve_classes_in_the_same_order(name: str) -> None:
    manifest = load_manifest(name)
    assert manifest.name == name
    assert manifest.classes == (*KEYWORDS, "silence", "unknown")
    assert manifest.keywords == KEYWORDS
    assert not set(manifest.unknown_words) & set(KEYWORDS)


def test_all_manifests_in_the_folder_can_be_read() -> None:
    assert {name: len(load_manifest(name).archives) for name in manifest_names()} == {
        "builtin_images": 0,
        "builtin_keywords": 0,
        "cifar10": 1,
        "imagenet": 0,
        "speech_commands_v0.01": 1,
        "speech_commands_v0.02": 1,
        "visual_wake_words": 3,
    }
    assert [name for name in manifest_names() if load_manifest(name).mirror] == ["cifar10"]


def test_builtin_corpus_has_enough_voices_and_no_timbre_in_two_splits() -> None:
    speech = load_manifest("builtin_keywords").speech
    assert speech is not None
    timbres = [variant(voice) for split in SPLITS for voice in speech.voices.of(split)]
    assert len(timbres) >= 40
    assert Counter(timbres).most_common(1)[0][1] == 1, "a timbre is listed twice"
    assert len(speech.voices.test) >= 10


def test_every_accent_of_the_held_out_voices_is_heard_in_training() -> None:
    speech = load_manifest("builtin_keywords").speech
    assert speech is not None
    accents = {split: {voice.partition("+")[0] for voice in speech.voices.of(split)} for split in SPLITS}
    assert accents["validation"] <= accents["train"]
    assert accents["test"] <= accents["train"]
    assert len(accents["train"]) == 7


def changed(tmp_path: Path, **changes: object) -> Path:
    content = yaml.safe_load((MANIFESTS / "builtin_keywords.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**content, **changes}))
    return tmp_path


def test_unknown_key_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"mine\.yaml: colour: .*; mend the manifest"):
        load_manifest("mine", changed(tmp_path, colour="red"))


def test_a_timbre_in_two_splits_is_refused(tmp_path: Path) -> None:
    voices = {"train": ["gmw/en+f2"], "validation": ["gmw/en+m1"], "test": ["gmw/en-US+f2"]}
    speech = {"prosodies": [{"speed_wpm": 160, "pitch": 50, "ending": ""}], "voices": voices}
    with pytest.raises(StageError, match="variant 'f2' is in train and in test, needed in one only"):
        load_manifest("mine", changed(tmp_path, speech=speech))


def test_broken_sha256_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"mine\.yaml: archives\.0\.sha256: "):
        load_manifest("mine", changed(tmp_path, archives=[{"url": "http://localhost/x.tar.gz", "sha256": "12"}]))


def test_missing_manifest_names_those_there_are() -> None:
    with pytest.raises(
        StageError, match="no_such: no such data set, needed one of: builtin_images, builtin_keywords, cifar10"
    ):
        load_manifest("no_such")


def test_manifest_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("classes: [a, b")
    with pytest.raises(StageError, match=r"mine\.yaml: not readable as YAML"):
        load_manifest("mine", tmp_path)
