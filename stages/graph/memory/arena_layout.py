"""Where each activation lies in the arena, for the order in which the graph's ops stand.

Activations that share memory (see `buffers`) form one place: a RESHAPE's output lies where its input lies, and an op
that works in place writes over an operand. A place is alive from the op that first writes it (inputs: from the start)
to the last op that reads it (outputs: to the end). Offsets and sizes are multiples of 16 bytes, as TensorFlow Lite
Micro wants them.

Finding the lowest arena is two-dimensional packing with fixed times (NP-hard). Until the lower bound (the largest sum
of places alive at once) is met: greedy orders; CP-SAT at the bound itself (see `packing_solver`), then a short search
of our own there; rounds in which what sticks out at the top is put earlier; CP-SAT once more, for the lowest. Our
search need only place them in order of rising offset, each directly on top of those already there that live at the
same time: sinking the places of any packing, lowest first, gives one of that form which is no higher. It ends after a
fixed number of nodes, so that the result depends on the graph alone.

Where ops could write over either of two operands, all take the first or all take the last, whichever packs lower.
Meeting the lower bound proves a layout whatever the choice; a search that came to an end proves it for the choice
that was kept.

Overlap. A kernel that reads its input from front to back may write its output behind its own back. With `Distances`
an operand that dies in an op need only begin so many bytes behind the op's output, or end before it. Such an operand
ends half a step before the output begins, so that everything else sees two places that never meet; the distance is
the one thing left to keep.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stages.graph.graph import Graph
from stages.graph.memory.buffers import Buffers, activation_bytes, buffers_of
from stages.graph.memory.packing_solver import AT_BOUND_EFFORT, SHORT_EFFORT, lowest_packing, packing_at

ALIGNMENT = 16
_MOST_PLACES = 500  # the search recurses once for each place
_FLOOR_NODES = 2_000  # a tenth of a second; CP-SAT finds what needs more
_ROUNDS = 150  # of improvement: fragmented packings gain in the first hundred, if at all
_MOST_PAIRS = 10_000_000  # of places that meet, over all rounds: some three seconds; wirings of 32 nodes stay far below


# For (op, operand): by how many bytes the operand must begin behind the op's output at least, if this is its last use;
# a negative number: it may begin before it. What is not listed must not overlap.
Distances = Mapping[tuple[int, int], int]

# (other place, x, y): a place must not begin within x bytes before the other's offset or within y behind it.
Apart = tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """Memory that one or several activations use, one after the other."""

    size_bytes: int  # a multiple of the alignment
    first: int  # op during which it is first alive
    last: int  # op during which it is last alive
    tensors: tuple[int, ...]
    is_late: bool = False  # written while the operands that die may still be read: it begins half a step later
    is_early: bool = False  # an operand that dies so: it ends half a step earlier
    # Places that it may be written over: (place, distance), that must begin `distance` bytes behind this one, or end
    # before it. A late place that follows none has operands that are read before anything is written.
    follows: tuple[tuple[int, int], ...] = ()

    @property
    def begin(self) -> int:
        """In half steps."""
        return 2 * self.first + self.is_late

    @property
    def end(self) -> int:
        """In half steps, the last one included."""
        return 2 * self.last + (not self.is_early)

    def meets(self, other: Place) -> bool:
        return self.begin <= other.end and other.begin <= self.end


@dataclass(frozen=True)
class ArenaLayout:
    """The arena of one inference."""

    offsets: tuple[int, ...]  # per tensor of the graph; -1 for constants and tensors that no op touches
    arena_bytes: int
    lower_bound_bytes: int  # no layout of this order can be smaller
    proven_optimal: bool
    live_bytes: tuple[int, ...]  # per op: the places that are alive while it runs


def arena_layout(graph: Graph, distances: Distances | None = None) -> ArenaLayout:
    """Offsets for the ops in the order in which they stand in `graph`; with `distances`, inputs and outputs overlap."""
    candidates = _candidates(graph)
    if distances:
        overlapping = arena_places(graph, distances=distances)
        live = live_bytes(overlapping, len(graph.ops))
        places, found, proven = _packed([overlapping], max(live))
        # Without overlap it is a layout, too; packing takes long, so only where one could be lower.
        lower = [each for each in candidates if max(live_bytes(each, len(graph.ops))) < _height(places, found)]
        if lower and _height(places, found) > max(live):
            plain, offsets, _ = _packed(lower, max(live))
            if _height(plain, offsets) < _height(places, found):
                places, found, proven = plain, offsets, False
    else:
        live = live_bytes(candidates[0], len(graph.ops))
        places, found, proven = _packed(candidates, max(live))
    offsets = [-1] * len(graph.tensors)
    for place, offset in zip(places, found, strict=True):
        for tensor in place.tensors:
            offsets[tensor] = offset
    return ArenaLayout(tuple(offsets), _height(places, found), max(live), proven, tuple(live))


def aligned(size_bytes: int) -> int:
    """To the next multiple of the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def lower_bound_bytes(graph: Graph) -> int:
    """No layout of this order can be smaller."""
    return max(live_bytes(arena_places(graph), len(graph.ops)))


