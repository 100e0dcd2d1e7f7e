"""The peak of one operator order at any widths, fast enough to be asked at every step of a training.

What an op or a chain needs at each of its moments is linear in the tensors' bytes, and these are linear in the widths,
so that all needs are one product; the chains to run are then a shortest way through the order, as in
stages/graph/memory/overlap.py.
"""

from __future__ import annotations

from collections.abc import Iterable

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

    def peaks(self, widths: np.ndarray) -> np.ndarray:
        """Bytes at many widths, a row for each."""
        needs = self._needs[:, :1] + self._needs[:, 1:] @ np.asarray(widths, float).T
        worst = np.maximum.reduceat(needs, self._firsts)
        least: dict[int, np.ndarray] = {0: np.zeros(len(widths))}  # that is needed up to each position
        for (start, end), need in zip(self._spans, worst, strict=True):
            reached = np.maximum(least[start], need)
            least[end] = np.minimum(least[end], reached) if end in least else reached
        return least[self._spans[-1][1]]
