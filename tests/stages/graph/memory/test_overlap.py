"""The overlap peak of the resource model: by hand, and beside what the firmware's layout really takes."""

from __future__ import annotations

import pytest

from stages.firmware.model_source import compile_model
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.memory.overlap import OverlapProblem, moments
from stages.graph.memory.resources import resources
from tests.stages.graph.int8_graphs import Int8Builder


def chain(*layers: tuple[str, int]) -> Graph:
    builder = Int8Builder(0)
    x = builder.input(24, 24, 4)
    for kind, amount in layers:
        if kind == "conv":
            x = builder.conv(x, amount, (3, 3), ConvOptions())
        elif kind == "pointwise":
            x = builder.conv(x, amount, (1, 1), ConvOptions())
        elif kind == "depthwise":
            x = builder.depthwise(x, (3, 3), ConvOptions(stride=(amount, amount)))
        else:
            x = builder.pool("MAX_POOL_2D", x, PoolOptions((amount, amount), (amount, amount)))
    return builder.graph(x)


def peak(graph: Graph) -> int:
    return resources(graph, "overlap").peak_bytes


def test_a_pointwise_layer_needs_the_larger_of_its_tensors() -> None:
    graph = chain(("pointwise", 10))
    assert resources(graph).peak_bytes == 24 * 24 * (4 + 10)
    assert peak(graph) == 24 * 24 * 10


def test_a_convolution_that_keeps_its_size_works_in_place() -> None:
    assert peak(chain(("conv", 4))) == 24 * 24 * 4


def test_a_convolution_that_grows_needs_its_output_and_hardly_more() -> None:
    # After row 21 of 24 the lines up to 22 are in the buffer: 23 rows of outputs and no line to be read would be less.
    rows = [24 * (8 * done + 4 * (24 - (done + 1))) for done in range(1, 23)]
    assert peak(chain(("conv", 8))) == max(24 * 24 * 8, *rows) == 24 * 24 * 8


def test_an_operand_that_is_needed_again_counts_in_full() -> None:
    builder = Int8Builder(0)
    x = builder.input(8, 8, 4)
    y = builder.conv(x, 4, (3, 3), ConvOptions())
    graph = builder.graph(builder.elementwise("ADD", x, y, ActivationOptions()))
    assert OverlapProblem(graph, may_fuse=()).solve().peak_bytes == 2 * 8 * 8 * 4
    assert resources(graph).peak_bytes == 2 * 8 * 8 * 4
    assert peak(graph) == 8 * 8 * 4 + 2 * 8 * 4  # as a chain: two rows of the convolution at a time


# Of a map of so many lines: after each row of the output, the first line that is still to be read from the input.
@pytest.mark.parametrize(
    ("kind", "lines", "kernel", "options", "unread"),
    [
        ("CONV_2D", 6, 3, ConvOptions(), [2, 3, 4, 5]),  # what a row sees is in the buffer before it is written
        ("CONV_2D", 6, 5, ConvOptions(), [3, 4, 5]),
        ("CONV_2D", 7, 3, ConvOptions(stride=(2, 2)), [2, 4, 6]),
        ("CONV_2D", 6, 1, ConvOptions(stride=(2, 2)), [2, 4]),  # the line between is not read at all
        ("CONV_2D", 6, 3, ConvOptions(padding="valid"), [3, 4, 5]),
        ("CONV_2D", 6, 3, ConvOptions(dilation=(2, 2)), [0, 0, 0, 1, 2, 3]),  # straight from the input
        ("DEPTHWISE_CONV_2D", 8, 3, ConvOptions(), [3, 3, 5, 5, 7, 7]),  # two lines at a time, one step ahead
        ("DEPTHWISE_CONV_2D", 9, 3, ConvOptions(stride=(2, 2)), [3, 5, 7]),
        ("DEPTHWISE_CONV_2D", 9, 3, ConvOptions(stride=(3, 3)), [0, 3, 6]),
        ("DEPTHWISE_CONV_2D", 6, 5, ConvOptions(), [0, 0, 0, 1, 2, 3]),
        ("DEPTHWISE_CONV_2D", 4, 3, ConvOptions(dilation=(2, 2)), [0, 0, 0, 1]),
        ("DEPTHWISE_CONV_2D", 4, 3, ConvOptions(depth_multiplier=2), [0, 0, 1, 2]),
        ("MAX_POOL_2D", 6, 2, PoolOptions((2, 2), (2, 2)), [0, 2, 4]),
    ],
)
def test_moments_are_those_of_the_kernels(
    kind: str, lines: int, kernel: int, options: ConvOptions | PoolOptions, unread: list[int]
) -> None:
    builder = Int8Builder(0)
    x = builder.input(lines, 12, 2)
    if isinstance(options, PoolOptions):
        y = builder.pool(kind, x, options)
    elif kind == "CONV_2D":
        y = builder.conv(x, 3, (kernel, kernel), options)
    else:
        y = builder.depthwise(x, (kernel, kernel), options)
    rows = builder.tensors[y].shape[1]
    graph = builder.graph(y)
    assert moments(graph, graph.ops[0]) == tuple((n / rows, 1 - line / lines) for n, line in enumerate(unread, 1))


