"""Where each activation lies in the arena, for the order in which the graph's ops stand.

Activations that share memory (see `buffers`) form one place: a RESHAPE's output lies where its input lies, and an op
that works in place writes over an operand. A place is alive from the op that first writes it (inputs: from the start)
to the last op that reads it (outputs: to the end). Offsets and sizes are multiples of 16 bytes, as TensorFlow Lite
Micro wants them.

Finding the lowest arena is two-dimensional packing with fixed times (NP-hard). Until the lower bound (the largest sum
of places alive at once) is met: greedy orders; a short search at the bound itself; rounds in which what sticks out at
the top is put earlier; CP-SAT where it is installed (see `packing_solver`), otherwise our exact search. That need
only place them in order of rising offset, each directly on top of those already there that live at the same time:
sinking the places of any packing, lowest first, gives one of that form which is no higher. It ends after a fixed
number of nodes, so that the result depends on the graph alone.

Where ops could write over either of two operands, all take the first or all take the last, whichever packs lower.
Meeting the lower bound proves a layout whatever the choice; a search that came to an end proves it for the choice
that was kept.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stages.graph.buffers import activation_bytes, buffers_of
from stages.graph.graph import Graph
from stages.graph.packing_solver import is_installed, solve_packing

ALIGNMENT = 16
_MOST_NODES = 200_000  # a few seconds; networks of up to some 30 ops need far fewer
_MOST_PLACES = 500  # the search recurses once for each place
_FLOOR_NODES = 10_000
_ROUNDS = 150  # of improvement: fragmented packings gain in the first hundred, if at all


@dataclass(frozen=True)
class Place:
    """Memory that one or several activations use, one after the other."""

    size_bytes: int  # a multiple of the alignment
    first: int  # op during which it is first alive
    last: int  # op during which it is last alive
    tensors: tuple[int, ...]

    def meets(self, other: Place) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class ArenaLayout:
    """The arena of one inference."""

    offsets: tuple[int, ...]  # per tensor of the graph; -1 for constants and tensors that no op touches
    arena_bytes: int
    lower_bound_bytes: int  # no layout of this order can be smaller
    proven_optimal: bool
    live_bytes: tuple[int, ...]  # per op: the places that are alive while it runs


def arena_layout(graph: Graph, most_nodes: int = _MOST_NODES) -> ArenaLayout:
    """Offsets for the ops in the order in which they stand in `graph`."""
    first, second = arena_places(graph), arena_places(graph, prefers_last=True)
    candidates = [first] if [p.tensors for p in first] == [p.tensors for p in second] else [first, second]
    live = [sum(p.size_bytes for p in first if p.first <= op <= p.last) for op in range(len(graph.ops))]
    floor = max(live)
    places, found, proven = _packed(candidates, floor, most_nodes)
    offsets = [-1] * len(graph.tensors)
    for place, offset in zip(places, found, strict=True):
        for tensor in place.tensors:
            offsets[tensor] = offset
    return ArenaLayout(tuple(offsets), _height(places, found), floor, proven, tuple(live))


def _packed(candidates: list[list[Place]], floor: int, most_nodes: int) -> tuple[list[Place], list[int], bool]:
    """The lowest packing of one of the candidates, each means tried until the lower bound is met."""
    packed = [(places, _greedy(places)) for places in candidates]
    means = (_at_floor, _improved) if len(candidates[0]) <= _MOST_PLACES else (_improved,)
    for improve in means:
        places, found = min(packed, key=lambda pair: _height(*pair))
        if _height(places, found) == floor:
            return places, found, True
        packed = [(places, improve(places, offsets, floor, most_nodes)) for places, offsets in packed]
    packed.sort(key=lambda pair: _height(*pair))
    places, found = packed[0]
    if _height(places, found) == floor or len(places) > _MOST_PLACES:
        return places, found, _height(places, found) == floor
    if not is_installed():
        return places, *_Search(places, found, floor, most_nodes).run()
    solved = []
    for places, found in packed:
        offsets, proven = solve_packing(places, _height(places, found), floor, ALIGNMENT) or (found, False)
        solved.append((places, offsets, proven))
        if _height(places, offsets) == floor:
            break
    return min(solved, key=lambda each: _height(each[0], each[1]))


def arena_places(graph: Graph, *, prefers_last: bool = False) -> list[Place]:
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
            size = -(-int(sizes[buffer]) // ALIGNMENT) * ALIGNMENT
            places.append(Place(size, now, last, buffers.tensors[buffer]))
            return
        index = place_of[buffer] = place_of[replaced]
        places[index] = replace(places[index], last=last, tensors=places[index].tensors + buffers.tensors[buffer])

    for buffer, maker in enumerate(buffers.makers):
        if maker == 0:
            occupy(buffer, 0, None)
    for now, op in enumerate(buffers.ops):
        replaced = buffers.replaced(now, (1 << now) - 1, sizes)
        for buffer in op.writes:
            occupy(buffer, now, replaced)
    return places


def _height(places: Sequence[Place], offsets: Sequence[int]) -> int:
    return max(offset + place.size_bytes for place, offset in zip(places, offsets, strict=True))


def _greedy(places: Sequence[Place]) -> list[int]:
    """The best of several orders, each place in the lowest gap that is free during its life."""
    packings = [_first_fit(places, sorted(range(len(places)), key=key)) for key in _sort_keys(places)]
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


def _at_floor(places: Sequence[Place], start: list[int], floor: int, most_nodes: int) -> list[int]:
    """A packing at the lower bound itself if a short search finds one: with no room to lose it has few choices."""
    search = _Search(places, start, floor, min(most_nodes, _FLOOR_NODES))
    search.height = floor + 1
    return search.run()[0]


def _improved(places: Sequence[Place], start: list[int], floor: int, _most_nodes: int) -> list[int]:
    """Put what sticks out at the top earlier in the order, somewhere among those it meets, and pack again."""
    best, order = start, sorted(range(len(places)), key=lambda i: (start[i], i))
    offsets, draw = start, random.Random(0)
    for _ in range(_ROUNDS):
        height = _height(places, offsets)
        top = [i for i in order if offsets[i] + places[i].size_bytes == height]
        moved = draw.choice(top)
        position = order.index(moved)
        order.remove(moved)
        order.insert(draw.randrange(position) if position else draw.randrange(len(order) + 1), moved)
        offsets = _first_fit(places, order)
        if _height(places, offsets) < _height(places, best):
            best = offsets
        if _height(places, best) == floor:
            break
    return best


def _first_fit(places: Sequence[Place], order: Sequence[int]) -> list[int]:
    offsets = [-1] * len(places)
    for index in order:
        place, offset = places[index], 0
        taken = sorted(
            (offsets[other], places[other].size_bytes)
            for other in range(len(places))
            if offsets[other] >= 0 and places[other].meets(place)
        )
        for start, size in taken:
            if offset + place.size_bytes <= start:
                break
            offset = max(offset, start + size)
        offsets[index] = offset
    return offsets


class _Search:
    """Branch and bound over the order of the places by offset."""

    def __init__(self, places: Sequence[Place], start: list[int], floor: int, most_nodes: int) -> None:
        self.places = places
        self.best, self.height, self.floor = start, _height(places, start), floor
        self.nodes_left = most_nodes
        moments = sorted({place.first for place in places})  # what is alive only changes for the worse there
        self.alive = [[p for p, place in enumerate(places) if place.first <= t <= place.last] for t in moments]
        self.moments_of = [[m for m, alive in enumerate(self.alive) if p in alive] for p in range(len(places))]
        self.seen: set[tuple[int, int, tuple[int, ...]]] = set()

    def run(self) -> tuple[list[int], bool]:
        size = [place.size_bytes for place in self.places]
        waiting = [sum(size[p] for p in alive) for alive in self.alive]
        self._place([-1] * len(size), [0] * len(self.alive), waiting, (0, -1), 0)
        return self.best, self.height == self.floor or self.nodes_left > 0

    def _place(self, offsets: list[int], top: list[int], waiting: list[int], last: tuple[int, int], done: int) -> None:
        """Extend a packing: `top` and `waiting` bytes per moment, `last` (offset, place), `done` a bit mask."""
        if done == (1 << len(offsets)) - 1:
            height = max(top)
            if height < self.height:
                self.best, self.height = list(offsets), height
            return
        key = (done, last[0], tuple(top))
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
                if (offset, p) > last:
                    moves.append((offset, -self.places[p].size_bytes, p))
        for offset, _, p in sorted(moves):
            size = self.places[p].size_bytes
            new_top, new_waiting = list(top), list(waiting)
            for m in self.moments_of[p]:
                new_top[m], new_waiting[m] = offset + size, waiting[m] - size
            offsets[p] = offset
            self._place(offsets, new_top, new_waiting, (offset, p), done | 1 << p)
            offsets[p] = -1
