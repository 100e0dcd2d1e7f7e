"""Of all orders with the smallest peak, one whose buffers pack without a gap.

Many orders share the smallest peak, but the packing of their buffers differs: for random wirings of 32 nodes CP-SAT
either meets the lower bound within a tenth of a second or not within seconds. So the order that the search found is
tried first, and then others on a walk from there: ops are moved at random within what their operands allow, the peak
stays, and moves that leave more room beside it are preferred, since a network that is near its peak for a short while
only is easier to pack. Drawn with a fixed seed: the same graph always gives the same order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from stages.graph.graph import Graph
from stages.graph.memory.arena_layout import fits_in, lower_bound_bytes
from stages.graph.memory.op_order import OpOrder, OrderProblem

_TRIES = 32
_TRIED_OPS = 4000  # fewer tries for large networks, where each takes longer
_TRIED_PAIRS = 1_500_000  # of ops: still fewer for very large ones, whose places are compared two by two
_MOVES = 500  # from one try to the next
_CROWDED = 0.9  # of the peak: what lies above it is crowding
_INDIFFERENCE = 0.03  # of the peak: moves that crowd so much more are taken in one of e cases


def packable_order(
    problem: OrderProblem, best: OpOrder, prepared: Callable[[Graph], Graph] = lambda graph: graph
) -> OpOrder:
    """`best`, or another order of the same peak if only that one is found to pack to its lower bound.

    `prepared`: what is laid out for a graph in a given order, if more than its own activations.
    """
    most_bytes = None
    for order in _walk(problem, best):
        laid_out = prepared(problem.graph.in_order(order))
        bound = lower_bound_bytes(laid_out)  # alignment makes it differ a little between orders of the same peak
        most_bytes = most_bytes or bound
        if bound <= most_bytes and fits_in(laid_out, bound):
            found = problem.measure(order)
            return replace(best, order=order, peak_bytes=found.peak_bytes, bottleneck=found.bottleneck)
    return best


def _walk(problem: OrderProblem, best: OpOrder) -> Iterator[tuple[int, ...]]:
    """The best order and others that need no more; only itself if there is no room to move."""
    draw = random.Random(0)
    order = best.order
    yield order
    for _ in range(min(_TRIES, _TRIED_OPS // len(order), _TRIED_PAIRS // len(order) ** 2) - 1):
        for _ in range(_MOVES):
            moved, first, last = _moved(problem, order, draw)
            if first == last:
                continue
            before, after = (_crowding(problem, best, each, first, last) for each in (order, moved))
            if draw.random() < math.exp(min(0.0, before - after) / _INDIFFERENCE):
                order = moved
        if order == best.order:
            break
        yield order


def _crowding(problem: OrderProblem, best: OpOrder, order: Sequence[int], first: int, last: int) -> float:
    """What the ops at these positions need beyond a part of the peak, in peaks; infinite if one needs more than all."""
    needs = [live / best.peak_bytes for live in problem.live_bytes(order, first=first, last=last)]
    return math.inf if max(needs) > 1 else sum(need - _CROWDED for need in needs if need > _CROWDED)


def _moved(problem: OrderProblem, order: tuple[int, ...], draw: random.Random) -> tuple[tuple[int, ...], int, int]:
    """One op elsewhere, behind all it needs, before all that need it; and between which positions that changes what."""
    ops = problem.buffers.ops
    position = draw.randrange(len(order))
    number, others = order[position], order[:position] + order[position + 1 :]
    first = max((place + 1 for place, other in enumerate(others) if ops[number].needs >> other & 1), default=0)
    last = min((place for place, other in enumerate(others) if ops[other].needs >> number & 1), default=len(others))
    to = draw.randint(first, last)
    if to == position:
        return order, to, to
    return (*others[:to], number, *others[to:]), min(to, position), max(to, position) + 1
