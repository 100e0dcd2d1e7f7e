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
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, without pattern
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
        own = [self._words_of(1 << bit) for bit in range(len(self._entries))]
        self._own = np.array(own, np.uint64)
        self._requires = [self._as_words(walk.requires[entry]) for entry in self._entries]
        # A block is ready where of itself and what it requires all of the latter is there, and only that.
        self._looked_at = [
            [mine | theirs for mine, theirs in zip(*words, strict=True)]
            for words in zip(own, self._requires, strict=True)
        ]
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
        taken = [word[rows] | self._own[entries, number] for number, word in enumerate(self._taken)]
        order = np.argsort(self._sort_keys(taken, peak), kind="stable")
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

    def _sort_keys(self, taken: list[np.ndarray], peak: np.ndarray) -> np.ndarray:
        """Equal sets side by side, the least peak first: the upper bits of a hash of the set, then the peak.

        One key is sorted faster than several. Should two sets have the same hash, some set may be kept twice,
        which costs time only.
        """
        mixed = np.zeros(len(peak), np.uint64)
        for word in taken:
            mixed = (mixed ^ word) * _MIXER
            mixed ^= mixed >> np.uint64(32)
        mixed *= _MIXER
        bits = np.uint64(int(self.bound).bit_length())
        return (mixed >> bits << bits) | peak.astype(np.uint64)

    def _moves(self) -> list[list[np.ndarray]]:
        """Rows, blocks, and what is then alive and was in use; where one block is safe to take, it alone."""
        is_open = np.ones(len(self._live), bool)
        safe, free = [], []
        for number in range(len(self._entries)):
            rows = np.flatnonzero(self._is_ready(number) & is_open)
            if len(rows) == 0:
                continue
            change, used = self._step(number, rows)
            live, before = self._live[rows], self._peak[rows]
            peak = live + used
            fits = peak < self.bound
            is_safe = fits & (change <= 0) & (peak <= np.maximum(before, self._threshold))
            if not fits.all():
                self.next_bound = min(self.next_bound, int(peak[~fits].min()))
            move = rows, np.full(len(rows), number, np.int32), live + change, np.maximum(before, peak)
            safe.append([column[is_safe] for column in move])
            free.append([column[fits & ~is_safe] for column in move])
            is_open[safe[-1][0]] = False
        for move in free:
            is_kept = is_open[move[0]]
            move[:] = [column[is_kept] for column in move]
        return [move for move in (*safe, *free) if len(move[0])]

    def _is_ready(self, number: int) -> np.ndarray:
        ready = np.ones(len(self._live), bool)
        words = zip(self._taken, self._looked_at[number], self._requires[number], strict=True)
        for taken, looked_at, required in words:
            if looked_at:
                ready &= taken & looked_at == required
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
        return self._words_of(sum({1 << self._bit_of[op] for op in members(ops)}))

    def _words_of(self, mask: int) -> list[np.uint64]:
        word = (1 << _WORD_BITS) - 1
        return [np.uint64(mask >> _WORD_BITS * number & word) for number in range(self._words)]

    def _order(self) -> tuple[int, ...]:
        row, ops = 0, []
        for layer in reversed(self._layers):
            ops += reversed(self.walk.blocks[self._entries[layer.entries[row]]])
            row = layer.parents[row]
        return tuple(reversed(ops)) if self.walk.forwards else tuple(ops)
