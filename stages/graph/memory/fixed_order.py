"""The peak of one operator order at any widths, fast enough to be asked at every step of a training.

What an op or a chain needs at each of its moments is linear in the tensors' bytes, and these are linear in the widths,
so that all needs are one product; the chains to run are then a shortest way through the order, as in `overlap`.
"""

from __future__ import annotations

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
        self._counts = np.diff([*self._firsts, len(shares)])

    def peak(self, widths: Sequence[float]) -> tuple[float, np.ndarray]:
        """Bytes, and their derivatives by the widths: those of the moment that needs most."""
        needs = self._needs[:, 0] + self._needs[:, 1:] @ np.asarray(widths, float)
        worst = np.maximum.reduceat(needs, self._firsts).tolist()
        last = self._spans[-1][1] if self._spans else 0
        least, way = [0.0] + [np.inf] * last, [0] * (last + 1)  # up to each position; the stretch before it
        for number, (start, end) in enumerate(self._spans):
            reached = max(least[start], worst[number])
            if reached < least[end]:
                least[end], way[end] = reached, number
        position, top = last, way[last]
        while position:
            top = max(top, way[position], key=lambda number: worst[number])
            position = self._spans[way[position]][0]
        first = self._firsts[top]
        row = first + int(needs[first : first + self._counts[top]].argmax())
        return least[last], self._needs[row, 1:]
