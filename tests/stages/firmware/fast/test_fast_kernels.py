"""The fast kernels on the twin against TensorFlow Lite Micro, bit for bit, on random shapes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages.firmware.assembly.instructions import load, move, multiply
from stages.firmware.assembly.schedule import scheduled
from stages.firmware.assembly.small_depthwise import SmallDepthwiseShape, is_possible
from stages.firmware.fast.add import linear_sum
from stages.firmware.fast.dot import Weights
from stages.firmware.model_source import CompiledModel, compile_model
from stages.graph.arithmetic.fixed_point import quantised_multiplier, rescale
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions, Quantisation
from tests.stages.firmware.host_models import build_host_models, tflm_outputs
from tests.stages.firmware.twin_models import twin_outputs
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network

_ACTIVATIONS = ("none", "relu", "relu6")


def _rescaled(graph: Graph, seed: int) -> Graph:
    """For some seeds a finer output scale: shifts to the left, to the right and none, mixed in one layer."""
    power = (0, 0, 0, 5, 7, 13)[seed % 6]
    result = graph.ops[-1].outputs[0]
    tensors = list(graph.tensors)
    grid = tensors[result].quantisation
    assert grid
    tensors[result] = replace(
        tensors[result], quantisation=Quantisation((grid.scale[0] * 2.0**-power,), grid.zero_point)
    )
    if power:  # small weights and biases, so that the outputs are not all saturated
        for index in graph.ops[-1].inputs[1:]:
            data = tensors[index].data
            assert data is not None
            tensors[index] = replace(tensors[index], data=(data / 2.0 ** min(power, 6)).astype(data.dtype))
        source, weights, bias = (tensors[index] for index in graph.ops[-1].inputs)
        assert source.quantisation and weights.quantisation
        # TFLM compares the bias's scale with its factors' before it accepts a large multiplier.
        scale = float(np.float32(source.quantisation.scale[0] * weights.quantisation.scale[0]))
        tensors[graph.ops[-1].inputs[2]] = replace(bias, quantisation=Quantisation((scale,), (0,)))
    return replace(graph, tensors=tuple(tensors))


def _conv(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    kernel = (int(rng.integers(1, 7)), int(rng.integers(1, 6)))
    height, width = (int(rng.integers(side, side + 9)) for side in kernel)
    channels = int(rng.choice([1, 2, 3, 4, 5, 8, 16, 33]))
    options = ConvOptions(
        stride=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        padding=("same", "valid")[seed % 2],
        activation=_ACTIVATIONS[seed % 3],
    )
    x = builder.input(height, width, channels)
    outputs = int(rng.integers(4, 20))
    return _rescaled(builder.graph(builder.conv(x, outputs, kernel, options, per_channel=seed % 4 > 0)), seed)


def _one_channel(seed: int) -> Graph:
    """Pixels that lie a word apart, or less."""
    builder = Int8Builder(seed)
    options = ConvOptions(stride=(2, 1 + seed % 3), padding=("same", "valid")[seed % 2])
    x = builder.input(11, 9 + seed % 2, 1)
    return builder.graph(builder.conv(x, 5 + seed, (4, 3 + seed % 3), options))


def _pointwise(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width = (int(n) for n in rng.integers(1, 9, 2))
    channels = int(rng.choice([1, 2, 3, 7, 16, 63, 64, 101, 159, 161, 330]))
    x = builder.input(height, width, channels)
    options = ConvOptions(activation=_ACTIVATIONS[seed % 3])
    outputs = int(rng.integers(4, 30))
    return _rescaled(builder.graph(builder.conv(x, outputs, (1, 1), options, per_channel=seed % 4 > 0)), seed)


def _strided(seed: int) -> Graph:
    """Windows of one pixel that leave pixels out, of channels that are no fours."""
    builder = Int8Builder(seed)
    x = builder.input(5, 6 + seed % 2, (6, 33, 5, 34)[seed % 4])
    options = ConvOptions(stride=(1 + seed % 2, 2), activation=_ACTIVATIONS[seed % 3])
    return builder.graph(builder.conv(x, 5 + seed, (1, 1), options))


def _depthwise(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width = (int(n) for n in rng.integers(3, 12, 2))
    options = ConvOptions(
        stride=(1 + seed % 2, 1 + seed // 2 % 2),
        padding=("same", "valid")[seed // 4 % 2],
        activation=_ACTIVATIONS[seed % 3],
    )
    x = builder.input(height, width, int(rng.integers(1, 40)))
    return _rescaled(builder.graph(builder.depthwise(x, (3, 3), options, per_channel=seed % 5 > 0)), seed)


def _windows(seed: int) -> Graph:
    """Depthwise windows, strides and multipliers of all kinds; images wider than the buffer."""
    builder = Int8Builder(seed)
    rng = builder.rng
    kernel = ((9, 1), (10, 1), (15, 1), (1, 7), (5, 5), (2, 3), (4, 3), (3, 3))[seed % 8]
    height, width = (int(rng.integers(side, side + 8)) for side in kernel)
    channels = int(rng.choice([1, 3, 4, 8, 9, 17, 40]))
    if seed % 8 == 7:  # tiles
        height, width, channels = 7, 30 + seed % 3, 50 + 30 * (seed // 8 % 3)
    options = ConvOptions(
        stride=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        padding=("same", "valid")[seed // 2 % 2],
        activation=_ACTIVATIONS[seed % 3],
        depth_multiplier=(1, 1, 1, 3)[seed % 4],
    )
    x = builder.input(height, width, channels)
    return _rescaled(builder.graph(builder.depthwise(x, kernel, options, per_channel=seed % 5 > 0)), seed)


def _fully_connected(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    x = builder.flatten(builder.input(1, 1, int(rng.choice([1, 5, 64, 127, 321, 640, 1100]))))
    options = ActivationOptions(("none", "relu")[seed % 2])
    outputs = int(rng.integers(4, 30))
    return _rescaled(builder.graph(builder.fully_connected(x, outputs, options, per_channel=seed % 3 == 0)), seed)


def _few_outputs(seed: int) -> Graph:
    """Fewer than the loops' four, behind a layer with pixels or alone."""
    builder = Int8Builder(seed)
    x = builder.input(3, 2, 7)
    x = builder.flatten(builder.conv(x, 5, (2, 2), ConvOptions()) if seed % 2 else x)
    return builder.graph(builder.fully_connected(x, 1 + seed % 3, ActivationOptions(), per_channel=seed % 4 > 1))


