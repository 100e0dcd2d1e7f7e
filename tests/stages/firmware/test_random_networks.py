"""Random networks of every operator on the twin against TensorFlow Lite Micro: every layer, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.firmware.fast.dot import Weights
from tests.stages.firmware.network_check import Agreement, compare_on_twin
from tests.stages.firmware.random_networks import random_chains, random_column, random_network

KERNELS: tuple[Weights | None, ...] = ("fast", "small", None)
NETWORKS = range(90, 140)  # seeds with every kernel among them; 1,000: python -m tests.benchmarks.random_networks
COLUMNS = 15  # likewise, with --chains
EXPORT_LIST = {
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "AVERAGE_POOL_2D", "MAX_POOL_2D", "MEAN"),
    *("CONCATENATION", "PAD", "RESHAPE", "SOFTMAX", "LOGISTIC", "HARD_SWISH", "RELU", "RELU6"),
    *("TRANSPOSE", "STRIDED_SLICE", "SUB", "MAXIMUM", "MINIMUM", "RESIZE_BILINEAR", "READ_VARIABLE", "TANH"),
}


@pytest.mark.slow
def test_every_layer_of_fifty_random_networks_has_the_bits_of_tflm(tmp_path: Path) -> None:
    found = Agreement()
    compare_on_twin([(f"seed {seed}", random_network(seed), KERNELS[seed % 3]) for seed in NETWORKS], tmp_path, found)
    assert found.wrong == []
    assert found.networks == len(NETWORKS)
    assert set(found.kinds) >= EXPORT_LIST
    assert found.stateful > 3 and found.several > 10
    assert set(found.kernels) >= {
        *("fast_conv_2d", "fast_matrix", "fast_depthwise", "fast_add", "conv_2d", "lookup"),
        *("small_conv_2d", "small_matrix"),
    }
    assert found.inside > 0.5 * found.values  # saturated values would agree however wrong the scaling is


@pytest.mark.slow
def test_fused_layers_have_the_bits_of_tflm(tmp_path: Path) -> None:
    """Networks of layers that can, with chains wherever there can be one."""
    found = Agreement()
    networks = [(f"seed {seed}", random_column(seed), KERNELS[seed % 3]) for seed in range(COLUMNS)]
    chains = [random_chains(graph, weights, seed) for seed, (_, graph, weights) in enumerate(networks)]
    compare_on_twin(networks, tmp_path, found, chains=chains)
    assert found.wrong == []
    assert found.chains == sum(map(len, chains)) >= 0.8 * COLUMNS
    assert found.inside > 0.5 * found.values
