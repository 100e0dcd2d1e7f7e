"""The fast engine for whole data sets gives the bits of the slow reference, whatever the operator and its scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_batch import BATCH, _Scaling, batch_network
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import ConvOptions, Graph, Quantisation
from stages.graph.simplify.lowering import lowered
from tests.stages.firmware.random_networks import NetworkGrower, random_network
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network


def slow(graph: Graph, inputs: np.ndarray) -> np.ndarray:
    return run_graph(graph, inputs, keep_all=False)[graph.outputs[0]]


def test_a_residual_network_has_the_same_bits_over_more_than_one_batch() -> None:
    graph = residual_network(3)
    inputs = random_inputs(graph, BATCH + 5)
    assert np.array_equal(batch_network(graph)(inputs), slow(graph, inputs))


def any_inputs(graph: Graph, count: int, seed: int) -> np.ndarray:
    source = graph.tensors[graph.inputs[0]]
    limits = np.iinfo(source.dtype)
    drawn = np.random.default_rng(seed).integers(limits.min, limits.max + 1, (count, *source.shape[1:]))
    return drawn.astype(source.dtype)


def test_random_networks_have_the_same_bits_or_are_refused_for_their_ends() -> None:
    quick = refused = 0
    for seed in range(30):
        graph = lowered(random_network(seed))
        if (len(graph.inputs), len(graph.outputs)) != (1, 1):
            with pytest.raises(StageError, match=r"inputs and \d outputs, needed one of each"):
                batch_network(graph)
            refused += 1
            continue
        inputs = any_inputs(graph, 4, seed)
        found = batch_network(graph)
        quick += bool(found.kernels)
        assert np.array_equal(found(inputs), slow(graph, inputs)), seed
    assert quick >= 3 and refused >= 3


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_of_convolutions_have_the_same_bits(seed: int) -> None:
    graph = NetworkGrower(seed).grow(8, only_rows=True)
    inputs = any_inputs(graph, 4, seed)
    found = batch_network(graph)
    assert found.kernels
    assert np.array_equal(found(inputs), slow(graph, inputs))


def one_convolution(output_scale: float, channels: int = 12, kernel: tuple[int, int] = (3, 3)) -> Graph:
    builder = Int8Builder(1)
    x = builder.input(7, 9, channels)
    result = builder.conv(x, 16, kernel, ConvOptions(padding="same"))
    graph = builder.graph(result)
    tensor = graph.tensors[result]
    tensors = list(graph.tensors)
    tensors[result] = replace(tensor, quantisation=Quantisation((output_scale,), (3,)))
    return replace(graph, tensors=tuple(tensors))


@pytest.mark.parametrize("output_scale", [1e-4, 1e-3, 0.02, 0.1, 0.5, 2.0, 40.0, 1e4])
def test_any_factor_rounds_like_the_runtime_halves_included(output_scale: float) -> None:
    graph = one_convolution(output_scale)
    inputs = random_inputs(graph, 20)
    assert np.array_equal(batch_network(graph)(inputs), slow(graph, inputs))


def test_sums_that_float32_cannot_hold_are_left_to_the_reference() -> None:
    graph = one_convolution(1.0, channels=700)
    (op,) = graph.ops
    tensors = list(graph.tensors)
    weights = tensors[op.inputs[1]]
    data = np.full(weights.shape, 127, np.int8)
    data[:, 1], data[:, 2] = 0, -127  # partial sums of up to 10^8 that cancel out
    tensors[op.inputs[1]] = replace(weights, data=data, quantisation=Quantisation((2e-4,) * 16, (0,) * 16, 0))
    source = tensors[op.inputs[0]]
    tensors[op.inputs[0]] = replace(source, quantisation=Quantisation((1.0,), (-128,)))
    graph = replace(graph, tensors=tuple(tensors))
    inputs = np.random.default_rng(0).integers(90, 128, (6, 7, 9, 700), dtype=np.int8)
    assert len(np.unique(slow(graph, inputs))) > 50
    assert np.array_equal(batch_network(graph)(inputs), slow(graph, inputs))


@pytest.mark.parametrize("activation", ["none", "relu", "relu6"])
@pytest.mark.parametrize("shift", [0, 1, 5, 13, 14])
@pytest.mark.parametrize("mantissa", [2**30, 2**30 + 1, 1_518_500_250, 2**31 - 1])
def test_every_sum_around_the_halves_is_scaled_like_the_integers(mantissa: int, shift: int, activation: str) -> None:
    """Powers of two make the runtime's two roundings meet on halves, on both sides of zero."""
    graph = one_convolution(0.1, channels=1)
    (op,) = graph.ops
    op = replace(op, options=replace(op.options, activation=activation))
    scaling = _Scaling.of(graph, op, 1, [mantissa * 2.0 ** (-31 - shift)])
    assert (scaling.mantissa.tolist(), scaling.shift.tolist()) == ([mantissa], [-shift])
    half = 2**shift  # sums that scale to about 1/2
    near = np.concatenate([k * half + np.arange(-3, 4) for k in range(-260, 261)])
    sums = np.unique(np.concatenate([near, np.arange(-600, 600)])).clip(-(2**24) + 1, 2**24 - 1)
    exact = fp.rescale(sums, np.array([mantissa]), np.array([-shift]))
    found = scaling(torch.from_numpy(sums.astype(np.float32)).reshape(-1, 1)).numpy().reshape(-1)
    assert np.array_equal(found, np.clip(exact, scaling.lowest, scaling.highest))
