"""litert-torch's float network and ours; without its packages, one sentence."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.errors import StageError
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.other_formats.litert_export import (
    FloatCheck,
    check_float_graph,
    litert_model,
    quantised_after_training,
    run_litert,
)
from stages.graph.tflite.writer import write_tflite
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from tests.stages.graph.int8_graphs import Int8Builder

HAS_LITERT = importlib.util.find_spec("litert_torch") is not None
needs_litert = pytest.mark.skipif(
    not HAS_LITERT, reason="needs litert-torch; to enable: pip install torch==2.13.0 'tinyml-pipeline[litert]'"
)


def network(name: str) -> tuple[nn.Module, NetworkConfig, np.ndarray]:
    narrow = {"width_multiplier": 0.25} if name in ("mobilenet_v2", "efficientnet_b0") else {}
    config = NetworkConfig(name=name, input_shape=(33, 32, 3), classes=10, **narrow)  # type: ignore[arg-type, call-arg]
    torch.manual_seed(0)
    net = build(config)
    x = torch.randn(8, 3, 33, 32)
    with torch.no_grad():
        net.train()(x)  # batch statistics that are not those of a new network
    return net.eval(), config, x.permute(0, 2, 3, 1).numpy()


@needs_litert
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dscnn", "resnet8", "mobilenet_v2", "efficientnet_b0"])
def test_litert_finds_the_same_float_network(name: str) -> None:
    net, config, inputs = network(name)
    found = check_float_graph(net, graph_from_torch(net, config.input_shape), inputs, inputs)
    assert found.n == 8
    assert found.largest_output > 0
    assert found.max_abs_difference < 1e-4 * max(1.0, found.largest_output)
    assert "litert differs by up to" in found.sentence
    assert 0.5 <= found.ptq_agreement <= 1.0  # random weights: logits lie close together


@needs_litert
@pytest.mark.slow
def test_the_network_quantised_by_litert_is_int8_and_close_to_the_float_one() -> None:
    net, config, inputs = network("resnet8")
    model = litert_model(net, config.input_shape)
    quantised = quantised_after_training(model, inputs)
    expected, found = run_litert(model, inputs), run_litert(quantised, inputs)
    assert len(quantised) < 0.4 * len(model)
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


@needs_litert
@pytest.mark.slow
def test_a_wrong_graph_is_noticed() -> None:
    net, config, inputs = network("resnet8")
    graph = graph_from_torch(net, config.input_shape)
    tensors = list(graph.tensors)
    index = graph.ops[0].inputs[1]
    data = tensors[index].data
    assert data is not None
    tensors[index] = replace(tensors[index], data=data[:, ::-1].copy())  # filters upside down
    with pytest.raises(
        StageError, match="litert differs by up to .* from our float graph, needed 0.001 of that or less"
    ):
        check_float_graph(net, replace(graph, tensors=tuple(tensors)), inputs, inputs)


def test_litert_is_asked_in_the_layout_of_torch_and_on_the_grid_of_the_file() -> None:
    builder = Int8Builder(0)
    x = builder.input(2, 3, 4)  # what torch calls two channels of 3 x 4
    y = builder.unary("RELU6", x)
    for index in (x, y):
        builder.set_grid(index, 0.125, -3)
    graph = builder.graph(y)
    inputs = np.random.default_rng(0).normal(2, 8, (5, 3, 4, 2)).astype(np.float32)
    steps = np.clip(np.rint(inputs / np.float32(0.125)) - 3, -128, 127)
    expected = (steps.clip(-3, 45) + 3) * 0.125
    found = run_litert(write_tflite(graph, "test"), inputs)
    np.testing.assert_array_equal(found, expected.transpose(0, 3, 1, 2).reshape(5, -1))


@pytest.mark.skipif(HAS_LITERT, reason="litert-torch is installed here; to enable, use an environment without it")
def test_without_its_packages_one_sentence_names_the_extra() -> None:
    net, config, inputs = network("resnet8")
    expected = r"exporter 'litert' needs litert-torch, which is not installed; pip install 'tinyml-pipeline\[litert\]'"
    with pytest.raises(StageError, match=expected):
        check_float_graph(net, graph_from_torch(net, config.input_shape), inputs, inputs)


@pytest.mark.parametrize(
    ("difference", "largest", "agrees"),
    [(0.005, 5.0, True), (0.0051, 5.0, False), (0.0, 0.0, True), (2e-9, 0.0, False)],
)
def test_a_thousandth_of_the_largest_output_is_agreement(difference: float, largest: float, agrees: bool) -> None:
    found = FloatCheck(max_abs_difference=difference, largest_output=largest, n=1, ptq_agreement=1.0)
    assert found.agrees is agrees
