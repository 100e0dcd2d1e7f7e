"""What a device told, and how it compares with the host: the results of a session, of a front end, of a stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hil.link.replies import Burst, MemoryUse


@dataclass(frozen=True)
class Sample:
    """One timed inference; None is what this source cannot tell."""

    instructions: int | None
    cycles: int | None
    latency_ms: float | None


@dataclass(frozen=True, eq=False)
class Seen:
    """Everything the device told."""

    samples: tuple[Sample, ...]
    op_ticks: tuple[int, ...]  # instructions on the twin, cycles on a board
    outputs: np.ndarray
    memory: MemoryUse
    clock_hz: int
    build_id: str
    boot_lines: tuple[str, ...]
    qemu_version: str | None  # None on a board
    burst: Burst | None = None  # right behind each other; each of `samples` came after protocol code. Stock: None

    @property
    def counts_instructions(self) -> bool:
        return self.qemu_version is not None


@dataclass(frozen=True)
class FrontEndSeen:
    """One clip through a front end."""

    ticks: int  # instructions on the twin, cycles on a board
    values: int  # features
    equal: int  # to the host's
    within_one: int  # or one step off


@dataclass(frozen=True)
class DetectionScore:
    """How well the words of a stream were found."""

    words: int
    hits: int
    misses: int
    false_alarms: int
    mean_delay_s: float | None  # from the end of a word to its detection; below 0: before it ended


@dataclass(frozen=True)
class StreamSeen:
    """A stream of `seconds`: the score, and over how many runs of the network the sums equal the reference's."""

    seconds: float
    runs: int
    sums_equal: int
    score: DetectionScore


@dataclass(frozen=True, eq=False)
class AudioSeen:
    """Everything about audio."""

    clip: np.ndarray  # int16, what the front end was timed with
    front_end: FrontEndSeen
    stream: StreamSeen | None
