"""Exact simplification against TensorFlow Lite Micro: networks with dead channels and idle ops, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, NoOptions, PoolOptions
from stages.graph.judge.tflm import run_tflm
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.random_networks import random_network
from tests.stages.graph.int8_graphs import NO_MODELS, THIRD_PARTY_MODELS, Int8Builder, random_inputs


def silence(builder: Int8Builder, result: int, channels: list[int], bias: int | None = None) -> int:
    """Give some filters of the layer that made `result` weights of 0; their bias decides the constant."""
    op = next(op for op in builder.ops if op.outputs[0] == result)
    weights, biases = (builder.tensors[index].data for index in op.inputs[1:3])
    assert weights is not None
    assert biases is not None
    axis = (Ellipsis, channels) if op.kind == "DEPTHWISE_CONV_2D" else (channels,)
    weights[axis] = 0
    if bias is not None:
        biases[channels] = bias
    return result


def same_outputs(graph: Graph) -> Graph:
    """The simplified graph is sound and gives the bits that the runtime gives for the original."""
    found = simplify(graph)
    check_graph(found)
    inputs = random_inputs(graph, count=4, seed=3)
    expected = run_tflm(write_tflite(graph, "test"), graph, inputs)
    ours = run_graph(found, inputs)[found.outputs[0]]
    np.testing.assert_array_equal(ours.reshape(len(inputs), -1), expected.reshape(len(inputs), -1))
    return found


def widths(graph: Graph) -> list[int]:
    return [graph.tensors[op.outputs[0]].shape[-1] for op in graph.ops]


def test_zero_filters_go_into_the_bias_of_a_pointwise_layer() -> None:
    builder = Int8Builder(1)
    x = silence(builder, builder.conv(builder.input(5, 4, 3), 8, (3, 3), ConvOptions()), [0, 3, 7])
    found = same_outputs(builder.graph(builder.conv(x, 6, (1, 1), ConvOptions(activation="relu"))))
    assert widths(found) == [5, 6]


def test_at_padded_borders_only_a_channel_at_its_zero_point_goes() -> None:
    """A bias of 0 gives the zero point, which is what padding counts as; another constant has to be seen ending."""
    builder = Int8Builder(2)
    x = silence(builder, builder.conv(builder.input(6, 6, 3), 8, (1, 1), ConvOptions()), [1, 2], bias=0)
    silence(builder, x, [5], bias=4000)
    found = same_outputs(builder.graph(builder.conv(x, 4, (3, 3), ConvOptions())))
    assert widths(found) == [6, 4]


def test_without_padding_every_constant_goes() -> None:
    builder = Int8Builder(2)
    x = silence(builder, builder.conv(builder.input(6, 6, 3), 8, (1, 1), ConvOptions()), [1, 2, 5])
    found = same_outputs(builder.graph(builder.conv(x, 4, (3, 3), ConvOptions(padding="valid"))))
    assert widths(found) == [5, 4]


def test_a_zero_depthwise_filter_takes_the_channel_before_it_along() -> None:
    builder = Int8Builder(3)
    x = builder.conv(builder.input(6, 5, 3), 8, (1, 1), ConvOptions(activation="relu"))
    x = silence(builder, builder.depthwise(x, (3, 3), ConvOptions()), [2, 4])
    found = same_outputs(builder.graph(builder.conv(x, 5, (1, 1), ConvOptions())))
    assert widths(found) == [6, 6, 5]


def test_a_constant_goes_through_a_depthwise_layer_with_padding_only_at_the_zero_point() -> None:
    for bias, kept in ((0, 7), (5000, 8)):
        builder = Int8Builder(4)
        x = silence(builder, builder.conv(builder.input(6, 5, 3), 8, (1, 1), ConvOptions()), [6], bias=bias)
        x = builder.depthwise(x, (3, 3), ConvOptions())
        found = same_outputs(builder.graph(builder.conv(x, 5, (1, 1), ConvOptions())))
        assert widths(found) == [kept, kept, 5]


def test_constants_pass_pooling_mean_curves_and_reshape_up_to_the_classifier() -> None:
    builder = Int8Builder(5)
    x = silence(builder, builder.conv(builder.input(8, 8, 2), 9, (3, 3), ConvOptions()), [0, 8])
    x = builder.pool("MAX_POOL_2D", x, PoolOptions((2, 2), (2, 2)))
    x = builder.unary("HARD_SWISH", x)
    x = builder.pool("AVERAGE_POOL_2D", x, PoolOptions((2, 2), (2, 2)))
    x = builder.fully_connected(builder.flatten(x), 4, ActivationOptions())
    found = same_outputs(builder.graph(x))
    assert widths(found) == [7, 7, 7, 7, 28, 4]


def test_both_sides_of_an_add_have_to_agree() -> None:
    builder = Int8Builder(6)
    x = builder.input(5, 5, 4)
    left = silence(builder, builder.conv(x, 6, (1, 1), ConvOptions()), [0, 1, 2])
    right = silence(builder, builder.conv(x, 6, (3, 3), ConvOptions()), [1, 2, 5])
    total = builder.elementwise("ADD", left, right, ActivationOptions("relu"))
    found = same_outputs(builder.graph(builder.conv(total, 3, (1, 1), ConvOptions())))
    assert widths(found) == [4, 4, 4, 3]


def test_a_channel_that_nobody_reads_is_not_computed() -> None:
    builder = Int8Builder(7)
    x = builder.conv(builder.input(5, 5, 4), 6, (3, 3), ConvOptions())
    last = builder.conv(x, 3, (3, 3), ConvOptions())
    weights = builder.tensors[builder.ops[-1].inputs[1]].data
    assert weights is not None
    weights[..., [1, 4]] = 0
    assert widths(same_outputs(builder.graph(last))) == [4, 3]


def test_outputs_of_the_network_keep_all_channels() -> None:
    builder = Int8Builder(8)
    x = silence(builder, builder.conv(builder.input(5, 5, 4), 6, (3, 3), ConvOptions()), [0, 1, 2, 3, 4, 5])
    graph = builder.graph(x)
    assert simplify(graph) is graph


def test_a_layer_of_zeros_keeps_one_channel() -> None:
    builder = Int8Builder(9)
    x = silence(builder, builder.conv(builder.input(5, 5, 4), 6, (1, 1), ConvOptions()), list(range(6)))
    assert widths(same_outputs(builder.graph(builder.conv(x, 3, (1, 1), ConvOptions())))) == [1, 3]


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def _idle(make: Callable[[Int8Builder, int], int]) -> list[str]:
    """A network with something idle in its middle."""
    builder = Int8Builder(11)
    x = builder.conv(builder.input(6, 5, 3), 4, (3, 3), ConvOptions(activation="none"))
    x = make(builder, x)
    return kinds(same_outputs(builder.graph(builder.conv(x, 3, (1, 1), ConvOptions()))))


def test_reshapes_and_pads_that_do_nothing_vanish() -> None:
    assert _idle(lambda builder, x: builder.reshape(x, (1, 6, 5, 4))) == ["CONV_2D", "CONV_2D"]
    assert _idle(lambda builder, x: builder.pad(x, (0, 0), (0, 0), (0, 0))) == ["CONV_2D", "CONV_2D"]
    twice = _idle(lambda builder, x: builder.reshape(builder.reshape(x, (1, 30, 1, 4)), (1, 5, 6, 4)))
    assert twice == ["CONV_2D", "RESHAPE", "CONV_2D"]


def _quantised(builder: Int8Builder, x: int, like: int) -> int:
    grid = builder.tensors[like].quantisation
    assert grid
    moved = builder.unary("QUANTIZE", x)
    builder.set_grid(moved, grid.scale[0], grid.zero_point[0])
    return moved


def test_a_requantisation_to_the_same_grid_vanishes() -> None:
    assert _idle(lambda builder, x: _quantised(builder, x, x)) == ["CONV_2D", "CONV_2D"]


def test_equal_requantisations_of_one_tensor_become_one() -> None:
    def make(builder: Int8Builder, x: int) -> int:
        first = builder.unary("QUANTIZE", x)
        builder.set_grid(first, builder._scale_of(x) * 1.3, 5)
        second = _quantised(builder, x, first)
        return builder.elementwise("ADD", first, second, ActivationOptions())

    assert _idle(make) == ["CONV_2D", "QUANTIZE", "ADD", "CONV_2D"]


@pytest.mark.parametrize("kind", ["RELU", "RELU6"])
def test_an_activation_of_its_own_is_fused(kind: str) -> None:
    def make(builder: Int8Builder, x: int) -> int:
        result = builder.unary(kind, x)
        grid = builder.tensors[x].quantisation
        builder.tensors[result] = replace(builder.tensors[result], quantisation=grid)
        return result

    assert _idle(make) == ["CONV_2D", "CONV_2D"]


def test_an_activation_onto_another_grid_stays() -> None:
    def make(builder: Int8Builder, x: int) -> int:
        result = builder.unary("RELU", x)
        builder.set_grid(result, builder._scale_of(x) * 0.7, -100)
        return result

    assert _idle(make) == ["CONV_2D", "RELU", "CONV_2D"]


def test_padding_like_tensorflows_same_is_done_by_the_convolution() -> None:
    for pads, expected in (
        (((0, 1), (0, 1), (0, 0)), ["DEPTHWISE_CONV_2D", "CONV_2D"]),
        (((1, 0), (0, 1), (0, 0)), ["PAD", "DEPTHWISE_CONV_2D", "CONV_2D"]),
    ):
        builder = Int8Builder(12)
        x = builder.pad(builder.input(8, 8, 3), *pads)
        x = builder.depthwise(x, (3, 3), ConvOptions(stride=(2, 2), padding="valid"))
        assert kinds(same_outputs(builder.graph(builder.conv(x, 3, (1, 1), ConvOptions())))) == expected


def is_int8_alone(graph: Graph) -> bool:
    ends = {graph.tensors[index].dtype for index in (*graph.inputs, *graph.outputs)}
    return ends == {"int8"} and not any("VARIABLE" in op.kind or op.kind == "VAR_HANDLE" for op in graph.ops)


def test_random_networks_compute_the_same_afterwards() -> None:
    dropped = 0
    for seed in range(150):
        graph = random_network(seed)
        if len(graph.inputs + graph.outputs) > 2 or not is_int8_alone(graph):
            continue  # other ends and states: tests/stages/firmware/test_random_networks.py
        dropped += max(0, sum(widths(graph)) - sum(widths(same_outputs(graph))))
    assert dropped > 0


@pytest.mark.skipif(not THIRD_PARTY_MODELS, reason=NO_MODELS)
def test_third_party_networks_compute_the_same_afterwards() -> None:
    for path in THIRD_PARTY_MODELS:
        same_outputs(read_tflite(path))


def test_a_float_network_is_left_alone() -> None:
    builder = Int8Builder(13)
    x = builder.float_input(4, 4, 2)
    graph = builder.graph(builder.unary("DEQUANTIZE", builder.unary("QUANTIZE", x, scale=0.1)))
    assert simplify(graph) is graph
    assert isinstance(graph.ops[0].options, NoOptions)


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_depthwise_layer_of_one_channel_becomes_a_convolution(per_channel: bool) -> None:
    builder = Int8Builder(4)
    options = ConvOptions(stride=(2, 2), activation="relu", depth_multiplier=8)
    x = builder.depthwise(builder.input(13, 11, 1), (5, 4), options, per_channel=per_channel)
    assert [op.kind for op in same_outputs(builder.graph(x)).ops] == ["CONV_2D"]


def test_a_depthwise_layer_of_one_channel_and_one_output_stays() -> None:
    builder = Int8Builder(4)
    graph = builder.graph(builder.depthwise(builder.input(7, 7, 1), (3, 3), ConvOptions()))
    assert simplify(graph) is graph
