"""The operator order that needs the least memory, exactly, and what any order needs.

Memory model. A buffer (see `buffers`) takes its bytes from the op that computes it (the network's inputs: from the
start) until its last reader has run (the network's outputs: to the end). While an op runs, its operands and results
are in use together with everything that is needed later.

An op that every other one comes before or after splits the problem: all before it, it, all behind it. Chains, and
most of real networks, fall apart into single ops that way. What is left are pieces with a choice. The largest of all
needs is what counts, so a piece is searched (see `order_search`) only while the best order known for it needs more
than is needed elsewhere: by bisection between a lower bound and that order, each probe raising the one or lowering
the other. After `most_states` sets of finished ops (sets that cost more count as several), or where too many of them
would have to be held at once, the search stops with the best order so far, and says what is proven. The limits are
numbers, not times, so that the same graph always gives the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.graph.graph import Graph
from stages.graph.memory.buffers import Buffers, activation_bytes, buffers_of
from stages.graph.memory.order_pieces import Part, pieces_of
from stages.graph.memory.order_search import Probe, Search, Walk, probe
from stages.graph.memory.order_sweep import Beam, Sweep, WideBeam

MOST_STATES = 6_000_000  # some seconds; networks need a few hundred, random wirings of 32 nodes some 200,000
_SWEEP_PATIENCE = 2_000_000  # before beams look for a better order; with that one a sweep may have far less to see
# The direction to bet on before one has proved faster: sweeps take about as long either way, too long to do both; beams
# find better orders from the front. A depth-first search tries both.
_FAVOURITES = {Search: None, Sweep: 1, Beam: 0, WideBeam: 0}
_PATIENCE = (500, 5000)  # states after which a bisection first takes a bound for too low
_FRACTION = 1 << 16  # sizes that are not whole are searched in units of 1/65536 byte: sums must not depend on the order

# Positions of an order from and to which ops run together, and shares of buffers in use, at any moment of them.
Cases = tuple[int, int, list[dict[int, float]]]


@dataclass(frozen=True)
class OpOrder:
    """An order of the graph's ops and what it costs."""

    order: tuple[int, ...]  # op indices
    peak_bytes: float  # a whole number unless the tensor sizes were not
    bottleneck: tuple[int, ...]  # one tensor for each buffer in use at the (first) peak; their bytes add up to it
    lower_bound_bytes: float  # no order needs less; for an order that was given: just its own peak
    proven_optimal: bool
    states: int = 0  # sets of finished ops that the search looked at
    shares: tuple[float, ...] = ()  # of each tensor of the bottleneck; empty: all of it


