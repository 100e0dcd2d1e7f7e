"""What a stream of features leads to, computed plainly: the reference of boards/firmware/audio/stream.c.

Only integers occur, so that the device must give the same sums and detections, bit for bit, for the same features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hil.link.audio import Detection


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """As footprint.json holds them."""

    run_hops: int
    smooth_runs: int
    threshold_sum: int
    refractory_hops: int
    is_word: Sequence[bool]


@dataclass(frozen=True)
class StreamTrace:
    """Hop and sums of every run, and the words found."""

    sums: tuple[tuple[int, ...], ...]
    detections: tuple[Detection, ...]


def reference_stream(
    features: np.ndarray, frames: int, infer: Callable[[np.ndarray], np.ndarray], settings: StreamSettings
) -> StreamTrace:
    """`features` (hops, coefficients) int8; `infer` gives the int8 outputs of inputs (N, frames, coefficients, 1)."""
    ends = range(frames, len(features) + 1, settings.run_hops)  # after these hops the network runs
    if not ends:
        return StreamTrace((), ())
    inputs = np.stack([features[end - frames : end, :, np.newaxis] for end in ends])
    scores = infer(inputs).reshape(len(inputs), -1).astype(np.int64) + 128
    sums, detections, silent_until = [], [], 0
    for run, hop in enumerate(ends):
        total = scores[max(0, run + 1 - settings.smooth_runs) : run + 1].sum(axis=0)
        sums.append((hop, *(int(value) for value in total)))
        best = int(np.argmax(total))
        if settings.is_word[best] and total[best] >= settings.threshold_sum and hop >= silent_until:
            detections.append(Detection(hop, best, int(total[best])))
            silent_until = hop + settings.refractory_hops
    return StreamTrace(tuple(sums), tuple(detections))
