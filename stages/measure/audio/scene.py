"""A stretch of synthetic audio: words of held-out voices at known times in background noise.

Every third second one slot; a word starts anywhere in its slot's first 1.5 s. Every fifth slot holds a word that is no
keyword. The voices are those of the built-in corpus's test split, which training has not heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.fetching.manifest import load_manifest
from data.sounds.audio import SAMPLE_RATE_HZ
from data.sounds.espeak import Utterance, find_espeak, speak
from data.sounds.noise import background_noises
from pipeline.errors import StageError
from stages.measure.audio.detections import SpokenWord

SLOT_S = 3
_LATEST_START_S = 1.5
_DISTRACTOR_EVERY = 5
_GAIN_DB = (-9.0, 0.0)
_NOISE_RMS = 60.0  # of 32768: the words' peaks lie 40 dB above it
_SEED = 20
_LOUD = 0.02  # of full scale: where a word begins and ends within its clip
_HELD_OUT = 1  # second seed of the noises


@dataclass(frozen=True, eq=False)
class Scene:
    """int16 samples at 16 kHz and what is in them."""

    samples: np.ndarray
    spoken: tuple[SpokenWord, ...]


def speak_scene(classes: Sequence[str], slots: int, voices: int | None = None) -> Scene:
    """Speak `slots` words by the first `voices` (None: all) of the test split.

    `classes` are the network's, of which the built-in corpus must know some.
    """
    manifest, espeak = load_manifest("builtin_keywords"), find_espeak()
    keywords = [word for word in manifest.keywords if word in classes]
    if not keywords or manifest.speech is None:
        raise StageError(
            f"measure: the built-in corpus speaks none of the classes {', '.join(classes)}; set measure.stream_words=0"
        )
    rng = np.random.default_rng(_SEED)
    speakers, prosodies = manifest.speech.voices.of("test")[:voices], manifest.speech.prosodies
    samples = _noise(slots * SLOT_S * SAMPLE_RATE_HZ)
    spoken = []
    for slot in range(slots):
        is_keyword = slot % _DISTRACTOR_EVERY != _DISTRACTOR_EVERY - 1
        words = keywords if is_keyword else manifest.unknown_words
        word = words[int(rng.integers(len(words)))]
        voice, prosody = speakers[slot % len(speakers)], prosodies[int(rng.integers(len(prosodies)))]
        gain = 10.0 ** (rng.uniform(*_GAIN_DB) / 20)
        clip = speak(Utterance(word=word, voice=voice, prosody=prosody), espeak) * gain
        start = round((slot * SLOT_S + rng.uniform(0.0, _LATEST_START_S)) * SAMPLE_RATE_HZ)
        samples[start : start + len(clip)] += clip
        loud = np.flatnonzero(np.abs(clip) > _LOUD * 32768 * gain)
        begin, end = ((start + int(loud[at])) / SAMPLE_RATE_HZ for at in (0, -1))
        spoken.append(SpokenWord(begin, end, classes.index(word) if is_keyword else None))
    return Scene(np.clip(np.round(samples), -32768, 32767).astype("<i2"), tuple(spoken))


def _noise(count: int) -> np.ndarray:
    """The kinds of background noise one after the other, each for its 20 s."""
    recordings = np.concatenate(background_noises([_SEED, _HELD_OUT]))
    return np.resize(recordings, count) * _NOISE_RMS
