"""Where each activation lies in the arena, for the order in which the graph's ops stand.

Activations that share memory form one place: a RESHAPE's output lies where its input lies, and an ADD writes over an
operand of the same size that nobody reads afterwards. A place is alive from the op that first writes it (inputs:
from the start) to the last op that reads it (outputs: to the end). Offsets and sizes are multiples of 16 bytes,
as TensorFlow Lite Micro wants them.

Finding the lowest arena is two-dimensional packing with fixed times (NP-hard). Three greedy orders come first; if none
meets the lower bound (the largest sum of places alive at once) an exact search follows. It need only place them
in order of rising offset, each directly on top of those already there that live at the same time: sinking the places of
any packing, lowest first, gives one of that form which is no higher. The search ends after a fixed number of nodes, so
that the result depends on the graph alone; `proven_optimal` says whether it came to an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stages.graph.graph import Graph
from stages.graph.op_order import ALIASES, IN_PLACE, activation_bytes

ALIGNMENT = 16
_MOST_NODES = 200_000  # a few seconds; networks of up to some 30 ops need far fewer
_MOST_PLACES = 500  # the search recurses once for each place


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
    places = arena_places(graph)
    live = [
        sum(place.size_bytes for place in places if place.first <= op <= place.last) for op in range(len(graph.ops))
    ]
    floor = max(live)
    found = _greedy(places)
    proven = _height(places, found) == floor
    if not proven and len(places) <= _MOST_PLACES:
        search = _Search(places, found, floor, most_nodes)
        found, proven = search.run()
    offsets = [-1] * len(graph.tensors)
    for place, offset in zip(places, found, strict=True):
        for tensor in place.tensors:
            offsets[tensor] = offset
    return ArenaLayout(tuple(offsets), _height(places, found), floor, proven, tuple(live))


def arena_places(graph: Graph) -> list[Place]:
    """The places that the graph's activations need, in the order in which they are first written."""
    place_of: dict[int, int] = {}
    places: list[Place] = []
    last_use = _last_uses(graph)

    def open_place(tensor: int, now: int) -> None:
        size = -(-activation_bytes(graph.tensors[tensor]) // ALIGNMENT) * ALIGNMENT
        place_of[tensor] = len(places)
        places.append(Place(size, now, max(now, last_use.get(tensor, now)), (tensor,)))

    def join(tensor: int, index: int) -> None:
        place_of[tensor] = index
        joined = (*places[index].tensors, tensor)
        places[index] = replace(places[index], last=max(places[index].last, last_use.get(tensor, 0)), tensors=joined)

    def is_free_after(index: int, now: int, size: int) -> bool:
        held = places[index].tensors
        is_kept = any(tensor in graph.outputs for tensor in held)
        return places[index].last == now and not is_kept and activation_bytes(graph.tensors[held[-1]]) == size

    for tensor in graph.inputs:
        open_place(tensor, 0)
    for now, op in enumerate(graph.ops):
        sources = [place_of[tensor] for tensor in graph.activations_of(op)]
        for tensor in op.outputs:
            size = activation_bytes(graph.tensors[tensor])
            if op.kind in ALIASES and sources:
                join(tensor, sources[0])
                continue
            free = [index for index in sources if op.kind in IN_PLACE and is_free_after(index, now, size)]
            if free:
                join(tensor, free[0])
            else:
                open_place(tensor, now)
    return places


def _last_uses(graph: Graph) -> dict[int, int]:
    """The op that is the last to need each activation, including those read under another name after a RESHAPE."""
    last: dict[int, int] = {}
    for now, op in enumerate(graph.ops):
        last.update(dict.fromkeys(graph.activations_of(op), now))
    last.update(dict.fromkeys(graph.outputs, len(graph.ops) - 1))
    for op in reversed(graph.ops):
        if op.kind in ALIASES:
            source, result = op.inputs[0], op.outputs[0]
            last[source] = max(last[source], last.get(result, 0))
    return last


def _height(places: Sequence[Place], offsets: Sequence[int]) -> int:
    return max(offset + place.size_bytes for place, offset in zip(places, offsets, strict=True))


def _greedy(places: Sequence[Place]) -> list[int]:
    """The best of three orders, each place in the lowest gap that is free during its life."""
    orders = (
        sorted(range(len(places)), key=lambda i: (-places[i].size_bytes, i)),
        sorted(range(len(places)), key=lambda i: (-places[i].size_bytes * (places[i].last - places[i].first + 1), i)),
        list(range(len(places))),
    )
    packings = [_first_fit(places, order) for order in orders]
    return min(packings, key=lambda offsets: _height(places, offsets))


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