def test_an_op_that_reads_as_fast_as_it_writes_has_no_moment_worse_than_either_end() -> None:
    builder = Int8Builder(0)
    x = builder.input(4, 4, 3)
    flat = builder.flatten(
        builder.conv(builder.elementwise("ADD", x, x, ActivationOptions()), 2, (1, 1), ConvOptions())
    )
    graph = builder.graph(builder.softmax(builder.fully_connected(flat, 5, ActivationOptions())))
    found = {op.kind: moments(graph, op) for op in graph.ops}
    assert found.pop("RESHAPE") is None  # shares its input's memory
    assert found == {"ADD": (), "CONV_2D": (), "FULLY_CONNECTED": (), "SOFTMAX": ()}
    gate = builder.elementwise("MUL", x, builder.input(1, 1, 3), ActivationOptions())
    assert moments(builder.graph(gate), builder.ops[-1]) is None  # operands of two shapes


def test_an_op_without_a_known_order_is_counted_as_before() -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.mean(builder.input(6, 6, 4), (1, 2), keep=False))
    assert moments(graph, graph.ops[0]) is None
    assert peak(graph) == resources(graph).peak_bytes == 6 * 6 * 4 + 4


@pytest.mark.parametrize(
    "layers",
    [
        (("conv", 8), ("depthwise", 1), ("pointwise", 16), ("depthwise", 2), ("pointwise", 32)),
        (("conv", 8), ("pool", 2), ("conv", 16), ("pool", 2)),
        (("pointwise", 24), ("depthwise", 1), ("pointwise", 4), ("conv", 12)),
    ],
    ids=["separable", "pooled", "inverted"],
)
def test_the_firmware_takes_what_the_model_says(layers: tuple[tuple[str, int], ...]) -> None:
    """But for the rounding to 16 bytes and a row; with and without chains."""
    graph = chain(*layers)
    row = max(tensor.nbytes // 24 for tensor in graph.tensors if tensor.data is None)
    for may_fuse in ((), None):
        problem = OverlapProblem(graph, may_fuse)
        chains = problem.chains(range(len(graph.ops)))
        compiled = compile_model(graph, weights="fast", runtime="overlap", chains=chains)
        modelled = problem.solve().peak_bytes
        assert modelled - row <= compiled.layout.lower_bound_bytes <= modelled + row + 48
        assert compiled.layout.arena_bytes < resources(graph).peak_bytes


def test_shares_add_up_to_the_peak() -> None:
    graph = chain(("conv", 8), ("pool", 2))
    found = OverlapProblem(graph).solve()
    sizes = [graph.tensors[index].nbytes for index in found.bottleneck]
    assert sum(share * size for share, size in zip(found.shares, sizes, strict=True)) == pytest.approx(found.peak_bytes)
