"""The distances of stages/firmware/kernels/access_order.py against the loads and stores of the kernels themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.access_order import WHOLE, distances, overlap_distance, torn_blocks
from stages.firmware.model_source import CompiledModel, compile_model
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.memory.arena_layout import arena_layout
from tests.stages.firmware.host_models import build_host_models, tflm_outputs
from tests.stages.firmware.kernels.access_trace import Layer, layer_of, layer_of_chain, traces
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs

WAYS: tuple[Weights | None, ...] = (None, "fast", "small")
KERNELS = [
    *("fast_matrix", "fast_conv_2d", "fast_depthwise", "fast_add", "matrix_multiply", "conv_2d", "depthwise_conv_2d"),
    *("average_pool_2d", "max_pool_2d", "add", "softmax", "small_matrix", "small_conv_2d"),
    *("small_depthwise", "fast_vector"),
]


def random_layer(kind: str, seed: int) -> Graph:
    """Small, odd shapes: every size from one, strides and windows of all kinds."""
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width, channels, outputs = (int(n) for n in rng.integers(1, 9, 4))
    window = (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    stride = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    padding = "same" if rng.integers(2) else "valid"
    if padding == "valid":
        height, width = height + window[0], width + window[1]
    if kind == "softmax":
        return builder.graph(builder.softmax(builder.flatten(builder.input(1, 1, channels * outputs))))
    x = builder.input(height, width, channels)
    if kind == "pointwise":
        return builder.graph(builder.conv(x, outputs, (1, 1), ConvOptions()))
    if kind == "add":
        return builder.graph(builder.elementwise("ADD", x, x, ActivationOptions()))
    if kind.endswith("POOL_2D"):
        window = tuple(min(side, size) for side, size in zip(window, (height, width), strict=True))
        return builder.graph(builder.pool(kind, x, PoolOptions(window, stride, padding)))
    if kind == "depthwise_3x3":
        options = ConvOptions(stride=tuple(min(2, step) for step in stride), padding="same")
        return builder.graph(builder.depthwise(x, (3, 3), options))
    dilation = (1, 1) if seed % 3 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    options = ConvOptions(
        stride=stride if dilation == (1, 1) else (1, 1),
        padding=padding if dilation == (1, 1) else "same",
        dilation=dilation,
    )
    if kind == "depthwise":
        multiplier = int(rng.integers(1, 4)) if seed % 2 else 1
        return builder.graph(builder.depthwise(x, window, replace(options, depth_multiplier=multiplier)))
    return builder.graph(builder.conv(x, outputs, window, options))


KINDS = (
    *("pointwise", "conv", "depthwise", "depthwise_3x3", "add", "softmax"),
    *("AVERAGE_POOL_2D", "MAX_POOL_2D"),
)


def without_reshape(graph: Graph) -> Graph:
    """A network of its last op alone."""
    op = graph.ops[-1]
    return replace(graph, ops=(op,), inputs=(op.inputs[0],))


def layers(count: int, seed: int = 0) -> list[Layer]:
    graphs = [without_reshape(random_layer(kind, seed + n)) for kind in KINDS for n in range(count)]
    return every_way(graphs)


def every_way(graphs: Iterable[Graph]) -> list[Layer]:
    """On the portable, the fast and the small kernel, if that lets its output overlap its input at all."""
    found = (layer_of(graph, weights) for graph in graphs for weights in WAYS)
    return [layer for layer in found if layer.call.kernel in KERNELS]


def long_matrix(pixels: int, depth: int, outputs: int, weights: Weights = "fast") -> Layer:
    """More pixels than one run of the kernel's buffer holds."""
    builder = Int8Builder(pixels)
    return layer_of(
        builder.graph(builder.conv(builder.input(pixels, 1, depth), outputs, (1, 1), ConvOptions())), weights
    )


