"""The built-in corpus: ten keywords, other words and noise, spoken by espeak-ng.

Every voice says every keyword in every prosody. A training clip is used for `copies` examples, each with another
shift, loudness and noise; unknown gets as many examples by saying different words instead, and silence as many again.
Validation and test use each clip once, with little noise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from data.fetching.manifest import SILENCE, UNKNOWN, Manifest, SpokenCorpus, load_manifest
from data.fetching.splits import SPLITS, Split
from data.sounds.audio import SAMPLE_RATE_HZ, Int16
from data.sounds.corpus import NO_CLIP, Corpus, Mixing, SplitAudio
from data.sounds.espeak import PROGRAM, Utterance, espeak_version, find_espeak, speak
from data.sounds.noise import background_noises
from pipeline.errors import StageError

NAME = "builtin_keywords"

_SHIFT_SAMPLES = SAMPLE_RATE_HZ // 10  # 100 ms, as in the Speech Commands recipe
_TRAIN = Mixing(
    shift_samples=_SHIFT_SAMPLES,
    gain_db=(-14.0, 2.0),
    noise_share=0.9,
    snr_db=(3.0, 35.0),
    silence_dbfs=(-80.0, -12.0),
)
# Narrower than training in every range: held-out voices are the difficulty, not noise that was never heard.
_HELD_OUT = Mixing(
    shift_samples=_SHIFT_SAMPLES // 2,
    gain_db=(-10.0, 0.0),
    noise_share=1.0,
    snr_db=(15.0, 35.0),
    silence_dbfs=(-70.0, -18.0),
)


@dataclass(frozen=True, kw_only=True)
class CorpusSize:
    """How much is spoken."""

    voices: int
    prosodies: int
    copies: int
    seed: int


@dataclass(frozen=True)
class Take:
    """An utterance, its class, and for how many examples it is used."""

    utterance: Utterance
    label: int
    copies: int


def keyword_corpus(
    size: CorpusSize,
    *,
    start: Callable[[int], None],
    advance: Callable[[int], None],
    workers: int | None = None,
    program: str = PROGRAM,
) -> Corpus:
    """Speak the corpus, the same whatever `workers` is; `start` hears the number of clips, `advance` each one done."""
    espeak = find_espeak(program)
    manifest = load_manifest(NAME)
    plans = {split: planned(manifest, split, size) for split in SPLITS}
    start(sum(len(plan) for plan in plans.values()))

    clips: dict[Split, list[Int16]] = {split: [] for split in SPLITS}
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:  # threads: they wait for espeak-ng
        for split, plan in plans.items():
            for clip in pool.map(lambda take: speak(take.utterance, espeak), plan):
                clips[split].append(clip)
                advance(1)
    _refuse_equal_voices(plans, clips)
    voices = sum(len(voices_of(manifest, split, size.voices)) for split in SPLITS)
    return Corpus(
        source=f"{NAME}, espeak-ng {espeak_version(espeak)}, {voices} voices",
        classes=manifest.classes,
        seed=size.seed,
        splits={split: _split_audio(manifest, split, size, plans[split], clips[split]) for split in SPLITS},
    )


def voices_of(manifest: Manifest, split: Split, total: int) -> tuple[str, ...]:
    """The split's share of a corpus of `total` voices: the first ones of its list, at least one."""
    lists = _speech(manifest).voices
    available = sum(len(lists.of(each)) for each in SPLITS)
    if not len(SPLITS) <= total <= available:
        raise StageError(
            f"data.voices: found {total}, needed {len(SPLITS)} to {available}, as many as the manifest lists"
        )
    share = {each: max(1, total * len(lists.of(each)) // available) for each in SPLITS}
    share["train"] = min(len(lists.train), total - share["validation"] - share["test"])
    share["test"] = total - share["train"] - share["validation"]
    return lists.of(split)[: share[split]]


def planned(manifest: Manifest, split: Split, size: CorpusSize) -> list[Take]:
    """What the voices of a split will say, in order."""
    speech = _speech(manifest)
    if not 1 <= size.prosodies <= len(speech.prosodies):
        raise StageError(
            f"data.prosodies: found {size.prosodies}, needed 1 to {len(speech.prosodies)}, see the manifest"
        )
    copies = size.copies if split == "train" else 1
    unknown = manifest.classes.index(UNKNOWN)
    others = manifest.unknown_words
    takes: list[Take] = []
    asked = SPLITS.index(split)  # each split begins at another word
    for voice in voices_of(manifest, split, size.voices):
        for prosody in speech.prosodies[: size.prosodies]:
            for word in manifest.keywords:
                said = Utterance(word=word, voice=voice, prosody=prosody)
                takes.append(Take(said, manifest.classes.index(word), copies))
            for _ in range(copies):
                said = Utterance(word=others[asked % len(others)], voice=voice, prosody=prosody)
                takes.append(Take(said, unknown, 1))
                asked += 1
    return takes


def _split_audio(
    manifest: Manifest, split: Split, size: CorpusSize, plan: Sequence[Take], clips: Sequence[Int16]
) -> SplitAudio:
    copies = [take.copies for take in plan]
    silences = sum(copies) // (len(manifest.classes) - 1)
    takes = np.concatenate([np.repeat(np.arange(len(plan)), copies), np.full(silences, NO_CLIP)])
    labels = np.repeat([take.label for take in plan], copies)
    return SplitAudio(
        clips=clips,
        takes=takes.astype(np.int64),
        labels=np.concatenate([labels, np.full(silences, manifest.classes.index(SILENCE))]).astype(np.int64),
        noises=background_noises([size.seed, SPLITS.index(split)]),
        mixing=_TRAIN if split == "train" else _HELD_OUT,
        speakers=voices_of(manifest, split, size.voices),
    )


def _refuse_equal_voices(plans: dict[Split, list[Take]], clips: dict[Split, list[Int16]]) -> None:
    """espeak-ng speaks on without a word when it lacks a variant; then two voices are one, perhaps across splits."""
    voice_of: dict[tuple[str, bytes], str] = {}
    for split in SPLITS:
        for take, clip in zip(plans[split], clips[split], strict=True):
            said = take.utterance
            known = voice_of.setdefault((said.word, hashlib.sha256(clip.tobytes()).digest()), said.voice)
            if known != said.voice:
                raise StageError(
                    f"espeak-ng: voices {known!r} and {said.voice!r} say {said.word!r} alike, needed different ones;"
                    " this espeak-ng lacks a variant: install its data package espeak-ng-data"
                )


def _speech(manifest: Manifest) -> SpokenCorpus:
    if manifest.speech is None:
        raise StageError(f"{manifest.name}: has no voices, needed a spoken corpus such as {NAME}")
    return manifest.speech
