"""The arena layout against exhaustive search, and the property that matters: what lives together does not overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, permutations
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.graph.graph import ActivationOptions, Graph, NoOptions, Op, PoolOptions, Quantisation, Tensor
from stages.graph.judge.tflm import run_tflm
from stages.graph.memory.arena_layout import (
    ALIGNMENT,
    Place,
    _apart,
    _first_fit,
    _height,
    _packed,
    _Search,
    arena_layout,
    arena_places,
)
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.packing_solver import lowest_packing
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import random_graph, residual_network

GRID = Quantisation((0.1,), (0,))


def random_places(seed: int, count: int) -> list[Place]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, count, count)
    length = rng.integers(1, 4, count)
    size = rng.integers(1, 9, count) * ALIGNMENT
    return [
        Place(int(s), int(f), int(f + n), (i,)) for i, (s, f, n) in enumerate(zip(size, first, length, strict=True))
    ]


def lowest_height(places: list[Place]) -> int:
    """First fit in every order: some order puts every place where the best packing has it, or lower."""
    apart = _apart(places)
    return min(_height(places, _first_fit(apart, order)) for order in permutations(range(len(places))))


def test_no_packing_of_six_places_is_lower_than_the_search_finds() -> None:
    nodes = 0
    for seed in range(40):
        places = random_places(seed, 6)
        floor = max(sum(p.size_bytes for p in places if p.first <= t <= p.last) for t in range(12))
        # A start that is as bad as can be: one above the other.
        stacked = [sum(p.size_bytes for p in places[:i]) for i in range(len(places))]
        search = _Search(places, stacked, floor, 100_000)
        assert _height(places, search.run()) == lowest_height(places)
        nodes += 100_000 - search.nodes_left
    assert nodes <= 766  # a search that needs more than now has lost a bound


Distances = Mapping[tuple[int, int], int]


def contents_survive(graph: Graph, offsets: tuple[int, ...], distances: Distances = MappingProxyType({})) -> None:
    """Run the ops on bytes: each writes its own number; every reader must still find the number of what it reads.

    With distance d, the output may be written up to byte d + i when input byte i is read.
    """
    arena = np.full(max(offsets) + 8192, -1)
    number_of: dict[int, int] = {}

    def fill(tensor: int, number: int) -> None:
        number_of[tensor] = number
        arena[offsets[tensor] : offsets[tensor] + graph.tensors[tensor].nbytes] = number

    def check(tensor: int) -> None:
        held = arena[offsets[tensor] : offsets[tensor] + graph.tensors[tensor].nbytes]
        assert (held == number_of[tensor]).all(), f"{graph.tensors[tensor].name} was overwritten"

    for tensor in graph.inputs:
        fill(tensor, 900 + tensor)
    for number, op in enumerate(graph.ops):
        result, size = op.outputs[0], graph.tensors[op.outputs[0]].nbytes
        for tensor in graph.activations_of(op):
            check(tensor)
            if op.kind == "RESHAPE":
                continue
            plain = 0 if op.kind in ("ADD", "MUL", "RELU") else size  # without a distance: in place, or all at once
            for i in range(graph.tensors[tensor].nbytes):
                written = min(max(0, distances.get((number, tensor), plain) + i), size)
                place = offsets[tensor] + i
                assert not offsets[result] <= place < offsets[result] + written, (number, op.kind, i)
        fill(result, number_of[op.inputs[0]] if op.kind == "RESHAPE" else number)
    for tensor in graph.outputs:
        check(tensor)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_alive_is_ever_overwritten(seed: int) -> None:
    graph = random_graph(seed, 5 + seed % 15)
    layout = arena_layout(graph)
    assert all(offset % ALIGNMENT == 0 for offset in layout.offsets)
    assert layout.lower_bound_bytes == max(layout.live_bytes) <= layout.arena_bytes
    assert layout.proven_optimal or layout.arena_bytes > layout.lower_bound_bytes
    contents_survive(graph, layout.offsets)


@pytest.mark.parametrize("seed", range(60))
def test_live_bytes_are_those_of_the_memory_model(seed: int) -> None:
    """Sizes that are multiples of 16 need no rounding, so the layout's bound is the peak of the order."""
    graph = random_graph(seed, 5 + seed % 15)
    even = tuple(replace(t, shape=(1, t.shape[1] * 2)) for t in graph.tensors)
    graph = replace(graph, tensors=even)
    assert arena_layout(graph).lower_bound_bytes == OrderProblem(graph).measure(range(len(graph.ops))).peak_bytes


def test_add_and_reshape_share_their_operands_place() -> None:
    graph = residual_network(0)
    offsets = arena_layout(graph).offsets
    add = next(op for op in graph.ops if op.kind == "ADD")
    flat = next(op for op in graph.ops if op.kind == "RESHAPE")
    assert offsets[add.outputs[0]] in {offsets[index] for index in add.inputs}
    assert offsets[flat.outputs[0]] == offsets[flat.inputs[0]]
    assert all(offsets[index] == -1 for index, tensor in enumerate(graph.tensors) if tensor.data is not None)


