"""Scoring of detections, and the reference of streams, against slow obvious oracles."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from hil.link.audio import Detection
from stages.measure.audio.detections import DetectedWord, SpokenWord, score_detections
from stages.measure.audio.stream_reference import StreamSettings, reference_stream

GRACE_S = 0.5


def could_hit(found: DetectedWord, word: SpokenWord) -> bool:
    return found.word == word.word and word.start_s <= found.time_s <= word.end_s + GRACE_S


def most_hits(spoken: list[SpokenWord], detected: list[DetectedWord]) -> int:
    """The best of all ways to give each detection a word of its own."""
    places: list[SpokenWord | None] = [*(word for word in spoken if word.word is not None), *[None] * len(detected)]
    return max(
        sum(word is not None and could_hit(found, word) for found, word in zip(detected, chosen, strict=True))
        for chosen in permutations(places, len(detected))
    )


@pytest.mark.parametrize("seed", range(60))
def test_hits_are_as_many_as_can_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = rng.uniform(0, 6, 4)
    spoken = [
        SpokenWord(start, start + rng.uniform(0.2, 1.5), None if rng.random() < 0.2 else int(rng.integers(2)))
        for start in starts
    ]
    detected = [DetectedWord(float(time_s), int(rng.integers(2))) for time_s in rng.uniform(0, 8, rng.integers(0, 4))]
    score = score_detections(spoken, detected, GRACE_S)
    words = sum(word.word is not None for word in spoken)
    assert score.hits == most_hits(spoken, detected)
    assert (score.words, score.misses) == (words, words - score.hits)
    assert score.false_alarms == len(detected) - score.hits


def test_a_word_counts_once_and_its_echo_is_a_false_alarm() -> None:
    score = score_detections([SpokenWord(1.0, 1.4, 3)], [DetectedWord(1.5, 3), DetectedWord(1.8, 3)], GRACE_S)
    assert (score.hits, score.misses, score.false_alarms) == (1, 0, 1)
    assert score.mean_delay_s == pytest.approx(0.1)


@pytest.mark.parametrize(("time_s", "word"), [(0.99, 3), (1.91, 3), (1.5, 2)], ids=["early", "late", "other_word"])
def test_early_late_and_wrong_detections_are_false_alarms(time_s: float, word: int) -> None:
    score = score_detections([SpokenWord(1.0, 1.4, 3)], [DetectedWord(time_s, word)], GRACE_S)
    assert (score.hits, score.misses, score.false_alarms, score.mean_delay_s) == (0, 1, 1, None)


def test_nothing_said_and_nothing_heard_is_no_score_at_all() -> None:
    score = score_detections([SpokenWord(0.0, 1.0, None)], [], GRACE_S)
    assert (score.words, score.hits, score.misses, score.false_alarms) == (0, 0, 0, 0)


SETTINGS = StreamSettings(run_hops=2, smooth_runs=3, threshold_sum=450, refractory_hops=4, is_word=(True, True, False))


def outputs_at(script: dict[int, tuple[int, int, int]], frames: int):
    """A network that reads the number of the newest hop from its input and answers by the script."""

    def infer(inputs: np.ndarray) -> np.ndarray:
        assert inputs.shape[1:] == (frames, 1, 1)
        newest = inputs[:, -1, 0, 0].astype(int) + 1
        return np.array([script.get(int(hop), (0, 0, 255)) for hop in newest]) - 128

    return infer


def test_smoothing_threshold_and_refractory_time_by_hand() -> None:
    features = np.arange(20, dtype=np.int8)[:, np.newaxis]
    script = {4: (255, 0, 0), 6: (200, 55, 0), 8: (255, 0, 0), 10: (250, 5, 0), 12: (255, 0, 0), 14: (0, 255, 0)}
    trace = reference_stream(features, 4, outputs_at(script, 4), SETTINGS)
    assert [sums[0] for sums in trace.sums] == [4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert trace.sums[:4] == ((4, 255, 0, 0), (6, 455, 55, 0), (8, 710, 55, 0), (10, 705, 60, 0))
    # Found at hop 6, silent until 10; at 14 the old word still has the largest sum, 505.
    assert trace.detections == (Detection(6, 0, 455), Detection(10, 0, 705), Detection(14, 0, 505))


def test_a_class_that_is_no_word_is_never_detected_and_the_first_of_equals_wins() -> None:
    features = np.arange(12, dtype=np.int8)[:, np.newaxis]
    quiet = {hop: (0, 0, 255) for hop in range(13)}
    assert reference_stream(features, 4, outputs_at(quiet, 4), SETTINGS).detections == ()
    equal = {hop: (127, 127, 1) for hop in range(13)}
    settings = StreamSettings(**{**vars(SETTINGS), "threshold_sum": 100})
    assert {found.word for found in reference_stream(features, 4, outputs_at(equal, 4), settings).detections} == {0}


def test_a_stream_shorter_than_the_window_runs_nothing() -> None:
    assert reference_stream(np.zeros((3, 1), np.int8), 4, outputs_at({}, 4), SETTINGS).sums == ()
