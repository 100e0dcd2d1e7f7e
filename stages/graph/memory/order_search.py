"""Is there an order of some ops in which less than a given number of bytes is in use at any time? Exactly.

What is alive, f(S), depends only on the set S of ops that have run, so an order is a path through the downsets of the
graph (Liberis & Lane 2019), taken from the front (S grows from nothing) or from the back (S shrinks from everything).
f is submodular: what op v adds, f(S + v) - f(S), is its results less the operands it is the last to need, and the
latter only become more as S grows.

Commitment. Let X be a set that can be reached from S within the bound, with f(X) <= f(Y) for all downsets Y between S
and X (S itself among them). Then some good order goes through X, if there is one at all: take any that goes through S
and move the ops of X to the front. Each later set T becomes T + X, and f(T + X) <= f(T) + f(X) - f(T & X) <= f(T); an
op that worked in place still does, its operand having fewer other readers left. The same holds from the back, with T
& X for T. There an op u may find more readers of the operand c it replaced, but then f less c where only u still
needs it, which is submodular too and equals f on sets with u, shows that it needs no more than before.

The search looks for such an X one op ahead, then along chains in which every op waits for the one before (their only
subsets are their beginnings, so that the first with f <= f(S) will do), and follows it alone. Everything else is
depth first, no set twice. One direction is often ten times faster than the other, and nobody knows which: both take
turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from stages.graph.memory.order_pieces import Piece, members

_CHAIN_BLOCKS = 8  # how far ahead a commitment is sought
_FEW_MOVES = 16  # a set with more of them counts as several; networks and wirings of 32 nodes have up to 13
_TURN_STATES = 128  # how long one direction searches before the other has its turn
_HANDICAP = 4  # how much less is asked of the direction that was slower before


@dataclass(frozen=True)
class Probe:
    """What a search for an order below `bound` found."""

    order: tuple[int, ...] | None
    next_bound: float  # without an order: no order needs less than this
    is_best: bool  # no order needs less than the one found
    states: int
    finished: int | None  # the search that came to an end


Move = tuple[float, float, int]  # bytes alive on the other side and in use meanwhile, above those alive now; block


class Walk:
    """One direction's view of a piece, for given sizes: blocks of ops, each known by the op at which it is entered."""

    def __init__(self, piece: Piece, sizes: Sequence[float], *, forwards: bool) -> None:
        self.forwards = forwards
        self.every_op = piece.every_op
        self.requires = [op.before if forwards else op.after for op in piece.ops]
        self.first = sum(1 << v for v, mask in enumerate(self.requires) if mask == 0)
        self.blocks: dict[int, tuple[int, ...]] = {}  # in the order in which this direction takes them
        self.masks: dict[int, int] = {}
        self.rivals: dict[int, int] = {}  # the blocks whose cost changes by this one: they read the same buffers
        self.unlocks: dict[int, tuple[int, ...]] = {}
        self.costs: dict[int, tuple[float, float, float, float, list[tuple[int, int, float, float]]]] = {}
        blocks = _blocks(piece, sizes)
        entry_of = {block[0]: block[0] if forwards else block[-1] for block in blocks}  # by the head, which reads
        for block in blocks:
            head, tail = piece.ops[block[0]], piece.ops[block[-1]]
            entry = entry_of[block[0]]
            self.blocks[entry] = block if forwards else tuple(reversed(block))
            self.masks[entry] = sum(1 << op for op in block)
            self.unlocks[entry] = members(tail.after if forwards else head.before)
            self.rivals[entry] = sum({1 << entry_of[v] for reader in head.reads for v in members(reader.others)})
            made = sum(sizes[b] for b in head.writes)
            stays = made - sum(sizes[b] for b in head.unread)
            hill, rise = _behind_head(piece, block, sizes)
            reads = [
                (
                    reader.others,
                    reader.others if forwards else 0,  # which of them are taken when the operand dies (or is born)
                    sizes[reader.buffer],
                    made if reader.fits and sizes[reader.buffer] == made else 0,
                )
                for reader in head.reads
            ]
            self.costs[entry] = (made, stays, hill, rise, reads)

    def step(self, taken: int, entry: int) -> Move:
        """What running the block changes."""
        made, stays, hill, rise, reads = self.costs[entry]
        freed: float = 0
        for others, wanted, size, in_place in reads:
            if others & taken == wanted:
                freed += size
                if in_place:
                    made = 0
        if self.forwards:
            middle = stays - freed
            return middle + rise, max(made, middle + hill), entry
        change = freed - stays - rise
        return change, max(change + made, hill - rise), entry


