"""Every kernel against TensorFlow Lite Micro, bit for bit, on shapes chosen to be awkward."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from tests.stages.firmware.host_models import HostModels, build_host_models, tflm_outputs
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network


def _conv(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width, channels, outputs = (int(n) for n in rng.integers(1, 12, 4))
    kernel = (int(rng.integers(1, 6)), int(rng.integers(1, 5)))
    strides = [(1, 1), (2, 2), (1, 2), (3, 1)]
    dilation = (1, 1) if seed % 3 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    options = ConvOptions(
        stride=(1, 1) if dilation != (1, 1) else strides[seed % 4],
        padding="same",
        dilation=dilation,
        activation=("none", "relu", "relu6")[seed % 3],
    )
    x = builder.input(height, width, channels)
    return builder.graph(builder.conv(x, outputs, kernel, options, per_channel=bool(seed % 2)))


def _conv_valid(seed: int) -> Graph:
    builder = Int8Builder(seed)
    kernel = (1 + seed % 4, 1 + seed // 2 % 3)
    x = builder.input(6 + seed % 5, 5 + seed % 3, 1 + seed % 3)
    options = ConvOptions(stride=(1 + seed % 2, 1), padding="valid")
    return builder.graph(builder.conv(x, 3 + seed % 6, kernel, options))


def _pointwise(seed: int) -> Graph:
    builder = Int8Builder(seed)
    height, width = (int(n) for n in builder.rng.integers(1, 7, 2))
    channels, outputs = (int(n) for n in builder.rng.integers(1, 40, 2))
    x = builder.input(height, width, channels)
    return builder.graph(builder.conv(x, outputs, (1, 1), ConvOptions(activation="relu"), per_channel=bool(seed % 2)))


def _depthwise(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width, channels = (int(n) for n in rng.integers(1, 14, 3))
    dilation = (1, 1) if seed % 4 else (2, 3)
    options = ConvOptions(
        stride=(1, 1) if dilation != (1, 1) else [(1, 1), (2, 2), (2, 1)][seed % 3],
        padding="same",
        dilation=dilation,
        activation=("none", "relu", "relu6")[seed % 3],
        depth_multiplier=1 if seed % 5 else 3,
    )
    kernel = (int(rng.integers(1, 6)), int(rng.integers(1, 6)))
    x = builder.input(height, width, channels)
    return builder.graph(builder.depthwise(x, kernel, options, per_channel=bool(seed % 2)))


def _fully_connected(seed: int) -> Graph:
    builder = Int8Builder(seed)
    x = builder.flatten(builder.input(1, 1, int(builder.rng.integers(1, 90))))
    options = ActivationOptions(("none", "relu")[seed % 2])
    return builder.graph(
        builder.fully_connected(x, int(builder.rng.integers(1, 20)), options, per_channel=seed % 3 == 0)
    )


def _pool(kind: str) -> Callable[[int], Graph]:
    def make(seed: int) -> Graph:
        builder = Int8Builder(seed)
        height, width, channels = (int(n) for n in builder.rng.integers(3, 11, 3))
        window = (int(builder.rng.integers(1, 4)), int(builder.rng.integers(1, 4)))
        padding = "same" if seed % 2 else "valid"
        options = PoolOptions(window, (1 + seed % 3, 1 + seed % 2), padding, ("none", "relu", "relu6")[seed % 3])
        return builder.graph(builder.pool(kind, builder.input(height, width, channels), options))

    return make


def _add(seed: int) -> Graph:
    builder = Int8Builder(seed)
    x = builder.input(3, 4, 5)
    other = builder.conv(x, 5, (1, 1), ConvOptions())
    return builder.graph(builder.elementwise("ADD", x, other, ActivationOptions(("none", "relu")[seed % 2])))


def _with_constant(seed: int) -> Graph:
    """One number for all elements, on either side."""
    builder = Int8Builder(seed)
    x, one = builder.input(3, 4, 5), builder.constant(*((1,), (1, 1, 1, 1))[seed // 3])
    operands = (one, x) if seed // 3 else (x, one)
    return builder.graph(builder.elementwise(("ADD", "MUL", "SUB")[seed % 3], *operands, ActivationOptions("relu6")))


def _softmax(seed: int) -> Graph:
    builder = Int8Builder(seed)
    depth, beta = ((2, 0.5), (12, 1.0), (100, 0.5), (255, 1.0), (500, 0.01), (12, 20.0))[seed]  # flat and steep ones
    return builder.graph(builder.softmax(builder.flatten(builder.input(1, 1, depth)), beta=beta))


CASES: dict[str, Graph] = {
    f"{make_name}_{seed}": make(seed)
    for make_name, make, count in (
        ("conv", _conv, 14),
        ("conv_valid", _conv_valid, 6),
        ("pointwise", _pointwise, 8),
        ("depthwise", _depthwise, 14),
        ("fully_connected", _fully_connected, 6),
        ("average_pool", _pool("AVERAGE_POOL_2D"), 6),
        ("max_pool", _pool("MAX_POOL_2D"), 6),
        ("add", _add, 4),
        ("with_constant", _with_constant, 6),
        ("softmax", _softmax, 6),
        ("network", residual_network, 4),
    )
    for seed in range(count)
}


@pytest.fixture(scope="module")
def host_models(tmp_path_factory: pytest.TempPathFactory) -> HostModels:
    return build_host_models(list(CASES.values()), tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("name", CASES)
def test_kernel_gives_the_bits_of_tflm(name: str, host_models: HostModels) -> None:
    graph = CASES[name]
    inputs = random_inputs(graph, count=4, seed=7)
    np.testing.assert_array_equal(host_models.run(list(CASES).index(name), inputs), tflm_outputs(graph, inputs))


def test_the_cases_reach_both_ends_and_the_middle_of_the_range(host_models: HostModels) -> None:
    """Guards the test above: outputs that are all saturated would agree however wrong the scaling is."""
    values = [
        host_models.run(index, random_inputs(graph, count=4, seed=7)).reshape(-1)
        for index, graph in enumerate(CASES.values())
        if graph.ops[-1].kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    ]
    inside = [np.mean((v > -128) & (v < 127)) for v in values]
    assert np.mean(inside) > 0.5
    assert len(np.unique(np.concatenate(values))) == 256
