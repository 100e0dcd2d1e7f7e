"""Row-wise fusion: the schedule against what windows see, row by row, and which ops may form one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.memory.fusion import Chain, FusedOptions, Links, RowPass, fused_graph
from stages.graph.memory.overlap import OverlapProblem, Stretch
from stages.graph.memory.resources import resources
from stages.graph.padding import padding_around, windows
from tests.stages.firmware.coverage.builder import Builder
from tests.stages.firmware.test_fused_model import decoder
from tests.stages.graph.int8_graphs import Int8Builder


def passes_over(lines: int) -> Iterator[RowPass]:
    """Every small window that fits, and lines shown two or three times."""
    yield from (RowPass(lines, times * lines, repeats=times) for times in (2, 3))
    for taps, stride, dilation, padding in itertools.product((1, 2, 3, 5), (1, 2, 3), (1, 2), ("same", "valid")):
        rows = windows(lines, taps, stride, dilation, padding)
        if rows >= 1 and (dilation == 1 or (taps > 1 and stride == 1)):
            top = padding_around(lines, taps, stride, dilation, padding)[0]
            yield RowPass(lines, rows, (taps - 1) * dilation + 1, stride, top)


def seen(one: RowPass, row: int) -> range:
    """The rows of the input, inside of it, that a row of the output may see."""
    if one.repeats > 1:
        return range(row // one.repeats, row // one.repeats + 1)
    first = row * one.stride - one.top
    return range(max(0, first), max(0, min(one.lines, first + one.reach)))


def check(chain: Chain) -> None:
    """Play the schedule: what a step reads is in memory, each row is made once, and the moments are those of `moments`.

    Rows that are never needed are never made; a buffer has a place for every row that it holds.
    """
    held: list[list[int]] = [[] for _ in chain.ops]
    made = [0] * len(chain.ops)
    fallen: list[tuple[int, set[int]]] = []  # after each step: rows written, rows of the input read in it
    for step in chain.steps:
        read: set[int] = set()
        for k, (tile, one) in enumerate(zip(step, chain.passes, strict=True)):
            assert tile.start == made[k] and tile.end <= one.rows
            held[k] = [row for row in held[k] if row >= tile.kept] + list(range(tile.start, tile.end))
            assert held[k] == list(range(min(tile.kept, tile.end), tile.end))
            if k < len(chain.ops) - 1:
                assert len(held[k]) <= chain.buffer_rows[k]
            for row in range(tile.start, tile.end):
                if k == 0:
                    read |= set(seen(one, row))
                else:
                    assert set(seen(one, row)) <= set(held[k - 1])
            made[k] = tile.end
        fallen.append((made[-1], read))
    assert made[-1] == chain.passes[-1].rows
    unread: set[int] = set()
    expected = []
    for written, read in reversed(fallen):
        if unread:
            expected.append((written, min(unread)))
        unread |= read
    found = dict(chain.moments())
    for written, line in expected:
        assert found[written] <= line, "a row that is still to be read counts as read"


@pytest.mark.parametrize("lines", [1, 2, 3, 5, 8, 9])
def test_every_pair_of_windows_finds_its_rows_in_memory(lines: int) -> None:
    for first in passes_over(lines):
        for second, band in itertools.product(passes_over(first.rows), (1, 2, 3)):
            check(Chain((0, 1), (first, second), band))


def test_chains_of_three_and_four_find_their_rows_in_memory() -> None:
    some = [(1, 1), (3, 1), (3, 2), (2, 2), (5, 1)]
    for lines, shapes, band in itertools.product((7, 10), itertools.product(some, repeat=4), (1, 2)):
        passes: list[RowPass] = []
        for taps, stride in shapes:
            above = passes[-1].rows if passes else lines
            rows, (top, _) = (f(above, taps, stride, 1, "same") for f in (windows, padding_around))
            passes.append(RowPass(above, rows, taps, stride, top))
        check(Chain(tuple(range(3)), tuple(passes[:3]), band))
        check(Chain(tuple(range(4)), tuple(passes), band))


def block(side: int = 12, stride: int = 1, *, is_residual: bool = True) -> Graph:
    """Expansion, depthwise convolution, projection, and a sum with the input where the shapes are the same."""
    builder = Int8Builder(0)
    x = builder.input(side, side, 8)
    y = builder.conv(x, 48, (1, 1), ConvOptions())
    y = builder.depthwise(y, (3, 3), ConvOptions(stride=(stride, stride)))
    y = builder.conv(y, 8, (1, 1), ConvOptions())
    if is_residual:
        y = builder.elementwise("ADD", x, y, ActivationOptions())
    return builder.graph(y)


def chains_of(graph: Graph) -> list[tuple[int, ...]]:
    links = Links(graph)
    order = range(len(graph.ops))
    return [chain.ops for position in order for chain in links.starting_at(order, position)]


def test_a_sum_ends_a_chain_and_a_tensor_that_is_read_twice_is_in_none() -> None:
    assert chains_of(block()) == [(0, 1), (0, 1, 2), (0, 1, 2, 3), (1, 2), (1, 2, 3), (2, 3)]
    builder = Int8Builder(0)
    x = builder.conv(builder.input(6, 6, 4), 4, (1, 1), ConvOptions())
    y = builder.conv(x, 4, (1, 1), ConvOptions())
    z = builder.elementwise("ADD", x, y, ActivationOptions())
    w = builder.conv(z, 4, (1, 1), ConvOptions())
    assert chains_of(builder.graph(w)) == [(1, 2)]


def test_a_sum_of_a_tensor_with_itself_or_a_repeated_one_is_in_no_chain() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(6, 6, 4), 4, (1, 1), ConvOptions())
    assert chains_of(builder.graph(builder.elementwise("ADD", x, x, ActivationOptions()))) == []
    builder = Int8Builder(0)
    x = builder.conv(builder.input(6, 6, 4), 4, (1, 1), ConvOptions())
    assert chains_of(builder.graph(builder.elementwise("ADD", x, builder.constant(4), ActivationOptions()))) == []


def test_an_image_enlarged_and_joined_to_another_is_part_of_a_chain() -> None:
    graph = decoder()
    kinds = [op.kind for op in graph.ops]
    assert kinds[3:] == ["HARD_SWISH", "RESIZE_NEAREST_NEIGHBOR", "CONCATENATION", "CONV_2D", "LEAKY_RELU", "CONV_2D"]
    assert (2, 3, 4, 5, 6, 7, 8) in chains_of(graph)
    assert not any(chain[0] == 5 for chain in chains_of(graph)), "what it reads exists whole"


def test_what_is_written_beside_a_tensor_does_not_lie_over_it() -> None:
    """The tensor that is joined to the enlarged one is read while the output is written."""
    graph = decoder()
    links, sizes = Links(graph), [float(tensor.nbytes) for tensor in graph.tensors]
    problem = OverlapProblem(graph)
    (whole,) = [chain for chain in links.starting_at(range(len(graph.ops)), 2) if len(chain.ops) == 7]
    (stretch,) = [
        each for each in problem._stretches(range(len(graph.ops)), problem._sizes(None)[0]) if each.chain == whole
    ]
    skipped, output = graph.ops[0].outputs[0], graph.ops[-1].outputs[0]
    shares = {problem.buffers.tensors[b][0]: share for b, share in stretch.need.items()}
    assert shares[skipped] == shares[output] == 1.0
    assert shares[graph.ops[5].outputs[0]] < 0.3 and sizes[graph.ops[5].outputs[0]] == 16 * 16 * 24


def test_lines_that_an_image_repeats_unevenly_are_in_no_chain() -> None:
    builder = Builder(0)
    x = builder.conv(builder.input(4, 4, 2), 4, (1, 1), ConvOptions())
    x = builder.plain("RESIZE_NEAREST_NEIGHBOR", (x, builder.integers([6, 8])), (1, 6, 8, 4), options=(0, 0))
    assert chains_of(builder.graph(builder.conv(x, 4, (1, 1), ConvOptions()))) == []


def test_an_order_that_parts_two_ops_parts_their_chain() -> None:
    links = Links(block())
    assert [chain.ops for chain in links.starting_at((0, 1, 3, 2), 0)] == [(0, 1)]


def test_a_whole_residual_block_needs_its_input_and_some_rows() -> None:
    graph = block()
    plain = OverlapProblem(graph, may_fuse=()).solve()
    assert plain.peak_bytes == 12 * 12 * (8 + 48)
    # Four rows of the expansion, two of the depthwise convolution and of the projection; the sum lies over the input.
    assert resources(graph, "overlap").peak_bytes == 12 * 12 * 8 + 12 * (4 * 48 + 2 * 48 + 2 * 8)
    assert OverlapProblem(graph).chains(range(4))[0].ops == (0, 1, 2, 3)


def test_no_more_ops_are_fused_than_the_peak_needs() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(16, 16, 16), 32, (1, 1), ConvOptions())  # 4,096 B, which must be, and 8,192 B
    x = builder.pool("MAX_POOL_2D", x, PoolOptions((2, 2), (2, 2)))  # 2,048 B over the input
    x = builder.conv(x, 8, (1, 1), ConvOptions())
    x = builder.conv(x, 8, (3, 3), ConvOptions())
    found = OverlapProblem(builder.graph(x))
    assert [chain.ops for chain in found.chains(range(4))] == [(0, 1)]


def peaks(position: int, end: int, stretches: Sequence[Stretch], sizes: Sequence[float]) -> list[float]:
    """Of every way from here to the end."""
    if position == end:
        return [0.0]
    found = []
    for each in (stretch for stretch in stretches if stretch.start == position):
        need = sum(share * sizes[b] for b, share in each.need.items())
        found += [max(need, rest) for rest in peaks(each.end, end, stretches, sizes)]
    return found


def test_the_best_way_is_the_best_of_all_ways() -> None:
    for graph in (block(), block(9, 2, is_residual=False), block(5)):
        order, problem = range(len(graph.ops)), OverlapProblem(graph)
        sizes, _ = problem._sizes(None)
        stretches = list(problem._stretches(order, sizes))
        assert problem.measure(order).peak_bytes == min(peaks(0, len(order), stretches, sizes))


def test_one_op_stands_for_a_chain_and_its_buffers_are_outputs_that_nobody_reads() -> None:
    graph = block()
    (chain,) = [c for c in Links(graph).starting_at(range(4), 0) if len(c.ops) == 4]
    fused = fused_graph(graph, [replace(chain, band=3)])
    (op,) = fused.ops
    assert op.kind == "CONV_2D+DEPTHWISE_CONV_2D+CONV_2D+ADD"
    assert isinstance(op.options, FusedOptions) and op.options.ops == graph.ops
    assert list(fused.activations_of(op)) == list(graph.inputs)
    assert op.outputs[0] == graph.outputs[0]
    assert [fused.tensors[t].shape for t in op.outputs[1:]] == [(1, 5, 12, 48), (1, 3, 12, 48), (1, 3, 12, 8)]
    assert {i for o in graph.ops for i in graph.constants_of(o)} == set(fused.constants_of(op))