class OrderProblem:
    """Everything about a graph's orders that does not depend on the tensors' sizes; solve it for many sizes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.buffers = buffers_of(graph)
        self._own_sizes = self._whole(self.buffers.sizes([activation_bytes(tensor) for tensor in graph.tensors]))
        self._parts = pieces_of(self.buffers)

    def solve(self, tensor_bytes: Sequence[float] | None = None, most_states: int = MOST_STATES) -> OpOrder:
        """The order with the smallest peak for these sizes (without them: the tensors' own)."""
        exact, whole = self._sizes(tensor_bytes)
        unit = math.gcd(*whole) or 1  # a bisection in units of one byte would ask for the same thing several times
        sizes = [size // unit for size in whole]
        tasks = [_Task(part, self.buffers, sizes) for part in self._parts]
        floor = max(task.floor for task in tasks)
        states = 0
        is_proven = True
        for task in tasks:
            task.start(floor)
        for task in sorted(tasks, key=lambda task: -task.peak):
            if task.peak <= floor:
                break
            states += task.improve(floor, most_states - states)
            is_proven = is_proven and task.peak <= task.floor
            floor = max(floor, task.floor)
        order = tuple(task.part.ops[op] for task in tasks for op in task.order)
        peak, bottleneck = self._peak(order, whole, exact)
        proven = peak if is_proven else floor * unit / (1 if whole is exact else _FRACTION)
        return OpOrder(order, peak, bottleneck, proven, is_proven, states)

    def measure(self, order: Sequence[int], tensor_bytes: Sequence[float] | None = None) -> OpOrder:
        """What a given order costs."""
        exact, sizes = self._sizes(tensor_bytes)
        peak, bottleneck = self._peak(order, sizes, exact)
        return OpOrder(tuple(order), peak, bottleneck, peak, False)

    def cases(self, order: Sequence[int], tensor_bytes: Sequence[float]) -> Iterator[Cases]:
        """Every op of an order, with what it needs; sizes say only who can work in place."""
        _, sizes = self._sizes(tensor_bytes)
        for position, used in enumerate(self._in_use(order, sizes)):
            yield position, position + 1, [dict.fromkeys(used, 1.0)]

    def live_bytes(
        self, order: Sequence[int], tensor_bytes: Sequence[float] | None = None, first: int = 0, last: int | None = None
    ) -> tuple[float, ...]:
        """Bytes in use while each op runs, in the order given; of those at positions `first` to before `last`."""
        exact, sizes = self._sizes(tensor_bytes)
        return tuple(sum(exact[b] for b in used) for used in self._in_use(order, sizes, first, last))

    def _sizes(self, tensor_bytes: Sequence[float] | None) -> tuple[list[float], list[int]]:
        """Bytes of each buffer, as given and in whole units."""
        if tensor_bytes is None:
            return self._own_sizes
        return self._whole(self.buffers.sizes([float(size) for size in tensor_bytes]))

    @staticmethod
    def _whole(exact: list[float]) -> tuple[list[float], list[int]]:
        if all(size == int(size) for size in exact):
            whole = [int(size) for size in exact]
            return whole, whole
        return exact, [round(size * _FRACTION) for size in exact]

    def _peak(self, order: Sequence[int], sizes: list[int], exact: list[float]) -> tuple[float, tuple[int, ...]]:
        peak, bottleneck = max(
            ((sum(sizes[b] for b in used), used) for used in self._in_use(order, sizes)), key=lambda pair: pair[0]
        )
        return sum(exact[b] for b in bottleneck), tuple(self.buffers.tensors[b][0] for b in bottleneck)

    def _in_use(
        self, order: Sequence[int], sizes: list[int], first: int = 0, last: int | None = None
    ) -> Iterator[list[int]]:
        """The buffers in use while each op runs."""
        buffers, done = self.buffers, sum(1 << number for number in order[:first])
        alive = {b: None for b in range(len(buffers.makers)) if buffers.is_alive(b, done)}
        for number in order[first:last]:
            op = buffers.ops[number]
            yield [*alive, *(op.writes if buffers.replaced(number, done, sizes) is None else ())]
            done |= 1 << number
            alive.update(dict.fromkeys(op.writes))
            for b in (*op.reads, *op.writes):
                if not buffers.is_alive(b, done):
                    alive.pop(b, None)


class _Task:
    """One part with sizes: a lower bound, the best order so far, and how to bring them together."""

    def __init__(self, part: Part, buffers: Buffers, sizes: list[int]) -> None:
        self.part = part
        self._sizes = sizes
        base = sum(sizes[b] for b in part.untouched)
        touched = {b for number in part.ops for b in (*buffers.ops[number].reads, *buffers.ops[number].writes)}
        done_after = part.done | sum(1 << number for number in part.ops)
        self._live = tuple(
            base + sum(sizes[b] for b in touched if buffers.is_alive(b, done)) for done in (part.done, done_after)
        )
        # No order can beat the op that needs most on its own, nor what is alive at either end.
        alone = [base + _least_need(buffers, number, sizes) for number in part.ops]
        self.floor = max(*self._live, *alone)
        self.peak = float("inf")
        self.order: tuple[int, ...] = ()
        self._favourite: int | None = None

    def start(self, enough: float) -> None:
        """Any order, the better of one from the front and one from the back; the second only if it is of use."""
        self._walks = tuple(Walk(self.part.piece, self._sizes, forwards=forwards) for forwards in (True, False))
        for walk, live in zip(self._walks, self._live, strict=True):
            search = Search(walk, live, float("inf"))
            while not search.advance(len(self.part.ops) + 1):
                continue
            assert search.found is not None, "without a bound the first way down is an order"
            self._keep(search.found)
            if self.peak <= enough or len(self.part.ops) == 1:
                break

    def improve(self, enough: float, most_states: int) -> int:
        """Search until bound and order meet, the order needs no more than `enough`, or the states are used up.

        An order below a bound is found quickly, as a rule, if there is one; that there is none takes long to prove, and
        about as long for bounds far below the best. So the bisection gives up soon on each bound; then a sweep through
        all sets improves on the best order that is left, or proves it. Where there are too many sets for that, beams
        through some of them lower the peak, and the sweep is tried again below it.
        """
        self.floor = max(self.floor, enough)
        states = 0
        for patience in _PATIENCE:
            low = self.floor
            while low < self.peak and states < most_states:
                bound = (low + self.peak) // 2 + 1
                result = self._probe(Search, bound, min(patience, most_states - states))
                states += result.states
                low = max(low if result.order is not None else bound, self.floor)
        return states + self._sweep(most_states - states)

    def _sweep(self, most_states: int) -> int:
        states, patience = 0, _SWEEP_PATIENCE
        while self.floor < self.peak and states < most_states:
            before = self.peak
            result = self._probe(Sweep, self.peak, min(patience, most_states - states))
            states += result.states
            if result.finished is None:
                states += self._improve_along_beams(most_states - states)
                patience = most_states
                if self.peak == before:
                    break
        return states

    def _improve_along_beams(self, most_states: int) -> int:
        """Look at a part of the sets only, for as long as that finds better orders."""
        states = 0
        for means in (Beam, WideBeam):
            has_found = True
            while has_found and self.floor < self.peak and states < most_states:
                result = self._probe(means, self.peak, most_states - states)
                states += result.states
                has_found = result.order is not None
        return states

    def _probe(self, means: type[Search] | type[Sweep], bound: float, most_states: int) -> Probe:
        searches = [means(walk, live, bound) for walk, live in zip(self._walks, self._live, strict=True)]
        result = probe(searches, _FAVOURITES[means] if self._favourite is None else self._favourite, most_states)
        if result.order is not None:
            self._keep(result.order)
            if result.is_best:
                self.floor = self.peak
        elif result.finished is not None:
            self.floor = min(result.next_bound, self.peak)
        if result.finished is not None and (means is not Search or result.order is None):
            self._favourite = result.finished  # who saw all there is to see first will do so again
        return result

    def _keep(self, order: tuple[int, ...]) -> None:
        walk, taken, live, peak = self._walks[0], 0, self._live[0], 0.0
        for op in order:
            if op in walk.blocks:
                change, used, _ = walk.step(taken, op)
                peak = max(peak, live + used)
                taken, live = taken | walk.masks[op], live + change
        if peak < self.peak:
            self.peak, self.order = peak, order


def _least_need(buffers: Buffers, number: int, sizes: list[int]) -> int:
    """Bytes that op needs in any order: its operands, and its results unless they may be written over one."""
    op = buffers.ops[number]
    in_place = any(b not in buffers.kept and sizes[b] == sizes[op.writes[0]] for b in op.may_replace)
    return sum(sizes[b] for b in (*op.reads, *(() if in_place else op.writes)))
