"""The search of `order_search` layer by layer, all sets with the same number of finished blocks at once, in numpy.

It answers the same question with the same moves (without looking along chains) some ten times faster per set, but has
to see all sets on the way: the means to prove that there is no better order, once the depth-first search has found
none. Of several ways to a set it keeps the one that needed least.

A block that is safe to take is taken alone only if meanwhile no more is in use than was before on the way to its set,
or than a threshold T somewhat below the bound. The least peak Q is then found as it is, unless it is below T: an order
through a set that needs Q still exists behind such a step. So an order found above T is the best.

A layer of a wide graph may have more sets than fit into memory: a sweep gives up on one whose moves take too many
bytes. A `Beam` goes on instead with the few sets of each layer that leave least alive. It proves nothing, but finds
good orders where the others end with the first way down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stages.graph.memory.order_search import Walk, members

_WORD_BITS = 64
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, without pattern
_MOST_BYTES = 128 << 20  # of a layer's moves; while they are sorted, three times as much is in use
_MOVE_BYTES = 48  # of one move and its place in the sorted layer, beside the words of its set
_WORDS_PER_STATE = 14  # a layer with more words among its moves counts as more states: it takes longer
_FEW_WORDS = 4  # with more, in pieces of over 256 blocks, looking at each block that may be ready counts, too
_THRESHOLD = 0.9  # of the bound; wirings of 32 nodes end at 0.92 to 0.97 of what the depth-first search found before


# Words of a set that matter: which word, which of its bits, and how these have to be.
_Test = tuple[tuple[int, np.uint64, np.uint64], ...]


@dataclass(frozen=True)
class _Read:
    """An operand of a block's first op, see `Walk`."""

    dies: _Test
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
        self.is_partial = False  # whether it left sets out, and so proves nothing
        self._threshold = int(_THRESHOLD * bound)
        self._entries = sorted(walk.blocks)
        self._bit_of = {op: bit for bit, entry in enumerate(self._entries) for op in walk.blocks[entry]}
        self._words = -(-len(self._entries) // _WORD_BITS)
        self._own = np.array([self._words_of(1 << bit) for bit in range(len(self._entries))], np.uint64)
        self._requires = [self._bits(walk.requires[entry]) for entry in self._entries]
        # A block is ready where of itself and what it requires all of the latter is there, and only that.
        self._ready = [self._test(1 << bit | required, required) for bit, required in enumerate(self._requires)]
        self._reads = [
            [_Read(self._test(self._bits(o), self._bits(w)), size, bool(fits)) for o, w, size, fits in costs[4]]
            for costs in (walk.costs[entry] for entry in self._entries)
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
        kept = self._worth_keeping(order[is_new], live, peak)
        self._taken = [word[kept] for word in taken]
        self._live, self._peak = live[kept], peak[kept]
        self._layers.append(_Layer(rows[kept], entries[kept]))
        self.states += max(len(kept), len(rows) * self._words // _WORDS_PER_STATE)
        self.states += 2 * len(moves) * max(0, self._words - _FEW_WORDS)
        if len(self._layers) == len(self._entries):
            self.found = self._order()
            self.is_best = not self.is_partial and int(self._peak[0]) > self._threshold
            return True
        return False

    def _worth_keeping(self, rows: np.ndarray, _live: np.ndarray, _peak: np.ndarray) -> np.ndarray:
        return rows

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
        """Rows, blocks, and what is then alive and was in use; where one block is safe to take, it alone.

        None at all if they take too many bytes.
        """
        is_open = np.ones(len(self._live), bool)
        safe, free = [], []
        most_moves = _MOST_BYTES // (_MOVE_BYTES + 8 * self._words)
        for number in self._maybe_ready():
            rows = np.flatnonzero(self._passes(self._ready[number]) & is_open)
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
            most_moves -= len(safe[-1][0]) + len(free[-1][0])
            if most_moves < 0:
                self.is_partial = True
                return []
        for move in free:
            is_kept = is_open[move[0]]
            move[:] = [column[is_kept] for column in move]
        return [move for move in (*safe, *free) if len(move[0])]

    def _maybe_ready(self) -> list[int]:
        """The blocks that are not in all sets and whose requirements are all in some set."""
        somewhere = self._as_mask(np.bitwise_or.reduce(word) for word in self._taken)
        everywhere = self._as_mask(np.bitwise_and.reduce(word) for word in self._taken)
        return [
            number
            for number, required in enumerate(self._requires)
            if required & ~somewhere == 0 and not everywhere >> number & 1
        ]

    def _passes(self, test: _Test, rows: np.ndarray | None = None) -> np.ndarray:
        """Which sets (of those in `rows`) have the bits as wanted."""
        passes = np.ones(len(self._live) if rows is None else len(rows), bool)
        for number, bits, wanted in test:
            word = self._taken[number]
            passes &= (word if rows is None else word[rows]) & bits == wanted
        return passes

    def _step(self, number: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `Walk.step`, for many sets."""
        full, stays, hill, rise, _ = self.walk.costs[self._entries[number]]
        freed = np.zeros(len(rows), np.int64)
        made = np.full(len(rows), full, np.int64)
        for read in self._reads[number]:
            dies = self._passes(read.dies, rows)
            freed[dies] += read.size
            if read.in_place:
                made[dies] = 0
        if self.walk.forwards:
            middle = stays - freed
            return middle + rise, np.maximum(made, middle + hill)
        change = freed - stays - rise
        return change, np.maximum(change + made, hill - rise)

    def _bits(self, ops: int) -> int:
        return sum({1 << self._bit_of[op] for op in members(ops)})

    def _test(self, bits: int, wanted: int) -> _Test:
        words = zip(range(self._words), self._words_of(bits), self._words_of(wanted), strict=True)
        return tuple(word for word in words if word[1])

    def _words_of(self, mask: int) -> list[np.uint64]:
        word = (1 << _WORD_BITS) - 1
        return [np.uint64(mask >> _WORD_BITS * number & word) for number in range(self._words)]

    @staticmethod
    def _as_mask(words: Iterable[np.uint64]) -> int:
        return sum(int(word) << _WORD_BITS * number for number, word in enumerate(words))

    def _order(self) -> tuple[int, ...]:
        row, ops = 0, []
        for layer in reversed(self._layers):
            ops += reversed(self.walk.blocks[self._entries[layer.entries[row]]])
            row = layer.parents[row]
        return tuple(reversed(ops)) if self.walk.forwards else tuple(ops)


class Beam(Sweep):
    """A sweep that goes on with a few sets of each layer."""

    most_words = 8_000  # about so many in the moves from the sets of a layer

    def _worth_keeping(self, rows: np.ndarray, live: np.ndarray, peak: np.ndarray) -> np.ndarray:
        most = max(1, self.most_words * len(self._live) // (len(live) * self._words))
        if len(rows) <= most:
            return rows
        self.is_partial = True
        return rows[np.lexsort((peak[rows], live[rows]))[:most]]


class WideBeam(Beam):
    """A beam that goes on with some more, where a narrow one ends in sets without a way out."""

    most_words = 32_000
