"""The peak of one operator order at any widths, fast enough to be asked at every step of a training.

What an op or a chain needs at each of its moments is linear in the tensors' bytes, and these are linear in the widths,
so that all needs are one product; the chains to run are then a shortest way through the order, as in
stages/graph/memory/overlap.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from stages.graph.memory.op_order import Cases


class FixedOrder:
    """`cases` of an order in buffers; `buffers`: their bytes as a constant and a part for each group's width."""

    def __init__(self, cases: Iterable[Cases], buffers: np.ndarray) -> None:
        stretches = list(cases)
        self._spans = [(start, end) for start, end, _ in stretches]
        self._firsts = np.cumsum([0, *(len(needs) for _, _, needs in stretches)])[:-1]
        shares = np.zeros((sum(len(needs) for _, _, needs in stretches), len(buffers)))
        for row, need in enumerate(need for _, _, needs in stretches for need in needs):
            shares[row, list(need)] = list(need.values())
        self._needs = shares @ buffers

    def peak(self, widths: Sequence[int]) -> float:
        """Bytes at these widths; plain numbers, which are faster than arrays of one."""
        least = [0.0] + [math.inf] * self._spans[-1][1]  # that is needed up to each position
        for (start, end), need in zip(self._spans, self._worst(np.array([widths]))[:, 0].tolist(), strict=True):
            reached = max(least[start], need)
            if reached < least[end]:
                least[end] = reached
        return least[-1]

    def peaks(self, widths: np.ndarray) -> np.ndarray:
        """Bytes at many widths, a row for each."""
        least = np.full((self._spans[-1][1] + 1, len(widths)), np.inf)
        least[0] = 0
        positions, reached = list(least), np.empty(len(widths))
        for (start, end), need in zip(self._spans, self._worst(widths), strict=True):
            np.maximum(positions[start], need, out=reached)
            np.minimum(positions[end], reached, out=positions[end])
        return positions[-1]

    def _worst(self, widths: np.ndarray) -> np.ndarray:
        """What every stretch needs, a column for each of the widths."""
        needs = self._needs[:, :1] + self._needs[:, 1:] @ np.asarray(widths, float).T
        found: np.ndarray = np.maximum.reduceat(needs, self._firsts)
        return found