def check(found: list[Layer], folder: Path) -> dict[str, int]:
    """Compares, and counts layers by kernel."""
    seen: dict[str, int] = {}
    closer = 0
    for layer, trace in zip(found, traces(found, folder), strict=True):
        distance = overlap_distance(layer.graph, layer.graph.ops[0], layer.call)
        assert distance == (-WHOLE if trace.distance is None else trace.distance), str(layer)
        assert trace.is_right_there, str(layer)
        closer += trace.distance is None or not trace.is_right_closer
        seen[layer.call.kernel] = seen.get(layer.call.kernel, 0) + 1
    # A byte that is lost changes the result, but for a maximum that it was not and a zero that it was multiplied by.
    assert closer >= 0.9 * len(found)
    return seen


def test_every_kernel_reads_and_writes_as_its_distance_says(tmp_path: Path) -> None:
    sizes = ((301, 16, 5), (300, 16, 40), (257, 31, 31), (64, 64, 128), (1, 40, 30))
    ways: tuple[Weights, ...] = ("fast", "small")
    longer = [long_matrix(*size, weights) for size in sizes for weights in ways]
    seen = check([*layers(25), *longer], tmp_path)
    assert sorted(seen) == sorted(KERNELS)


CHAIN_KINDS = ("pointwise", "conv", "depthwise", "depthwise_3x3", "AVERAGE_POOL_2D", "MAX_POOL_2D")


def random_chain(seed: int) -> Graph:
    """Two to four layers behind each other, of all kinds, with odd shapes; sometimes a sum with the input ends them."""
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width, channels = int(rng.integers(4, 12)), int(rng.integers(2, 7)), int(rng.integers(1, 9))
    source = x = builder.input(height, width, channels)
    for _ in range(int(rng.integers(2, 5))):
        x = _behind(builder, x, CHAIN_KINDS[int(rng.integers(len(CHAIN_KINDS)))])
    if seed % 3 == 0 and builder.tensors[x].shape[1:3] == (height, width):
        x = builder.conv(x, channels, (1, 1), ConvOptions())
        x = builder.elementwise("ADD", x, source, ActivationOptions())
    return builder.graph(x)


def _behind(builder: Int8Builder, x: int, kind: str) -> int:
    rng = builder.rng
    _, *sides, _ = builder.tensors[x].shape
    padding = "same" if rng.integers(3) else "valid"
    window = tuple(int(min(rng.integers(1, 6), side if padding == "valid" else 9)) for side in sides)
    stride = tuple(int(rng.choice([1, 1, 1, 2, 3])) for _ in sides)
    options = ConvOptions(stride=stride, padding=padding)
    if padding == "same" and rng.integers(5) == 0:
        options = ConvOptions(dilation=(int(rng.integers(1, 3)), int(rng.integers(1, 3))))
    if kind == "pointwise":
        return builder.conv(x, int(rng.integers(2, 12)), (1, 1), ConvOptions())
    if kind.endswith("POOL_2D"):
        window = tuple(min(side, size) for side, size in zip(window, sides, strict=True))
        return builder.pool(kind, x, PoolOptions(window, stride, padding))
    if kind == "depthwise_3x3":
        return builder.depthwise(x, (3, 3), ConvOptions(stride=tuple(min(2, step) for step in stride)))
    if kind == "depthwise":
        return builder.depthwise(x, window, replace(options, depth_multiplier=int(rng.choice([1, 1, 2]))))
    return builder.conv(x, int(rng.integers(2, 9)), window, options)


def chain_layers(count: int, seed: int = 0) -> list[Layer]:
    """Chains on every kind of kernels; those of which no band is narrower than a pixel pair."""
    found = []
    for number in range(seed, seed + count):
        graph = random_chain(number)
        if all(graph.tensors[op.outputs[0]].shape[2] > 1 for op in graph.ops):
            band = 1 + number % 4
            found += [layer_of_chain(graph, weights, band) for weights in KERNELS_OF[number % 3]]
    return found


KERNELS_OF: tuple[tuple[Weights | None, ...], ...] = ((None, "fast"), ("fast", "small"), ("small", None))


