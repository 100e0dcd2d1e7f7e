"""Results into figures as MLPerf Tiny counts them: top 1, area under the curve, detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_GRACE_S = 1.0  # the reference network looks back a second
_DEBOUNCE_S = 1.0


@dataclass(frozen=True)
class Detections:
    """Of one or several recordings."""

    hits: int
    misses: int
    false_alarms: int


def top1(results: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """The first of equals counts, as in numpy's argmax."""
    return float(np.mean([int(np.argmax(row)) == label for row, label in zip(results, labels, strict=True)]))


def auc(scores: Sequence[float], labels: Sequence[int]) -> float:
    """How often a file of class 1 has a higher score than one of class 0; ties count half."""
    values, anomalous = np.asarray(scores), np.asarray(labels) > 0
    if anomalous.all() or not anomalous.any():
        return float("nan")
    gaps = values[anomalous][:, np.newaxis] - values[~anomalous][np.newaxis, :]
    return float(np.mean((gaps > 0) + 0.5 * (gaps == 0)))


def detections(times_s: Sequence[float], words_s: Sequence[tuple[float, float]]) -> Detections:
    """A detection from a word's beginning to a second after its end is right; others count once a second."""
    left = list(times_s)
    hits = 0
    for start, end in words_s:
        within = [time for time in left if start <= time <= end + _GRACE_S]
        hits += bool(within)
        left = [time for time in left if time not in within]
    alarms = 0
    last: float | None = None
    for time in sorted(left):
        if last is None or time > last + _DEBOUNCE_S:
            alarms, last = alarms + 1, time
    return Detections(hits, len(words_s) - hits, alarms)
