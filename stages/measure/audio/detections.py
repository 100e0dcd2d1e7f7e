"""Detections against what was said: hits, misses, false alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stages.measure.seen import DetectionScore


@dataclass(frozen=True)
class SpokenWord:
    """A word of class `word` from `start_s` to `end_s`; class None: one that is not to be detected."""

    start_s: float
    end_s: float
    word: int | None


@dataclass(frozen=True)
class DetectedWord:
    """A word found at `time_s`."""

    time_s: float
    word: int


def score_detections(spoken: Sequence[SpokenWord], detected: Sequence[DetectedWord], grace_s: float) -> DetectionScore:
    """A detection is a hit if a word of its class was being said, or had ended at most `grace_s` before.

    Each word can be hit once; every other detection is a false alarm. In the order of time a detection takes the word
    that ends first among those it could take, which makes the number of hits the largest possible.
    """
    open_words = sorted((word for word in spoken if word.word is not None), key=lambda word: (word.end_s, word.start_s))
    words, delays = len(open_words), []
    for found in sorted(detected, key=lambda found: found.time_s):
        hit = next(
            (
                word
                for word in open_words
                if word.word == found.word and word.start_s <= found.time_s <= word.end_s + grace_s
            ),
            None,
        )
        if hit is not None:
            open_words.remove(hit)
            delays.append(found.time_s - hit.end_s)
    return DetectionScore(
        words=words,
        hits=len(delays),
        misses=words - len(delays),
        false_alarms=len(detected) - len(delays),
        mean_delay_s=sum(delays) / len(delays) if delays else None,
    )
