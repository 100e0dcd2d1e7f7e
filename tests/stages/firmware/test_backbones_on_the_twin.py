"""Exported backbones, small: every layer on the twin has the bits of TensorFlow Lite Micro."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stages.export.quantise import int8_graph
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import ConvOptions, Graph
from stages.graph.simplify.simplification import simplify
from stages.nets.registry import build
from stages.qat.fake_quant import FakeQuantNetwork
from tests.stages.firmware.network_check import Agreement, compare_on_twin
from tests.stages.nets.small_backbones import SMALL, images

BACKBONES = ("efficientnet_b0", "mcunet_s", "mobilenet_v2", "etinynet", "bc_kws")


def exported(name: str) -> Graph:
    """Random weights, calibrated on random inputs: what the export would write."""
    config = SMALL[name]
    torch.manual_seed(0)
    network = build(config)
    x = images(config, 8).contiguous(memory_format=torch.channels_last)
    for module in network.modules():  # statistics of these inputs: otherwise every layer shrinks what it is given
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        network.train()(x)
    fake = FakeQuantNetwork(graph_from_torch(network.eval(), config.input_shape))
    fake.calibrate(x)
    return int8_graph(fake.quantised_graph())


@pytest.mark.slow
def test_every_layer_of_the_exported_backbones_has_the_bits_of_tflm(tmp_path: Path) -> None:
    graphs = {name: exported(name) for name in BACKBONES}
    found = Agreement()
    compare_on_twin([(name, graph, "fast") for name, graph in graphs.items()], tmp_path, found, inputs_each=1)
    assert found.wrong == []
    assert found.inside > 0.5 * found.values
    # The curves and gates of EfficientNet, and depthwise windows beyond 3x3, were among them.
    assert {"LOGISTIC", "HARD_SWISH", "MUL", "DEPTHWISE_CONV_2D", "ADD"} <= set(found.kinds)
    dilated = [
        op
        for graph in graphs.values()
        for op in graph.ops
        if op.kind == "DEPTHWISE_CONV_2D" and isinstance(op.options, ConvOptions) and op.options.dilation != (1, 1)
    ]
    assert found.kernels["depthwise_conv_2d"] == len(dilated)
    for name, graph in graphs.items():
        assert len(simplify(graph).ops) <= len(graph.ops), name