def _add(seed: int) -> Graph:
    builder = Int8Builder(seed)
    x = builder.input(3, 5, 7)
    other = builder.conv(x, 7, (1, 1), ConvOptions())
    kind = "SUB" if seed % 4 == 3 else "ADD"
    return builder.graph(builder.elementwise(kind, x, other, ActivationOptions(_ACTIVATIONS[seed % 3])))


def _average_pool(seed: int) -> Graph:
    builder = Int8Builder(seed)
    side = (2, 4, 9, 17)[seed % 4]  # of 17 x 17 pixels the sum needs more than 16 bits
    x = builder.input(side, side + seed % 2, 3 + seed % 7)
    options = PoolOptions((side, side), (1, 1), ("valid", "same")[seed // 2 % 2], _ACTIVATIONS[seed % 3])
    return builder.graph(builder.pool("AVERAGE_POOL_2D", x, options))


def _max_pool(seed: int) -> Graph:
    builder = Int8Builder(seed)
    x = builder.input(7, 6 + seed % 3, 3 + seed)
    options = PoolOptions(
        (2 + seed % 2, 2), (1 + seed % 2, 2), ("valid", "same")[seed // 2 % 2], _ACTIVATIONS[seed % 3]
    )
    return builder.graph(builder.pool("MAX_POOL_2D", x, options))


MAKERS = {
    "conv": _conv,
    "one_channel": _one_channel,
    "pointwise": _pointwise,
    "strided": _strided,
    "depthwise": _depthwise,
    "windows": _windows,
    "fully_connected": _fully_connected,
    "few_outputs": _few_outputs,
    "add": _add,
    "average_pool": _average_pool,
    "max_pool": _max_pool,
    "network": residual_network,
}
FAST = {
    "conv": "fast_conv_2d",
    "pointwise": "fast_matrix",
    "depthwise": "fast_depthwise",
    "fully_connected": "fast_vector",
}
SMALL = {
    "conv": "small_conv_2d",
    "pointwise": "small_matrix",
    "depthwise": "small_depthwise",
    "fully_connected": "small_matrix",
}


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["fast", "small"])
def test_what_surrounds_the_inner_loops_is_clean_under_sanitizers(weights: Weights, tmp_path: Path) -> None:
    """And the inner loops in plain C, on the same packed weights, give the bits of TFLM as well."""
    graphs = [make(seed) for make in MAKERS.values() for seed in (1, 4, 5)]
    host = build_host_models(graphs, tmp_path, weights)
    for index, graph in enumerate(graphs):
        inputs = random_inputs(graph, count=2, seed=5)
        np.testing.assert_array_equal(host.run(index, inputs), tflm_outputs(graph, inputs), err_msg=str(graph.ops[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["fast", "small"])
def test_fast_kernels_on_the_twin_give_the_bits_of_tflm(weights: Weights, tmp_path: Path) -> None:
    """PIPELINE_FAST_KERNEL_SEEDS=1000 tries that many of each kind."""
    seeds = int(os.environ.get("PIPELINE_FAST_KERNEL_SEEDS", "8"))
    names = [(kind, seed) for kind in MAKERS for seed in range(seeds)]
    models = [_compiled(MAKERS[kind](seed), weights) for kind, seed in names]
    inputs = [random_inputs(model.graph, count=2, seed=5) for model in models]
    found = twin_outputs(models, inputs, tmp_path)
    inside = []
    for (kind, seed), model, values, outputs in zip(names, models, inputs, found, strict=True):
        expected = tflm_outputs(model.graph, values)
        np.testing.assert_array_equal(outputs, expected, err_msg=f"{kind} {seed}")
        inside.append(np.mean((expected > -128) & (expected < 127)))
    assert np.mean(inside) > 0.5  # saturated outputs would agree however wrong the scaling is
    for kind, kernel in FAST.items():
        chosen = [model.calls[-1].kernel for (name, _), model in zip(names, models, strict=True) if name == kind]
        small = SMALL[kind] if weights == "small" else kernel
        assert sum(one in (kernel, small, "fast_matrix") for one in chosen) >= 0.8 * len(chosen)
        assert small in chosen or kind == "depthwise"


def test_a_depthwise_window_without_registers_for_two_columns_takes_one(tmp_path: Path) -> None:
    in_twos = SmallDepthwiseShape(4, 4, 2, 2, 3, 1, lowest=-42, highest=-18, some_unshifted=False)
    assert not is_possible(in_twos)
    assert is_possible(replace(in_twos, columns=1))
    builder = Int8Builder(1)
    x = builder.depthwise(builder.input(9, 14, 6), (4, 4), ConvOptions(stride=(1, 3), activation="relu6"))
    model = _compiled(builder.graph(x), "small")
    assert model.calls[0].kernel == "small_depthwise"
    inputs = random_inputs(model.graph, count=2, seed=5)
    (outputs,) = twin_outputs([model], [inputs], tmp_path)
    np.testing.assert_array_equal(outputs, tflm_outputs(model.graph, inputs))


def _compiled(graph: Graph, weights: Weights = "fast") -> CompiledModel:
    return compile_model(graph, weights=weights, runtime="overlap", chains=())


def _kernels(graph: Graph) -> list[str]:
    return [call.kernel for call in _compiled(graph).calls]


def _single(options: ConvOptions, kernel: tuple[int, int] = (3, 3), outputs: int = 8) -> Graph:
    builder = Int8Builder(1)
    return builder.graph(builder.conv(builder.input(9, 9, 4), outputs, kernel, options))


def test_layers_that_the_fast_kernels_do_not_know_take_the_portable_ones() -> None:
    assert _kernels(_single(ConvOptions())) == ["fast_conv_2d"]
    assert _kernels(_single(ConvOptions(dilation=(2, 2)))) == ["conv_2d"]
    assert _kernels(_single(ConvOptions(), outputs=3)) == ["fast_conv_2d"]
    for window, options, kernel in (
        ((5, 3), ConvOptions(), "fast_depthwise"),
        ((7, 7), ConvOptions(depth_multiplier=2), "fast_depthwise"),
        ((3, 3), ConvOptions(stride=(3, 1)), "fast_depthwise"),
        ((3, 3), ConvOptions(dilation=(1, 2)), "depthwise_conv_2d"),
        ((9, 1), ConvOptions(), "fast_depthwise"),
        ((15, 1), ConvOptions(), "fast_depthwise"),
        ((8, 2), ConvOptions(), "fast_depthwise"),
        ((8, 8), ConvOptions(stride=(2, 2)), "fast_depthwise"),
        ((5, 13), ConvOptions(stride=(2, 2)), "depthwise_conv_2d"),
    ):
        builder = Int8Builder(2)
        assert _kernels(builder.graph(builder.depthwise(builder.input(9, 9, 4), window, options))) == [kernel]


@pytest.mark.parametrize(("width", "kernel"), [(1, "fast_depthwise"), (2, "depthwise_conv_2d")])
def test_lines_longer_than_16_bits_count_are_left_to_the_portable_kernel(width: int, kernel: str) -> None:
    builder = Int8Builder(2)
    x = builder.depthwise(builder.input(2, 2**16 - 1, 1), (2, width), ConvOptions())
    assert _kernels(builder.graph(x)) == [kernel]


def test_sums_that_might_leave_31_bits_are_left_to_the_portable_kernel() -> None:
    graph = _single(ConvOptions())
    bias = graph.ops[0].inputs[2]
    tensors = list(graph.tensors)

    def with_bias(value: int) -> Graph:
        tensors[bias] = replace(tensors[bias], data=np.full(8, value, np.int32))
        return replace(graph, tensors=tuple(tensors))

    assert _kernels(with_bias(2**29)) == ["fast_conv_2d"]
    assert _kernels(with_bias(2**30)) == ["conv_2d"]


def _scale(graph: Graph, tensor: int) -> float:
    quantisation = graph.tensors[tensor].quantisation
    assert quantisation is not None
    return quantisation.scale[0]


@pytest.mark.parametrize(("shift", "is_fast"), [(7, True), (8, False), (-24, True), (-25, False)])
def test_shifts_that_would_not_be_exact_are_left_to_the_portable_kernel(shift: int, is_fast: bool) -> None:
    """The zero point, shifted to the left by as much, would leave 31 bits."""
    builder = Int8Builder(1)
    x = builder.input(9, 9, 4)
    y = builder.conv(x, 8, (3, 3), ConvOptions(), per_channel=False)
    step = _scale(builder.graph(y), x) * _scale(builder.graph(y), builder.ops[0].inputs[1])
    builder.set_grid(y, step / 0.75 / 2.0**shift, 100)
    if shift < 0:  # sums so large that something is left of them
        bias = builder.ops[0].inputs[2]
        builder.tensors[bias] = replace(builder.tensors[bias], data=np.full(8, 2**28, np.int32))
    assert _kernels(builder.graph(y)) == ["fast_conv_2d" if is_fast else "conv_2d"]


def test_one_channel_that_hardly_counts_does_not_slow_its_layer(tmp_path: Path) -> None:
    graph = _single(ConvOptions())
    weights = graph.ops[0].inputs[1]
    grid = graph.tensors[weights].quantisation
    assert grid is not None
    scales = (*grid.scale[:3], grid.scale[3] * 1e-9, *grid.scale[4:])
    tensors = list(graph.tensors)
    tensors[weights] = replace(tensors[weights], quantisation=replace(grid, scale=scales))
    nearly = replace(graph, tensors=tuple(tensors))
    assert _kernels(nearly) == ["fast_conv_2d"]
    inputs = random_inputs(nearly, count=2, seed=5)
    (outputs,) = twin_outputs([_compiled(nearly)], [inputs], tmp_path)
    np.testing.assert_array_equal(outputs, tflm_outputs(nearly, inputs))


@pytest.mark.parametrize("kind", ["ADD", "SUB"])
@pytest.mark.parametrize(
    "steps", [(0.013, 0.021, 0.029), (0.02, 0.02, 0.02), (0.04, 0.01, 0.02), (0.03, 0.02, 0.06), (0.05, 0.001, 0.04)]
)
def test_one_linear_function_gives_every_sum_of_two_int8(kind: str, steps: tuple[float, float, float]) -> None:
    """All 65,536 pairs; of equal and even steps many are halves, which go away from zero."""
    builder = Int8Builder(2)
    x, y = builder.input(4, 4, 4), builder.constant(1, 4, 4, 4)
    total = builder.elementwise(kind, x, y, ActivationOptions())
    for tensor, step, zero_point in zip((x, y, total), steps, (-7, 20, 3), strict=True):
        builder.set_grid(tensor, step, zero_point)
    graph = builder.graph(total)
    found = linear_sum(graph, graph.ops[0], (-128, 127))
    assert found is not None
    first, second = (each.reshape(-1) for each in np.meshgrid(range(-128, 128), range(-128, 128)))
    largest = 2 * max(steps[:2])
    lifts = [quantised_multiplier(step / largest) for step in steps[:2]]
    a, b = (
        rescale(values - zero << 20, lift.mantissa, lift.shift)
        for values, zero, lift in zip((first, second), (-7, 20), lifts, strict=True)
    )
    last = quantised_multiplier(largest / 2**20 / steps[2])
    expected = np.clip(rescale(a + b if kind == "ADD" else a - b, last.mantissa, last.shift) + 3, -128, 127)
    products = (first * found.multipliers[0] >> 8) + (second * found.multipliers[1] >> 8)
    assert np.abs(products + found.addend).max() < 2**31
    assert (np.clip(products + found.addend >> found.right, -128, 127) == expected).all()


@pytest.mark.parametrize(("finer", "is_fast"), [(1.0, True), (2.0**12, True), (2.0**24, False)])
def test_sums_without_room_for_a_shift_are_left_to_the_portable_kernel(finer: float, is_fast: bool) -> None:
    builder = Int8Builder(1)
    total = builder.elementwise("ADD", builder.input(4, 4, 4), builder.constant(1, 4, 4, 4), ActivationOptions())
    builder.set_grid(total, _scale(builder.graph(total), total) / finer, 0)
    assert _kernels(builder.graph(total)) == ["fast_add" if is_fast else "add"]


def test_sums_with_a_column_a_row_or_a_vector_are_taken_row_by_row(tmp_path: Path) -> None:
    """As in broadcast-residual networks; rows of more and of fewer elements than a round of the assembly."""
    graphs = []
    for seed, (channels, window) in enumerate([(10, (1, 3)), (7, (5, 1)), (3, (5, 3)), (8, (1, 3))]):
        builder = Int8Builder(seed)
        x = builder.input(5, 3, channels)
        repeated = builder.pool("AVERAGE_POOL_2D", x, PoolOptions(window, window))
        operands = (x, repeated) if seed % 2 else (repeated, x)
        total = builder.elementwise("ADD", *operands, ActivationOptions("relu" if seed == 1 else "none"))
        graphs.append(builder.graph(builder.elementwise("ADD", total, builder.constant(channels), ActivationOptions())))
    assert {kernel for graph in graphs for kernel in _kernels(graph)[1:]} == {"fast_add_rows"}
    inputs = [random_inputs(graph, count=3, seed=2) for graph in graphs]
    for graph, given, outputs in zip(
        graphs, inputs, twin_outputs([_compiled(graph) for graph in graphs], inputs, tmp_path), strict=True
    ):
        np.testing.assert_array_equal(outputs, tflm_outputs(graph, given))


def test_layers_of_one_shape_share_their_assembly() -> None:
    builder = Int8Builder(3)
    x = builder.input(6, 6, 16)
    for _ in range(3):
        x = builder.conv(builder.depthwise(x, (3, 3), ConvOptions()), 16, (1, 1), ConvOptions())
    expected = [*("depthwise_3x3_1x1_2x6_64_0_96_16_1", "dot_2x4_1_8_0_32_64_16_32", "pair_rows", "widen_by_four")]
    assert sorted(_compiled(builder.graph(x)).assembly) == expected


def test_in_small_firmware_layers_of_any_depth_share_their_assembly() -> None:
    builder = Int8Builder(3)
    x = builder.input(6, 6, 16)
    for channels in (24, 20, 9):
        x = builder.conv(x, channels, (1, 1), ConvOptions())
    assert sorted(_compiled(builder.graph(x), "small").assembly) == ["dot_loop_2x4"]


def test_the_scheduled_order_computes_the_same_and_takes_fewer_cycles() -> None:
    """Every instruction once, and no value read before it is written or after it is overwritten."""
    code = [load("r1", "r0"), multiply("smlad", "r2", "r1", "r3", "r2"), load("r4", "r0", 4), move("r1", "r4")]
    order = scheduled(code)
    assert sorted(map(str, order)) == sorted(map(str, code))
    assert [str(one) for one in order] == [
        "ldr r1, [r0]",
        "ldr r4, [r0, #4]",
        "smlad r2, r1, r3, r2",
        "mov r1, r4",
    ]
