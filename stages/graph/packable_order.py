"""Of all orders with the smallest peak, one whose buffers pack without a gap.

Many orders share the smallest peak, but the packing of their buffers differs: for random wirings of 32 nodes CP-SAT
either meets the lower bound within a tenth of a second or not within seconds, and a neighbour of the order settles it
where the order itself does not. So the order that the search found is tried first, then neighbours of it, each a
little longer than the one before: ops are moved at random within what their operands allow, as long as the peak stays.
Drawn with a fixed seed and limited in the solver's own time: the same graph always gives the same order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from stages.graph.arena_layout import fits_in, lower_bound_bytes
from stages.graph.graph import Graph
from stages.graph.op_order import OpOrder, OrderProblem

_TRIES = 32  # enough for 40 of 40 random wirings of 32 nodes; the hardest took 8 s (order_and_layout)
_MOVES = 150  # between the order that was found and the neighbour that is tried
_EFFORT, _MORE_EFFORT = 0.002, 0.0005  # of the solver, in its own time: at first, and more with each try


def packable_order(
    problem: OrderProblem, best: OpOrder, prepared: Callable[[Graph], Graph] = lambda graph: graph
) -> OpOrder:
    """`best`, or another order of the same peak if only that one is found to pack to its lower bound.

    `prepared`: what is laid out for a graph in a given order, if more than its own activations.
    """
    draw = random.Random(0)
    order = best.order
    bound = lower_bound_bytes(prepared(problem.graph.in_order(order)))
    for number in range(_TRIES):
        if fits_in(prepared(problem.graph.in_order(order)), bound, _EFFORT + number * _MORE_EFFORT):
            return replace(best, order=order, bottleneck=problem.measure(order).bottleneck)
        order = _neighbour(problem, best, draw)
        if order == best.order:
            break
    return best


def _neighbour(problem: OrderProblem, best: OpOrder, draw: random.Random) -> tuple[int, ...]:
    """Another order of the same peak; the same one if there is no room to move."""
    order = list(best.order)
    for _ in range(_MOVES):
        position = draw.randrange(len(order))
        others = order[:position] + order[position + 1 :]
        first, last = _room(problem, others, order[position])
        moved = draw.randint(first, last)
        if moved == position:
            continue
        others.insert(moved, order[position])
        if problem.measure(others).peak_bytes <= best.peak_bytes:
            order = others
    return tuple(order)


def _room(problem: OrderProblem, others: list[int], number: int) -> tuple[int, int]:
    """Between which positions among the others an op may be put: behind all it needs, before all that need it."""
    ops = problem.buffers.ops
    first = max((place + 1 for place, other in enumerate(others) if ops[number].needs >> other & 1), default=0)
    last = min((place for place, other in enumerate(others) if ops[other].needs >> number & 1), default=len(others))
    return first, last