def fits_in(graph: Graph, arena_bytes: int) -> bool:
    """Whether a layout no larger than that is found within a tenth of a second; `arena_layout` finds it, too."""
    candidates = _candidates(graph)
    if any(_height(places, _greedy(places)) <= arena_bytes for places in candidates):
        return True
    if len(candidates[0]) > _MOST_PLACES:
        return False
    return any(packing_at(places, arena_bytes, ALIGNMENT, SHORT_EFFORT) is not None for places in candidates)


def _candidates(graph: Graph) -> list[list[Place]]:
    """The places with ops in place on their first operand, and on their last where that differs."""
    first, second = arena_places(graph), arena_places(graph, prefers_last=True)
    return [first] if [p.tensors for p in first] == [p.tensors for p in second] else [first, second]


def live_bytes(places: Sequence[Place], ops: int) -> list[int]:
    """Bytes that each op needs at least: what is alive, less what its output may share with operands that die."""
    live = [sum(p.size_bytes for p in places if p.first <= op <= p.last) for op in range(ops)]
    for place in places:
        if place.is_late:
            dying = [p for p in places if p.is_early and p.last == place.first]
            apart = place.size_bytes + sum(p.size_bytes for p in dying)
            # The output and an operand behind it cover everything between their ends; operands are disjoint.
            shared = [distance + places[index].size_bytes for index, distance in place.follows]
            live[place.first] -= apart - max(place.size_bytes, sum(p.size_bytes for p in dying), *shared)
    return live


def _packed(candidates: list[list[Place]], floor: int) -> tuple[list[Place], list[int], bool]:
    """The lowest packing of one of the candidates, each means tried until the lower bound is met."""
    packed = [(places, _greedy(places)) for places in candidates]
    exact = (_soon_at_floor, _solved_at_floor, _at_floor) if len(candidates[0]) <= _MOST_PLACES else ()
    places, found = min(packed, key=lambda pair: _height(*pair))
    if _height(places, found) == floor:
        return places, found, True
    for improve in (*exact, _improved):
        for number, (places, offsets) in enumerate(packed):
            found = improve(places, offsets, floor)
            if _height(places, found) == floor:
                return places, found, True
            packed[number] = (places, found)
    packed.sort(key=lambda pair: _height(*pair))
    places, found = packed[0]
    if len(places) > _MOST_PLACES:
        return places, found, False
    solved = []
    for places, found in packed:
        offsets, proven = lowest_packing(places, _height(places, found), floor, ALIGNMENT) or (found, False)
        solved.append((places, offsets, proven))
        if _height(places, offsets) == floor:
            break
    return min(solved, key=lambda each: _height(each[0], each[1]))


def arena_places(graph: Graph, *, prefers_last: bool = False, distances: Distances | None = None) -> list[Place]:
    """The places that the graph's activations need, in the order in which they are first written.

    `prefers_last`: an op that may write over several operands takes the last of them, not the first.
    """
    buffers = buffers_of(graph, prefers_last=prefers_last)
    sizes = buffers.sizes([activation_bytes(tensor) for tensor in graph.tensors])
    end = len(graph.ops) - 1
    place_of: dict[int, int] = {}  # buffer -> place
    places: list[Place] = []

    def occupy(buffer: int, now: int, replaced: int | None) -> None:
        last = end if buffer in buffers.kept else max(now, buffers.readers[buffer].bit_length() - 1)
        if replaced is None:
            place_of[buffer] = len(places)
            places.append(Place(aligned(int(sizes[buffer])), now, last, buffers.tensors[buffer]))
            return
        index = place_of[buffer] = place_of[replaced]
        places[index] = replace(places[index], last=last, tensors=places[index].tensors + buffers.tensors[buffer])

    for buffer, maker in enumerate(buffers.makers):
        if maker == 0:
            occupy(buffer, 0, None)
    for now, op in enumerate(buffers.ops):
        known = dict(_dying(graph, buffers, now, distances or {}))
        replaced = None if known else buffers.replaced(now, (1 << now) - 1, sizes)
        for buffer in op.writes:
            occupy(buffer, now, replaced)
        if known:
            _overlap(places, place_of[op.writes[0]], {place_of[b]: distance for b, distance in known.items()})
    return places


