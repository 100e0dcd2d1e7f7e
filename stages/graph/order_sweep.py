"""The search of `order_search` layer by layer, all sets with the same number of finished blocks at once, in numpy.

It answers the same question with the same moves (without looking along chains) some ten times faster per set, but has
to see all sets on the way: the means to prove that there is no better order, once the depth-first search has found
none. Of several ways to a set it keeps the one that needed least.

A block that is safe to take is taken alone only if meanwhile no more is in use than was before on the way to its set,
or than a threshold T somewhat below the bound. The least peak Q is then found as it is, unless it is below T: an order
through a set that needs Q still exists behind such a step. So an order found above T is the best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.graph.order_search import Walk, members

_WORD_BITS = 64
_THRESHOLD = 0.9  # of the bound; wirings of 32 nodes end at 0.92 to 0.97 of what the depth-first search found before


@dataclass(frozen=True)
class _Read:
    """An operand of a block's first op, see `Walk`; masks as words."""

    others: list[np.uint64]
    wanted: list[np.uint64]
    size: int
    in_place: bool


@dataclass(frozen=True)
class _Layer:
    """How the sets of one layer were reached."""

    parents: np.ndarray  # rows of the layer before
    entries: np.ndarray


class Sweep:
    """A search in one direction, one layer at a time; looks like a `Search` from outside."""

    def __init__(self, walk: Walk, live: float, bound: float) -> None:
        self.walk, self.bound = walk, bound
        self.next_bound = float("inf")
        self.states = 1
        self.found: tuple[int, ...] | None = None
        self.is_best = False  # whether no order needs less than the one found
        self._threshold = int(_THRESHOLD * bound)
        self._entries = sorted(walk.blocks)
        self._bit_of = {op: bit for bit, entry in enumerate(self._entries) for op in walk.blocks[entry]}
        self._words = -(-len(self._entries) // _WORD_BITS)
        self._requires = [self._as_words(walk.requires[entry]) for entry in self._entries]
        self._reads = [
            [_Read(self._as_words(o), self._as_words(w), size, bool(fits)) for o, w, size, fits in walk.costs[entry][4]]
            for entry in self._entries
        ]
        self._taken = [np.zeros(1, np.uint64) for _ in range(self._words)]
        self._live = np.array([live], np.int64)
        self._peak = np.zeros(1, np.int64)
        self._layers: list[_Layer] = []

    def advance(self, _most_states: int) -> bool:
        """One more layer; True when the search is over."""
        moves = self._moves()
        if not moves:
            return True
        rows, entries, live, peak = (np.concatenate(column) for column in zip(*moves, strict=True))
        taken = [word[rows] for word in self._taken]
        for number in range(self._words):
            inside = entries // _WORD_BITS == number
            bits = np.left_shift(np.uint64(1), (entries % _WORD_BITS).astype(np.uint64))
            taken[number] = np.where(inside, taken[number] | bits, taken[number])
        order = np.lexsort((peak, *taken))
        is_new = np.ones(len(order), bool)
        is_new[1:] = np.logical_or.reduce([word[order][1:] != word[order][:-1] for word in taken])
        kept = order[is_new]
        self._taken = [word[kept] for word in taken]
        self._live, self._peak = live[kept], peak[kept]
        self._layers.append(_Layer(rows[kept], entries[kept]))
        self.states += len(kept)
        if len(self._layers) == len(self._entries):
            self.found = self._order()
            self.is_best = int(self._peak[0]) > self._threshold
            return True
        return False

    def _moves(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, blocks, and what is then alive and was in use; where one block is safe to take, it alone."""
        committed = np.zeros(len(self._live), bool)
        safe, free = [], []
        for number in range(len(self._entries)):
            rows = np.flatnonzero(self._is_ready(number) & ~committed)
            if len(rows) == 0:
                continue
            change, used = self._step(number, rows)
            live = self._live[rows]
            peak = live + used
            fits = peak < self.bound
            is_safe = fits & (change <= 0) & (peak <= np.maximum(self._peak[rows], self._threshold))
            if not fits.all():
                self.next_bound = min(self.next_bound, int(peak[~fits].min()))
            for chosen, found in ((is_safe, safe), (fits & ~is_safe, free)):
                picked = rows[chosen]
                highest = np.maximum(self._peak[picked], peak[chosen])
                found.append((picked, np.full(len(picked), number), live[chosen] + change[chosen], highest))
            committed[safe[-1][0]] = True
        free = [tuple(column[~committed[move[0]]] for column in move) for move in free]
        return [move for move in (*safe, *free) if len(move[0])]

    def _is_ready(self, number: int) -> np.ndarray:
        word, bit = divmod(number, _WORD_BITS)
        ready = self._taken[word] & np.uint64(1 << bit) == 0
        for taken, required in zip(self._taken, self._requires[number], strict=True):
            if required:
                ready &= taken & required == required
        return ready

    def _step(self, number: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `Walk.step`, for many sets."""
        full, stays, hill, rise, _ = self.walk.costs[self._entries[number]]
        sets = [word[rows] for word in self._taken]
        freed = np.zeros(len(rows), np.int64)
        made = np.full(len(rows), full, np.int64)
        for read in self._reads[number]:
            dies = np.ones(len(rows), bool)
            for taken, others, wanted in zip(sets, read.others, read.wanted, strict=True):
                if others:
                    dies &= taken & others == wanted
            freed[dies] += read.size
            if read.in_place:
                made[dies] = 0
        if self.walk.forwards:
            middle = stays - freed
            return middle + rise, np.maximum(made, middle + hill)
        change = freed - stays - rise
        return change, np.maximum(change + made, hill - rise)

    def _as_words(self, ops: int) -> list[np.uint64]:
        mask = sum({1 << self._bit_of[op] for op in members(ops)})
        word = (1 << _WORD_BITS) - 1
        return [np.uint64(mask >> _WORD_BITS * number & word) for number in range(self._words)]

    def _order(self) -> tuple[int, ...]:
        row, ops = 0, []
        for layer in reversed(self._layers):
            ops += reversed(self.walk.blocks[self._entries[layer.entries[row]]])
            row = layer.parents[row]
        return tuple(reversed(ops)) if self.walk.forwards else tuple(ops)
