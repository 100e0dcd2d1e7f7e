"""Activations, sums and products that broadcast, means, joins and changes of grid against TensorFlow Lite Micro."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import ActivationOptions, ConcatOptions, Graph
from stages.graph.judge.tflm import first_difference, run_tflm_keeping_all
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs

EXTREME_ZERO_POINTS = (-128, -127, -1, 0, 1, 126, 127)


def extreme_grid(builder: Int8Builder, tensor: int, lowest: float = 1e-5, highest: float = 50.0) -> None:
    """A scale anywhere between, evenly by its logarithm, and a zero point that is often at an end."""
    scale = math.exp(builder.rng.uniform(math.log(lowest), math.log(highest)))
    zero_point = int(builder.rng.choice([*EXTREME_ZERO_POINTS, int(builder.rng.integers(-128, 128))]))
    builder.set_grid(tensor, scale, zero_point)


def odd_input(builder: Int8Builder) -> int:
    height, width, channels = (int(side) for side in builder.rng.integers(1, 8, 3))
    return builder.input(height, width, channels)


def activation_graph(kind: str) -> Callable[[Int8Builder], int]:
    def make(builder: Int8Builder) -> int:
        x = odd_input(builder)
        extreme_grid(builder, x)
        source = builder.tensors[x].quantisation
        assert source
        ratio = math.exp(builder.rng.uniform(math.log(1 / 100), math.log(100)))
        result = builder.unary(kind, x, source.scale[0] / ratio)
        if kind != "LOGISTIC":
            zero_point = int(builder.rng.choice(EXTREME_ZERO_POINTS))
            builder.set_grid(result, source.scale[0] / ratio, zero_point)
        return result

    return make


def broadcast_graph(kind: str) -> Callable[[Int8Builder], int]:
    """An activation with: a map of gates, one gate per channel, a constant of some shape, or a lone number."""

    def make(builder: Int8Builder) -> int:
        x = odd_input(builder)
        height, width, channels = builder.tensors[x].shape[1:]
        gate = builder.mean(x, (1, 2), keep=True)
        options = ActivationOptions(str(builder.rng.choice(["none", "relu", "relu6"])))  # type: ignore[arg-type]
        shapes = [(1, 1, 1, channels), (channels,), (1,), (), (1, height, width, channels), (1, height, 1, 1)]
        others = [gate, builder.mean(x, (1, 2), keep=False), *(builder.constant(*shape) for shape in shapes)]
        other = others[int(builder.rng.integers(len(others)))]
        pair = (x, other) if builder.rng.integers(2) else (other, x)
        extreme_grid(builder, x, 1e-3, 1.0)
        extreme_grid(builder, other, 1e-3, 1.0)
        result = builder.elementwise(kind, *pair, options)
        if builder.rng.integers(2):
            extreme_grid(builder, result, 1e-3, 1.0)
        return result

    return make


def mean_graph(builder: Int8Builder) -> int:
    x = odd_input(builder)
    extreme_grid(builder, x, 1e-4, 10.0)
    axes = [(1, 2), (2, 1), (-3, -2), (1,), (2,), (3,), (-1,), (2, 3)][int(builder.rng.integers(8))]
    keep = bool(builder.rng.integers(2))
    return builder.mean(x, axes, keep=keep, same_grid=bool(builder.rng.integers(2)))


def concatenation_graph(builder: Int8Builder) -> int:
    x = odd_input(builder)
    parts = [x] * int(builder.rng.integers(1, 4))
    axis = int(builder.rng.choice([1, 2, 3, -1]))
    if builder.rng.integers(2):
        parts.insert(int(builder.rng.integers(len(parts) + 1)), builder.constant(*builder.tensors[x].shape))
    return builder.concatenate(axis, *parts)


def pad_graph(builder: Int8Builder) -> int:
    x = odd_input(builder)
    extreme_grid(builder, x)
    return builder.pad(x, *((int(a), int(b)) for a, b in builder.rng.integers(0, 4, (3, 2))))


def float_edges_graph(builder: Int8Builder) -> int:
    x = builder.float_input(*(int(side) for side in builder.rng.integers(1, 8, 3)))
    inner = builder.unary("QUANTIZE", x, 1.0)
    extreme_grid(builder, inner, 1e-3, 10.0)
    return builder.unary("DEQUANTIZE", inner)


KINDS: dict[str, Callable[[Int8Builder], int]] = {
    **{kind: activation_graph(kind) for kind in ("RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "QUANTIZE")},
    **{kind: broadcast_graph(kind) for kind in ("ADD", "MUL")},
    "MEAN": mean_graph,
    "CONCATENATION": concatenation_graph,
    "PAD": pad_graph,
    "float edges": float_edges_graph,
}


@pytest.mark.parametrize("kind", KINDS)
def test_odd_shapes_and_extreme_grids_have_the_bits_of_tflm(kind: str) -> None:
    for seed in range(40):
        builder = Int8Builder(seed)
        result = KINDS[kind](builder)
        graph = builder.graph(result)
        content = write_tflite(graph, "test")
        assert read_tflite(content).ops == graph.ops
        inputs = random_inputs(graph, 3, seed)
        theirs = run_tflm_keeping_all(content, graph, inputs)
        assert first_difference(graph, run_graph(graph, inputs), theirs) is None, f"seed {seed}"


def every_value(kind: str, scale: float, zero_point: int, result_scale: float) -> Graph:
    """One op on a row of 256 values, so that one input can hold them all."""
    builder = Int8Builder(3)
    x = builder.input(1, 1, 256)
    builder.set_grid(x, scale, zero_point)
    return builder.graph(builder.unary(kind, x, result_scale))


@pytest.mark.parametrize("kind", ["LOGISTIC", "HARD_SWISH", "RELU", "RELU6", "QUANTIZE"])
@pytest.mark.parametrize("scale", [1e-7, 1e-4, 0.02, 3 / 128, 0.1, 1.0, 30.0])
def test_every_int8_value_has_the_bits_of_tflm(kind: str, scale: float) -> None:
    for zero_point in EXTREME_ZERO_POINTS:
        for ratio in (0.011, 0.37, 1.0, 77.0):
            graph = every_value(kind, scale, zero_point, scale / ratio)
            values = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 1, 256)
            theirs = run_tflm_keeping_all(write_tflite(graph, "test"), graph, values)
            assert first_difference(graph, run_graph(graph, values), theirs) is None, (zero_point, ratio)


def test_hard_swish_and_logistic_are_close_to_the_real_functions() -> None:
    values = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 1, 256)
    x = 0.05 * values.astype(float)
    for kind, expected in (("LOGISTIC", 1 / (1 + np.exp(-x))), ("HARD_SWISH", x * np.clip(x + 3, 0, 6) / 6)):
        graph = every_value(kind, 0.05, 0, 0.05)
        grid = graph.tensors[graph.outputs[0]].quantisation
        assert grid
        found = (run_graph(graph, values)[graph.outputs[0]].astype(float) - grid.zero_point[0]) * grid.scale[0]
        inside = (expected > found.min() + grid.scale[0]) & (expected < found.max() - grid.scale[0])
        assert inside.sum() > 50
        assert np.abs(found - expected)[inside].max() <= 1.01 * grid.scale[0]


def test_quantising_floats_rounds_halves_away_from_zero_and_saturates() -> None:
    builder = Int8Builder(0)
    inner = builder.unary("QUANTIZE", builder.float_input(1, 1, 8), 1.0)
    builder.set_grid(inner, 0.5, 10)
    graph = builder.graph(inner)
    inputs = np.array([0.25, -0.25, 0.24, 0.75, 1e9, -1e9, 0.0, 3.0], np.float32).reshape(1, 1, 1, 8)
    found = run_graph(graph, inputs)[inner]
    assert found.ravel().tolist() == [11, 9, 10, 12, 127, -128, 10, 16]
    theirs = run_tflm_keeping_all(write_tflite(graph, "test"), graph, inputs)
    assert first_difference(graph, {inner: found}, theirs) is None


def test_grids_that_a_kernel_cannot_honour_are_refused() -> None:
    builder = Int8Builder(0)
    x = builder.input(2, 2, 3)
    joined = builder.graph(builder.concatenate(3, x, builder.constant(1, 2, 2, 3)))
    other = replace(joined.tensors[1], quantisation=replace(joined.tensors[1].quantisation, zero_point=(5,)))
    with pytest.raises(StageError, match=r"CONCATENATION activation2: tensor constant1 is on another grid"):
        check_graph(replace(joined, tensors=(joined.tensors[0], other, joined.tensors[2])))
    refused = {
        "LOGISTIC": "output on scale 0.5, needed 1/256 and zero point -128",
        "HARD_SWISH": "input scale 100 and output scale 0.5, needed a ratio below 128",
    }
    for kind, sentence in refused.items():
        builder = Int8Builder(0)
        x = builder.input(2, 2, 3)
        result = builder.unary(kind, x)
        builder.set_grid(x, 100.0, 0)
        builder.set_grid(result, 0.5, 0)
        with pytest.raises(StageError, match=sentence):
            check_graph(builder.graph(result))
    builder = Int8Builder(0)
    with pytest.raises(StageError, match="the mean over 3 axes, needed at most 2"):
        check_graph(builder.graph(builder.mean(builder.input(2, 2, 3), (1, 2, 3), keep=True)))


def test_joins_and_means_along_axes_that_do_not_exist_are_refused() -> None:
    builder = Int8Builder(0)
    x = builder.input(2, 2, 3)
    graph = builder.graph(builder.concatenate(3, x, x))
    wrong = replace(graph.ops[0], options=ConcatOptions(4))
    with pytest.raises(StageError, match="axis 4, activation none, needed an axis of 4 and no activation"):
        check_graph(replace(graph, ops=(wrong,)))
    graph = builder.graph(builder.mean(x, (1, 2), keep=True))
    axes = graph.ops[1].inputs[1]
    tensors = list(graph.tensors)
    tensors[axes] = replace(tensors[axes], data=np.array([1, 7], np.int32))
    with pytest.raises(StageError, match="an axis is not among the 4 of the input"):
        check_graph(replace(graph, tensors=tuple(tensors)))