def test_an_add_as_the_last_op_works_in_place_but_not_over_an_output() -> None:
    tensors = tuple(Tensor(name, (1, 32), "int8", GRID) for name in "xabs")
    ops = (
        Op("CONV_2D", "a", (0,), (1,)),
        Op("CONV_2D", "b", (0,), (2,)),
        Op("ADD", "s", (1, 2), (3,), ActivationOptions()),
    )
    assert len(arena_places(Graph(tensors, ops, (0,), (3,)))) == 3
    kept = arena_layout(Graph(tensors, ops, (0,), (1, 2, 3)))
    assert kept.arena_bytes == 96
    assert len({kept.offsets[index] for index in (1, 2, 3)}) == 3


def test_a_reshaped_tensor_that_is_read_again_is_not_added_over() -> None:
    tensors = tuple(Tensor(name, (1, 16), "int8", GRID) for name in "xrbsy")
    ops = (
        Op("RESHAPE", "r", (0,), (1,)),
        Op("CONV_2D", "b", (0,), (2,)),
        Op("ADD", "s", (0, 2), (3,), ActivationOptions()),
        Op("MUL", "y", (1, 3), (4,)),  # needs x, under its other name, after the sum
    )
    offsets = arena_layout(Graph(tensors, ops, (0,), (4,))).offsets
    assert offsets[0] == offsets[1] != offsets[3] == offsets[2]


def test_the_best_order_of_a_residual_network_is_laid_out_without_loss() -> None:
    graph = residual_network(0)
    order = OrderProblem(graph).solve()
    layout = arena_layout(graph.in_order(order.order))
    assert layout.proven_optimal
    assert layout.arena_bytes == layout.lower_bound_bytes
    assert order.peak_bytes <= layout.arena_bytes < order.peak_bytes + 3 * ALIGNMENT


def height_of(graph: Graph, offsets: tuple[int, ...]) -> int:
    ends = (offset + -(-t.nbytes // 16) * 16 for t, offset in zip(graph.tensors, offsets, strict=True) if offset >= 0)
    return max(ends)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), ops=st.integers(1, 25))
def test_what_is_alive_together_never_overlaps(seed: int, ops: int) -> None:
    graph = random_graph(seed, ops)
    order = OrderProblem(graph).solve().order
    graph = graph.in_order(order)
    layout = arena_layout(graph)
    assert height_of(graph, layout.offsets) == layout.arena_bytes >= layout.lower_bound_bytes == max(layout.live_bytes)
    contents_survive(graph, layout.offsets)
    for prefers_last in (False, True):
        places = arena_places(graph, prefers_last=prefers_last)
        alive = [sum(p.size_bytes for p in places if p.first <= op <= p.last) for op in range(ops)]
        assert tuple(alive) == layout.live_bytes
    assert arena_layout(graph) == layout