def _blocks(piece: Piece, sizes: Sequence[float]) -> list[tuple[int, ...]]:
    """Chains of ops that some best order runs without a break.

    Let w alone read what u writes (m bytes), and nothing else. w writes c bytes. u may free up to x bytes.
    - If m >= x and x <= c, then u can wait until just before w: meanwhile no more is alive, and when it runs, no more
      is in use than when w does. (Nor does an op that would write over u's operand suffer: that is no larger than m.)
    - If c < m, and u frees at least c bytes for certain, then w can follow at once: it leaves less alive, and no more
      is in use than when u ran. A u that works in place has no m in use beside its operands: it must free m + c.
    The first moves u, the second w. No op is asked to do both: behind the second, m of the next pair is below its x.
    """
    follower: dict[int, int] = {}
    for u, op in enumerate(piece.ops):
        w = op.only_follower
        if w is None:
            continue
        middle = sizes[op.writes[0]]
        after = piece.ops[w]
        made = sum(sizes[b] for b in after.writes)
        if any(reader.fits and sizes[reader.buffer] == made for reader in after.reads):
            made = 0
        most = sum(sizes[reader.buffer] for reader in op.reads)
        surely = sum(sizes[reader.buffer] for reader in op.reads if reader.others == 0)
        stays = sum(sizes[b] for b in after.writes)
        beside = middle if any(reader.fits and sizes[reader.buffer] == middle for reader in op.reads) else 0
        if (middle >= most and most <= made) or (stays < middle and beside + made <= surely):
            follower[u] = w
    inner = set(follower.values())
    blocks = []
    for op in range(len(piece.ops)):
        if op not in inner:
            block = [op]
            while block[-1] in follower:
                block.append(follower[block[-1]])
            blocks.append(tuple(block))
    return blocks


def _behind_head(piece: Piece, block: tuple[int, ...], sizes: Sequence[float]) -> tuple[float, float]:
    """For the ops behind a block's first: most in use, and alive at the end, above what is alive behind the first."""
    hill: float = 0
    rise: float = 0
    for op in (piece.ops[number] for number in block[1:]):
        made = sum(sizes[b] for b in op.writes)
        in_place = any(reader.fits and sizes[reader.buffer] == made for reader in op.reads)
        hill = max(hill, rise + (0 if in_place else made))
        rise += made - sum(sizes[b] for b in op.unread) - sum(sizes[reader.buffer] for reader in op.reads)
    return hill, rise


