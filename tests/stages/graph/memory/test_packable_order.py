"""The order that is laid out: as good as the best one, and packed without a gap where the best one is not."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.graph.graph import Graph
from stages.graph.judge.tflm_plan import runtime_plan, with_scratch
from stages.graph.memory.arena_layout import arena_layout, lower_bound_bytes
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.packable_order import _walk, packable_order
from tests.benchmarks.subjects.stand_in import int8_stand_in
from tests.benchmarks.subjects.wirings import random_wired
from tests.stages.graph.int8_graphs import random_graph, residual_network


def is_valid_order(graph: Graph, order: tuple[int, ...]) -> bool:
    there = set(graph.inputs)
    for op in graph.in_order(order).ops:
        if not set(op.inputs) <= there:
            return False
        there |= set(op.outputs)
    return sorted(order) == list(range(len(graph.ops)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), ops=st.integers(1, 25))
def test_it_has_the_smallest_peak_and_is_never_laid_out_worse(seed: int, ops: int) -> None:
    problem = OrderProblem(random_graph(seed, ops))
    best = problem.solve()
    found = packable_order(problem, best)
    assert is_valid_order(problem.graph, found.order)
    assert problem.measure(found.order).peak_bytes == best.peak_bytes == found.peak_bytes
    assert found.bottleneck == problem.measure(found.order).bottleneck
    layouts = [arena_layout(problem.graph.in_order(order)).arena_bytes for order in (best.order, found.order)]
    assert layouts[1] <= layouts[0]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), ops=st.integers(1, 25))
def test_every_order_on_the_walk_is_valid_and_no_worse(seed: int, ops: int) -> None:
    problem = OrderProblem(random_graph(seed, ops))
    best = problem.solve()
    orders = list(islice(_walk(problem, best), 4))
    assert orders[0] == best.order
    for order in orders:
        assert is_valid_order(problem.graph, order)
        assert problem.measure(order).peak_bytes <= best.peak_bytes


def test_the_walk_leaves_room_beside_the_peak() -> None:
    problem = OrderProblem(int8_stand_in(random_wired(4)))
    best = problem.solve()

    def crowded_ops(order: tuple[int, ...]) -> int:
        return sum(live > 0.95 * best.peak_bytes for live in problem.live_bytes(order))

    *_, last = islice(_walk(problem, best), 8)
    assert crowded_ops(last) < crowded_ops(best.order)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), ops=st.integers(2, 25), data=st.data())
def test_live_bytes_of_some_positions_are_those_of_all(seed: int, ops: int, data: st.DataObject) -> None:
    problem = OrderProblem(random_graph(seed, ops))
    order = problem.solve().order
    first = data.draw(st.integers(0, len(order)))
    last = data.draw(st.integers(first, len(order)))
    assert problem.live_bytes(order, first=first, last=last) == problem.live_bytes(order)[first:last]


def test_random_wirings_are_laid_out_at_their_lower_bound() -> None:
    graph = int8_stand_in(random_wired(28))  # its best order alone was not packed so far in seconds
    problem = OrderProblem(graph)
    best = problem.solve()
    found = packable_order(problem, best)
    assert packable_order(problem, best) == found
    layout = arena_layout(graph.in_order(found.order))
    assert layout.proven_optimal
    assert layout.arena_bytes == lower_bound_bytes(graph.in_order(best.order))


def test_an_order_that_was_not_searched_to_the_end_may_get_better(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = OrderProblem(int8_stand_in(random_wired(1)))
    best = problem.solve(most_states=1)
    bounds: list[int] = []

    def a_lower_one(_graph: Graph, bound: int) -> bool:
        bounds.append(bound)
        return bound < bounds[0]

    monkeypatch.setattr("stages.graph.memory.packable_order.fits_in", a_lower_one)
    found = packable_order(problem, best)
    assert found.peak_bytes == problem.measure(found.order).peak_bytes < best.peak_bytes
    assert bounds[-1] == lower_bound_bytes(problem.graph.in_order(found.order)) < bounds[0]
    assert max(bounds) == bounds[0]
    assert not found.proven_optimal


def test_another_order_is_taken_where_the_best_order_does_not_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = OrderProblem(int8_stand_in(random_wired(2)))
    best = problem.solve()
    tried: list[Graph] = []

    def only_the_third(graph: Graph, _arena_bytes: int) -> bool:
        tried.append(graph)
        return len(tried) == 3

    monkeypatch.setattr("stages.graph.memory.packable_order.fits_in", only_the_third)
    found = packable_order(problem, best)
    assert problem.graph.in_order(found.order) == tried[2] != tried[0]
    monkeypatch.setattr("stages.graph.memory.packable_order.fits_in", lambda *_: False)
    assert packable_order(problem, best) == best


def test_scratch_buffers_count_where_they_are_asked_for() -> None:
    problem = OrderProblem(residual_network(0))
    best = problem.solve()
    found = packable_order(problem, best, with_scratch)
    assert found.order == best.order
    assert runtime_plan(problem.graph.in_order(found.order)).layout.proven_optimal