def _dying(graph: Graph, buffers: Buffers, now: int, distances: Distances) -> Iterator[tuple[int, int]]:
    """The buffers of which op `now` is the last to need anything, with how far they must begin behind its output.

    That is the first of its outputs; further ones overlap nothing.
    """
    if not buffers.ops[now].writes:
        return
    for tensor in graph.activations_of(graph.ops[now]):
        buffer = next(b for b in buffers.ops[now].reads if tensor in buffers.tensors[b])
        is_last = buffers.readers[buffer].bit_length() - 1 == now and buffer not in buffers.kept
        if is_last and (now, tensor) in distances:
            yield buffer, distances[now, tensor]


def _overlap(places: list[Place], output: int, distances: Mapping[int, int]) -> None:
    follows = []
    for operand, distance in distances.items():
        places[operand] = replace(places[operand], is_early=True)
        if distance > -places[operand].size_bytes:
            # To begin before the output, but not wholly, would gain next to nothing; 0 keeps the search simple.
            follows.append((operand, aligned(max(0, distance))))
    places[output] = replace(places[output], is_late=True, follows=tuple(follows))


def pack(places: Sequence[Place], chosen: Sequence[int]) -> tuple[list[int], int]:
    """Offsets of some of the places, and their height, as if the others were elsewhere; quickly, not at all costs."""
    number = {index: position for position, index in enumerate(chosen)}
    some = [
        replace(places[index], follows=tuple((number[o], d) for o, d in places[index].follows if o in number))
        for index in chosen
    ]
    if not some:
        return [], 0
    floor = max(sum(p.size_bytes for p in some if p.begin <= moment <= p.end) for moment in {p.begin for p in some})
    offsets = _greedy(some)
    for improve in (_at_floor, _improved) if len(some) <= _MOST_PLACES else (_improved,):
        if _height(some, offsets) > floor:
            offsets = improve(some, offsets, floor)
    return offsets, _height(some, offsets)


def _height(places: Sequence[Place], offsets: Sequence[int]) -> int:
    return max(offset + place.size_bytes for place, offset in zip(places, offsets, strict=True))


def _greedy(places: Sequence[Place]) -> list[int]:
    """The best of several orders, each place in the lowest gap that is free during its life."""
    apart = _apart(places)
    packings = [_first_fit(apart, sorted(range(len(places)), key=key)) for key in _sort_keys(places)]
    return min(packings, key=lambda offsets: _height(places, offsets))


def _sort_keys(places: Sequence[Place]):
    def length(index: int) -> int:
        return places[index].last - places[index].first + 1

    return (
        lambda i: (-places[i].size_bytes, -length(i), i),
        lambda i: (-places[i].size_bytes * length(i), i),
        lambda i: (-length(i), -places[i].size_bytes, i),
        lambda i: (places[i].first, -places[i].size_bytes, i),
        lambda i: (-places[i].last, -places[i].size_bytes, i),
    )


def _at_floor(places: Sequence[Place], start: list[int], floor: int) -> list[int]:
    """A packing at the lower bound itself if a short search finds one: with no room to lose it has few choices."""
    search = _Search(places, start, floor, _FLOOR_NODES)
    search.height = floor + 1
    return search.run()


def _soon_at_floor(places: Sequence[Place], start: list[int], floor: int) -> list[int]:
    """Short, so that both candidates have had a try before one of them takes long."""
    return packing_at(places, floor, ALIGNMENT, SHORT_EFFORT) or start


def _solved_at_floor(places: Sequence[Place], start: list[int], floor: int) -> list[int]:
    return packing_at(places, floor, ALIGNMENT, AT_BOUND_EFFORT) or start