class Search:
    """A depth-first search in one direction that can be interrupted."""

    is_best = False  # it ends with the first order below its bound
    is_partial = False

    def __init__(self, walk: Walk, live: float, bound: float) -> None:
        self.walk, self.bound = walk, bound
        self.next_bound = float("inf")
        self.states = 0
        self.found: tuple[int, ...] | None = None
        # Sets with what is alive then and the moves; with an entry, the moves are those from before it was taken: wide
        # graphs leave most sets on the stack, and a list of moves for each would fill the memory.
        first = [walk.step(0, entry) for entry in members(walk.first)]
        self._stack: list[tuple[int, float, list[Move], int | None]] = [(0, live, first, None)]
        self._came_from: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}

    def advance(self, most_states: int) -> bool:
        """Look at that many more sets; True when the search is over."""
        walk, stack, came_from = self.walk, self._stack, self._came_from
        enough = self.states + most_states
        while self.states < enough:
            if not stack:
                return True
            taken, live, ready, last = stack.pop()
            if taken == walk.every_op:
                self.states += 1
                self.found = self._order()
                return True
            if last is not None:
                ready = self._ready_behind(taken, ready, last)
            self.states += 1 + len(ready) // _FEW_MOVES
            room = self.bound - live
            moves = []
            for move in ready:
                if move[1] >= room:
                    self.next_bound = min(self.next_bound, live + move[1])
                elif move[0] <= 0:
                    moves = [move]
                    break
                else:
                    moves.append(move)
            else:
                chain = self._chain(taken, room, moves)
                if chain is not None:
                    change, entries = chain
                    behind = taken
                    for entry in entries:
                        behind |= walk.masks[entry]
                        ready = self._ready_behind(behind, ready, entry)
                    # Only its end counts as seen: its inner sets may be reached by other ways, and matter then.
                    if behind not in came_from:
                        came_from[behind] = (taken, entries)
                        stack.append((behind, live + change, ready, None))
                    continue
                moves.sort(reverse=True)
            for change, _, entry in moves:
                behind = taken | walk.masks[entry]
                if behind not in came_from:
                    came_from[behind] = (taken, (entry,))
                    stack.append((behind, live + change, ready, entry))
        return False

    def _ready_behind(self, behind: int, ready: list[Move], entry: int) -> list[Move]:
        """The moves that are left, and those that `entry` makes possible, once the ops in `behind` are taken."""
        walk = self.walk
        rivals = walk.rivals[entry]
        left = [walk.step(behind, move[2]) if rivals >> move[2] & 1 else move for move in ready if move[2] != entry]
        for other in walk.unlocks[entry]:
            if walk.requires[other] & ~behind == 0:
                left.append(walk.step(behind, other))
        return left

    def _chain(self, taken: int, room: float, moves: list[Move]) -> tuple[float, tuple[int, ...]] | None:
        """The first chain of blocks, each waiting for the one before, behind which no more is alive than now."""
        walk = self.walk
        for start, _, first in moves:
            trail = [(taken | walk.masks[first], start, (first,))]
            while trail:
                done, now, entries = trail.pop()
                for entry in walk.unlocks[entries[-1]]:
                    if walk.requires[entry] & ~done == 0:
                        change, used, _ = walk.step(done, entry)
                        if now + used < room:
                            longer = (*entries, entry)
                            if now + change <= 0:
                                return now + change, longer
                            if len(longer) < _CHAIN_BLOCKS:
                                trail.append((done | walk.masks[entry], now + change, longer))
        return None

    def _order(self) -> tuple[int, ...]:
        taken, entries = self.walk.every_op, []
        while taken:
            taken, last = self._came_from[taken]
            entries += reversed(last)
        order = tuple(op for entry in reversed(entries) for op in self.walk.blocks[entry])
        return order if self.walk.forwards else tuple(reversed(order))


class Stoppable(Protocol):
    """A search that is led from outside."""

    bound: float
    next_bound: float
    states: int
    found: tuple[int, ...] | None
    is_best: bool
    is_partial: bool  # it left sets out: that it found no order means nothing

    def advance(self, most_states: int) -> bool: ...


def probe(searches: Sequence[Stoppable], favourite: int | None, most_states: int) -> Probe:
    """Advance whichever search has done less until one is over: an order below their bound, or none."""
    weights = [_HANDICAP if favourite not in (None, number) else 1 for number in range(len(searches))]
    going = list(range(len(searches)))
    states = 0
    while going and states < most_states:
        number = min(going, key=lambda each: searches[each].states * weights[each])
        over = searches[number]
        is_over = over.advance(_TURN_STATES)
        states = sum(each.states for each in searches)
        if is_over and over.is_partial and over.found is None:
            going.remove(number)
        elif is_over:
            return Probe(over.found, over.next_bound, over.is_best, states, number)
    return Probe(None, searches[0].bound, False, states, None)