def check_chains(found: list[Layer], folder: Path) -> int:
    """How many stand as close as they can."""
    close = 0
    for layer, trace in zip(found, traces(found, folder), strict=True):
        op = layer.graph.ops[0]
        (distance,) = {distances(layer.graph, [layer.call])[0, tensor] for tensor in layer.graph.activations_of(op)}
        assert trace.distance is None or trace.distance <= distance, str(layer)
        assert trace.is_right_there, str(layer)
        close += distance == (-WHOLE if trace.distance is None else trace.distance)
    return close


def test_a_chain_loses_no_byte_of_its_input_and_writes_nothing_beside_its_buffers(tmp_path: Path) -> None:
    found = chain_layers(150)
    assert len(found) > 150
    assert check_chains(found, tmp_path) > 0.8 * len(found)  # a dilated window may begin later than its first line
    kernels = {part.kernel for layer in found for part in layer.call.parts}
    assert kernels >= set(KERNELS) - {"softmax", "fast_vector"}  # which sees one pixel, of which no row can be made


def test_a_kernel_that_nobody_has_described_must_not_overlap() -> None:
    graph = random_layer("conv", 0)
    call = replace(layer_of(graph, None).call, kernel="a_new_one")
    assert overlap_distance(graph, graph.ops[0], call) is None


@pytest.mark.parametrize(("channels", "outputs", "gain"), [(8, 16, 0), (16, 8, 0), (8, 8, 0)])
def test_a_long_pointwise_layer_needs_no_more_than_the_larger_of_its_tensors(
    channels: int, outputs: int, gain: int
) -> None:
    layer = long_matrix(48 * 48, channels, outputs)
    distance = overlap_distance(layer.graph, layer.graph.ops[0], layer.call)
    assert distance is not None
    sizes = np.array([channels, outputs]) * 48 * 48
    assert max(0, distance) + sizes[0] <= sizes.max() + gain


def branching_network(seed: int) -> Graph:
    """Depthwise layers of more channels than one block of `small_depthwise`, among branches that push them around."""
    builder = Int8Builder(seed)
    rng = builder.rng
    side = int(rng.integers(6, 11))
    pool = [builder.input(side, side, int(rng.integers(1, 5)))]
    for _ in range(9):
        x = pool[int(rng.integers(max(0, len(pool) - 3), len(pool)))]
        if builder.tensors[x].shape[3] > 32 and rng.random() < 0.7:
            stride = (int(rng.integers(1, 3)),) * 2
            pool.append(builder.depthwise(x, (3, 3), ConvOptions(stride=stride)))
        else:
            pool.append(builder.conv(x, int(rng.integers(3, 60)), (1, 1), ConvOptions()))
    return builder.graph(*pool[-3:])


def laid_out_without_pixels(model: CompiledModel) -> CompiledModel:
    """As if only distances mattered."""
    layout = arena_layout(model.graph, distances=distances(model.graph, model.calls))
    return replace(model, layout=layout)


def torn(model: CompiledModel) -> set[int]:
    return torn_blocks(model.graph, model.calls, dict(enumerate(model.layout.offsets)))


def small_models(seeds: Iterable[int]) -> list[CompiledModel]:
    graphs = [branching_network(seed) for seed in seeds]
    return [compile_model(graph, weights="small", runtime="overlap", chains=()) for graph in graphs]


def test_no_block_of_channels_writes_over_what_a_later_one_reads() -> None:
    models = small_models(range(60))
    assert not any(map(torn, models))
    assert sum(bool(torn(laid_out_without_pixels(model))) for model in models) >= 2  # else nothing was at stake


@pytest.mark.slow
def test_where_blocks_would_be_torn_bytes_are_wrong_and_where_they_are_not_all_are_right(tmp_path: Path) -> None:
    models = [model for model in small_models(range(60)) if torn(laid_out_without_pixels(model))]
    both = [each for model in models for each in (model, laid_out_without_pixels(model))]
    built = build_host_models([model.graph for model in both], tmp_path, models=both)
    for number, model in enumerate(models):
        inputs = random_inputs(model.graph, 2, seed=number)
        expected = tflm_outputs(model.graph, inputs)
        assert np.array_equal(built.run(2 * number, inputs), expected)
        assert not np.array_equal(built.run(2 * number + 1, inputs), expected)
