"""A host that does what MLPerf Tiny's stock runner does, and no more, after the facts in the project's protocol notes.

It knows nothing of our added commands, sends 31 bytes with each `db`, takes for granted what the stock one does, and
has its weaknesses: no checksum, no retry, results divided by their sum.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BYTES_PER_DB = 31
BLOCKS = 5  # the median of so many counts


@dataclass(frozen=True)
class Performance:
    """What the runner reports."""

    inferences_per_s: float
    laps_us: tuple[tuple[int, int], ...]


class StockRunner:
    """`ask` sends a command with its % and returns the lines before `m-ready`."""

    def __init__(self, ask: Callable[[str], list[str]], boot: Sequence[str]) -> None:
        self._ask = ask
        self.energy = boot[0] == "m-timestamp-mode-energy"
        assert self.energy or boot[0] == "m-timestamp-mode-performance", boot
        assert boot[-1] == "m-init-done"

    def identify(self) -> tuple[str, str]:
        """Vendor and model."""
        (name,) = self._ask("name")
        profile, model = self._ask("profile")
        assert name.startswith("m-name-dut-[")
        assert profile == "m-profile-[ULPMark for tinyML Firmware V0.0.1]"
        return name[len("m-name-dut-[") : -1], model[len("m-model-[") : -1]

    def load(self, data: bytes) -> None:
        assert self._ask(f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
        for start in range(0, len(data), BYTES_PER_DB):
            lines = self._ask("db " + data[start : start + BYTES_PER_DB].hex())
            assert lines == (["m-load-done"] if start + BYTES_PER_DB >= len(data) else [])

    def infer(self, inferences: int, warmups: int) -> tuple[tuple[int, ...], list[float]]:
        """Laps, none in energy mode, and results that add up to one."""
        lines = self._ask(f"infer {inferences} {warmups}")
        laps = [line for line in lines if line.startswith("m-lap-us-")]
        head = [f"m-warmup-start-{warmups}", "m-warmup-done", f"m-infer-start-{inferences}"]
        assert lines[:-1] == [*head, *laps, "m-infer-done"]
        values = [float(value) for value in lines[-1][len("m-results-[") : -1].split(",")]
        return tuple(int(lap[len("m-lap-us-") :]) for lap in laps), [value / sum(values) for value in values]

    def performance(self, data: bytes, inferences: int, warmups: int) -> Performance:
        self.load(data)
        laps = [self.infer(inferences, warmups)[0] for _ in range(BLOCKS)]
        pairs = tuple((start, end) for start, end in laps)
        return Performance(statistics.median(inferences / ((end - start) / 1e6) for start, end in pairs), pairs)

    def scores(self, data: bytes) -> list[float]:
        """Of one inference in accuracy mode."""
        self.load(data)
        return self.infer(1, 0)[1]