@pytest.mark.parametrize("seed", range(40))
def test_no_layout_of_a_small_network_is_lower(seed: int) -> None:
    """Sizes that do not fit together well, in every order of first fit and for both choices of the operand replaced."""
    graph = random_graph(1000 + seed, 6)
    layout = arena_layout(graph)
    assert layout.proven_optimal
    assert layout.arena_bytes == min(
        lowest_height(arena_places(graph, prefers_last=prefers_last)) for prefers_last in (False, True)
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_packing_above_the_lower_bound_is_proven_by_exhaustion(seed: int) -> None:
    """A bound that is too low by one unit stands for the rare places that cannot be packed down to it."""
    places = random_places(seed, 6)
    floor = max(sum(p.size_bytes for p in places if p.first <= t <= p.last) for t in range(12))
    _, found, proven = _packed([places], floor - ALIGNMENT)
    assert proven
    assert _height(places, found) == lowest_height(places)


@pytest.mark.parametrize("seed", range(5))
def test_the_solver_packs_as_low_as_our_own_search(seed: int) -> None:
    places = random_places(seed, 6)
    floor = max(sum(p.size_bytes for p in places if p.first <= t <= p.last) for t in range(12))
    stacked = sum(p.size_bytes for p in places)
    offsets, proven = lowest_packing(places, stacked, floor, ALIGNMENT)
    assert proven
    assert _height(places, offsets) == lowest_height(places)
    for one, other in combinations(range(6), 2):
        if places[one].meets(places[other]):
            low, high = sorted((one, other), key=lambda i: offsets[i])
            assert offsets[low] + places[low].size_bytes <= offsets[high]


@pytest.mark.parametrize("kind", ["RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "ADD", "MUL"])
def test_the_runtime_computes_the_same_in_place(kind: str) -> None:
    """The rule of `buffers`, on TensorFlow Lite Micro itself: the result lies on the operand, and nothing changes."""
    grid = Quantisation((1 / 256,), (-128,)) if kind == "LOGISTIC" else Quantisation((0.05,), (3,))
    operands = (0, 1) if kind in ("ADD", "MUL") else (1,)
    tensors = (
        Tensor("x", (1, 4, 4, 8), "int8", Quantisation((0.05,), (3,))),
        Tensor("pooled", (1, 4, 4, 8), "int8", Quantisation((0.05,), (3,))),
        Tensor("y", (1, 4, 4, 8), "int8", grid),
    )
    options = ActivationOptions() if len(operands) == 2 else NoOptions()
    pool = Op("MAX_POOL_2D", "pool", (0,), (1,), PoolOptions((3, 3), (1, 1), "same"))
    graph = Graph(tensors, (pool, Op(kind, "last", operands, (2,), options)), (0,), (2,))
    layout = arena_layout(graph)
    assert layout.offsets[2] in {layout.offsets[index] for index in operands}
    inputs = np.random.default_rng(0).integers(-128, 128, (20, 4, 4, 8)).astype(np.int8)
    planned, free = (run_tflm(write_tflite(graph, "in place", plan), graph, inputs) for plan in (layout.offsets, None))
    assert np.array_equal(planned, free)
    assert len(np.unique(planned)) > 20


def random_distances(graph: Graph, seed: int) -> dict[tuple[int, int], int]:
    """For most operands, from 'it has all been read' to 'hardly anything', and a few that must not overlap.

    Those that may be written over without a distance have none above 0.
    """
    rng = np.random.default_rng(seed)

    def most(op: Op) -> int:
        return 0 if op.kind in ("ADD", "MUL", "RELU") else graph.tensors[op.outputs[0]].nbytes

    return {
        (number, tensor): int(rng.integers(-2 * graph.tensors[tensor].nbytes, most(op) + 1))
        for number, op in enumerate(graph.ops)
        for tensor in graph.activations_of(op)
        if op.kind != "RESHAPE" and rng.random() < 0.8
    }


@pytest.mark.parametrize("seed", range(60))
def test_an_overlap_never_reaches_a_byte_that_is_still_to_be_read(seed: int) -> None:
    graph = random_graph(seed, 4 + seed % 12)
    distances = random_distances(graph, seed)
    layout = arena_layout(graph, distances=distances)
    contents_survive(graph, layout.offsets, distances)
    assert all(offset % ALIGNMENT == 0 for offset in layout.offsets if offset >= 0)
    assert layout.lower_bound_bytes == max(layout.live_bytes) <= layout.arena_bytes
    assert layout.arena_bytes <= arena_layout(graph).arena_bytes


def test_a_distance_that_is_too_short_is_seen_by_the_check() -> None:
    """The check of the test above can fail: one unit less, and a byte is lost."""
    tensors = (Tensor("x", (1, 64), "int8", GRID), Tensor("y", (1, 128), "int8", GRID))
    graph = Graph(tensors, (Op("CONV_2D", "y", (0,), (1,)),), (0,), (1,))
    contents_survive(graph, (64, 0), {(0, 0): 64})
    with pytest.raises(AssertionError):
        contents_survive(graph, (63, 0), {(0, 0): 64})


@pytest.mark.parametrize("seed", range(30))
def test_no_overlapping_layout_of_a_small_network_is_lower(seed: int) -> None:
    graph = random_graph(2000 + seed, 5)
    distances = random_distances(graph, seed)
    places = arena_places(graph, distances=distances)
    layout = arena_layout(graph, distances=distances)
    if layout.proven_optimal:
        lowest = lowest_height(places)
        assert layout.arena_bytes == min(lowest, arena_layout(graph).arena_bytes)


@pytest.mark.parametrize("seed", range(20))
def test_search_and_first_fit_agree_on_overlapping_places(seed: int) -> None:
    graph = random_graph(3000 + seed, 5)
    places = arena_places(graph, distances=random_distances(graph, seed))
    stacked = [sum(p.size_bytes for p in places[:i]) for i in range(len(places))]
    found = _Search(places, stacked, 0, 100_000).run()
    assert _height(places, found) == lowest_height(places)
    offsets, solved = lowest_packing(places, sum(p.size_bytes for p in places), 0, ALIGNMENT)
    assert solved
    assert _height(places, offsets) == lowest_height(places)


def test_an_input_that_is_needed_again_is_not_overlapped() -> None:
    tensors = tuple(Tensor(name, (1, 64), "int8", GRID) for name in "xyz")
    ops = (Op("CONV_2D", "y", (0,), (1,)), Op("ADD", "z", (0, 1), (2,), ActivationOptions()))
    free = dict.fromkeys([(0, 0), (1, 0), (1, 1)], 0)
    layout = arena_layout(Graph(tensors, ops, (0,), (2,)), distances=free)
    assert layout.arena_bytes == 128
    assert layout.offsets[0] != layout.offsets[1]


def test_a_layer_whose_output_grows_begins_below_its_input() -> None:
    tensors = (Tensor("x", (1, 64), "int8", GRID), Tensor("y", (1, 160), "int8", GRID))
    graph = Graph(tensors, (Op("CONV_2D", "y", (0,), (1,)),), (0,), (1,))
    assert arena_layout(graph).arena_bytes == 224
    layout = arena_layout(graph, distances={(0, 0): 96})
    assert (layout.arena_bytes, layout.offsets, layout.proven_optimal) == (160, (96, 0), True)
    assert arena_layout(graph, distances={(0, 0): 97}).arena_bytes == 176