def _improved(places: Sequence[Place], start: list[int], floor: int) -> list[int]:
    """Put what sticks out at the top earlier in the order, somewhere among those it meets, and pack again."""
    best, order = start, sorted(range(len(places)), key=lambda i: (start[i], i))
    offsets, apart, draw = start, _apart(places), random.Random(0)
    for _ in range(min(_ROUNDS, _MOST_PAIRS // (1 + sum(map(len, apart))))):
        height = _height(places, offsets)
        top = [i for i in order if offsets[i] + places[i].size_bytes == height]
        moved = draw.choice(top)
        position = order.index(moved)
        order.remove(moved)
        order.insert(draw.randrange(position) if position else draw.randrange(len(order) + 1), moved)
        offsets = _first_fit(apart, order)
        if _height(places, offsets) < _height(places, best):
            best = offsets
        if _height(places, best) == floor:
            break
    return best


def _first_fit(apart: Sequence[Sequence[Apart]], order: Sequence[int]) -> list[int]:
    offsets = [-1] * len(apart)
    for index in order:
        there = ((offsets[other], before, behind) for other, before, behind in apart[index] if offsets[other] >= 0)
        offset = 0
        for start, end in sorted((at - before, at + behind) for at, before, behind in there):
            if offset <= start:
                break
            offset = max(offset, end)
        offsets[index] = offset
    return offsets


def _apart(places: Sequence[Place]) -> list[list[Apart]]:
    """What each place has to keep clear of."""
    apart: list[list[Apart]] = [[] for _ in places]
    for index, place in enumerate(places):
        for other in range(index):
            if place.meets(places[other]):
                apart[index].append((other, place.size_bytes, places[other].size_bytes))
                apart[other].append((index, places[other].size_bytes, place.size_bytes))
        for other, distance in place.follows:
            apart[index].append((other, distance, places[other].size_bytes))
            apart[other].append((index, places[other].size_bytes, distance))
    return apart


class _Search:
    """Branch and bound over the order of the places by offset."""

    def __init__(self, places: Sequence[Place], start: list[int], floor: int, most_nodes: int) -> None:
        self.places = places
        self.best, self.height, self.floor = start, _height(places, start), floor
        self.nodes_left = most_nodes
        moments = sorted({place.begin for place in places})  # what is alive only changes for the worse there
        self.alive = [[p for p, place in enumerate(places) if place.begin <= t <= place.end] for t in moments]
        self.moments_of = [[m for m, alive in enumerate(self.alive) if p in alive] for p in range(len(places))]
        # By how much each has to lie above those already there: the whole operand, or the output up to the distance.
        self.apart: list[list[tuple[int, int]]] = [[] for _ in places]
        for output, place in enumerate(places):
            for operand, distance in place.follows:
                self.apart[output].append((operand, places[operand].size_bytes))
                self.apart[operand].append((output, distance))
        self.seen: set[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = set()

    def run(self) -> list[int]:
        size = [place.size_bytes for place in self.places]
        waiting = [sum(size[p] for p in alive) for alive in self.alive]
        self._place([-1] * len(size), [0] * len(self.alive), waiting, (0, -len(size)), 0)
        return self.best

    def _place(self, offsets: list[int], top: list[int], waiting: list[int], last: tuple[int, int], done: int) -> None:
        """Extend a packing: `top` and `waiting` bytes per moment, `last` (offset, -place), `done` a bit mask.

        Of equal offsets the later place comes first: an output may lie where its operand does, and is the lower then.
        """
        if done == (1 << len(offsets)) - 1:
            height = max(top)
            if height < self.height:
                self.best, self.height = list(offsets), height
            return
        key = (done, last[0], tuple(top), self._pending(offsets))
        if key in self.seen or self.nodes_left <= 0 or self.height == self.floor:
            return
        self.seen.add(key)
        self.nodes_left -= 1
        # Whatever still waits lies at or above both the last offset and what is already there.
        if any(max(t, last[0]) + w >= self.height for t, w in zip(top, waiting, strict=True) if w):
            return
        moves = []
        for p in range(len(offsets)):
            if offsets[p] < 0:
                offset = max(top[m] for m in self.moments_of[p])
                for other, distance in self.apart[p]:
                    offset = max(offset, offsets[other] + distance if offsets[other] >= 0 else 0)
                if (offset, -p) > last:
                    moves.append((offset, -self.places[p].size_bytes, p))
        for offset, _, p in sorted(moves):
            size = self.places[p].size_bytes
            new_top, new_waiting = list(top), list(waiting)
            for m in self.moments_of[p]:
                new_top[m], new_waiting[m] = offset + size, waiting[m] - size
            offsets[p] = offset
            self._place(offsets, new_top, new_waiting, (offset, -p), done | 1 << p)
            offsets[p] = -1

    def _pending(self, offsets: list[int]) -> tuple[int, ...]:
        """What the moments do not show: offsets that a place still to come must keep its distance from."""
        return tuple(
            offset if any(offsets[other] < 0 for other, _ in self.apart[p]) else -1
            for p, offset in enumerate(offsets)
            if self.apart[p]
        )
