"""No order of the ops needs less memory than the one found, on every small graph and on random larger ones."""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import pytest

from stages.graph.graph import Graph, Op, Tensor
from stages.graph.op_order import peak_of_order, smallest_peak_order


def graph_of(sizes, ops, outputs=None) -> Graph:
    """Tensor 0 is the input, op i makes tensor i + 1; `ops` are (kind, input tensors)."""
    tensors = tuple(Tensor(f"t{i}", (1, size), "int8") for i, size in enumerate(sizes))
    made = tuple(Op(kind, f"op{i}", tuple(inputs), (i + 1,)) for i, (kind, inputs) in enumerate(ops))
    read = {index for op in made for index in op.inputs}
    ends = tuple(i for i in range(1, len(sizes)) if i not in read) if outputs is None else outputs
    return Graph(tensors, made, (0,), ends)


def every_order(graph: Graph):
    for order in itertools.permutations(range(len(graph.ops))):
        place = {op: position for position, op in enumerate(order)}
        if all(index == 0 or place[index - 1] < place[n] for n, op in enumerate(graph.ops) for index in op.inputs):
            yield order


def slow_peak(graph: Graph, order) -> int:
    """Walk through the order with a dictionary of buffers, as an allocator would."""
    readers_left = {i: sum(i in op.inputs for op in graph.ops) for i in range(len(graph.tensors))}
    buffer = {0: 0}  # tensor -> buffer
    held = {0: graph.tensors[0].nbytes}  # buffer -> bytes
    peak = 0
    for n in order:
        op = graph.ops[n]
        (output,) = op.outputs
        taken = None
        if op.kind == "RESHAPE":
            taken = buffer[op.inputs[0]]
        elif op.kind == "ADD":
            for index in op.inputs:
                sharers = [t for t, b in buffer.items() if b == buffer[index]]
                needed_later = any(readers_left[t] > (t in op.inputs) or t in graph.outputs for t in sharers)
                if not needed_later and held[buffer[index]] == graph.tensors[output].nbytes:
                    taken = buffer[index]
        buffer[output] = output if taken is None else taken
        held[buffer[output]] = graph.tensors[output].nbytes
        peak = max(peak, sum(held.values()))
        for index in set(op.inputs):
            readers_left[index] -= 1
        alive = {buffer[t] for t in buffer if readers_left[t] > 0 or t in graph.outputs}
        held = {b: size for b, size in held.items() if b in alive}
    return peak


def small_graphs(ops: int):
    """Every wiring of `ops` ops with one or two inputs each, sizes drawn; the later ones ADD where sizes allow."""
    draw = random.Random(ops)
    choices = [[(i,) for i in range(n + 1)] + list(itertools.combinations(range(n + 1), 2)) for n in range(ops)]
    for wiring in itertools.product(*choices):
        yield random_sizes(wiring, draw)


def random_sizes(wiring, draw: random.Random) -> Graph:
    sizes = [draw.randint(1, 4)]
    ops = []
    for inputs in wiring:
        if len(inputs) == 1 and draw.random() < 0.2:
            ops.append(("RESHAPE", inputs))
            sizes.append(sizes[inputs[0]])
        elif len(inputs) == 2 and draw.random() < 0.6:
            ops.append(("ADD", inputs))
            sizes.append(sizes[draw.choice(inputs)])
        else:
            ops.append(("CONV_2D", inputs))
            sizes.append(draw.randint(1, 9))
    return graph_of(sizes, ops)


def random_graph(ops: int, seed: int) -> Graph:
    draw = random.Random(seed)
    wiring = []
    for n in range(ops):
        count = min(n + 1, draw.choice((1, 1, 2)))
        wiring.append(tuple(sorted(draw.sample(range(max(0, n - 4), n + 1), min(count, n + 1 - max(0, n - 4))))))
    return random_sizes(wiring, draw)


def check(graph: Graph) -> None:
    found = smallest_peak_order(graph)
    orders = list(every_order(graph))
    assert found.order in orders
    assert found.peak_bytes == slow_peak(graph, found.order)
    assert found.peak_bytes == min(slow_peak(graph, order) for order in orders)
    assert sum(graph.tensors[index].nbytes for index in found.bottleneck) == found.peak_bytes


@pytest.mark.parametrize("ops", [1, 2, 3, 4])
def test_no_order_beats_the_one_found_on_every_small_graph(ops):
    count = 0
    for graph in small_graphs(ops):
        check(graph)
        count += 1
    assert count == {1: 1, 2: 3, 3: 18, 4: 180}[ops]


@pytest.mark.parametrize("seed", range(120))
def test_no_order_beats_the_one_found_on_random_graphs(seed):
    check(random_graph(5 + seed % 3, seed))


@pytest.mark.slow
def test_no_order_beats_the_one_found_on_all_graphs_of_five_ops():
    graphs = list(small_graphs(5))
    assert len(graphs) == 2700
    for graph in graphs:
        check(graph)


def test_given_order_costs_what_the_slow_allocator_says():
    graph = random_graph(7, 5)
    for order in every_order(graph):
        assert peak_of_order(graph, order).peak_bytes == slow_peak(graph, order)


def test_an_add_is_accumulated_into_an_operand_that_nobody_needs_afterwards():
    chain = [("CONV_2D", (0,)), ("CONV_2D", (1,)), ("ADD", (1, 2))]
    assert smallest_peak_order(graph_of([1, 10, 10, 10], chain)).peak_bytes == 20
    kept = smallest_peak_order(graph_of([1, 10, 10, 10], chain, outputs=(1, 2, 3)))
    assert kept.peak_bytes == 30


def test_branches_are_run_in_the_order_that_needs_less():
    # Tensor 1 forks; the branch through the large tensor 3 has to go first, before the other branch's result is there.
    ops = [("CONV_2D", (0,)), ("CONV_2D", (1,)), ("CONV_2D", (1,)), ("CONV_2D", (3,)), ("CONV_2D", (2, 4))]
    graph = graph_of([1, 4, 8, 50, 2, 1], ops)
    found = smallest_peak_order(graph)
    assert found.peak_bytes == 4 + 50 + 2
    assert peak_of_order(graph, (0, 1, 2, 3, 4)).peak_bytes == 4 + 8 + 50


def test_float_tensors_count_as_int8_and_other_sizes_may_be_given():
    tensors = tuple(Tensor(f"t{i}", (1, 3), "float32") for i in range(2))
    graph = Graph(tensors, (Op("CONV_2D", "op", (0,), (1,)),), (0,), (1,))
    assert smallest_peak_order(graph).peak_bytes == 6
    assert smallest_peak_order(graph, [0.5, 1.25]).peak_bytes == pytest.approx(1.75)
    wide = Graph(
        (Tensor("w", (4,), "int32", data=np.zeros(4)), *tensors), (Op("CONV_2D", "op", (1, 0), (2,)),), (1,), (2,)
    )
    assert smallest_peak_order(wide).peak_bytes == 6


def test_a_long_chain_of_residual_blocks_takes_no_time():
    ops, sizes = [("CONV_2D", (0,))], [3, 10]
    for _ in range(30):
        last = len(sizes) - 1
        ops += [("CONV_2D", (last,)), ("CONV_2D", (last + 1,)), ("ADD", (last, last + 2))]
        sizes += [30, 10, 10]
    started = time.monotonic()
    assert smallest_peak_order(graph_of(sizes, ops)).peak_bytes == 50
    assert time.monotonic() - started < 2.0
