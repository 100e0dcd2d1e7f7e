"""Backbones come out in the right shape, and come back from architecture.json."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from pipeline.errors import StageError
from stages.nets.config import BudgetConfig, NetworkConfig
from stages.nets.registry import Architecture, build, full_widths, load_architecture, save_architecture


def test_default_network_is_mn_m():
    net = build(NetworkConfig())
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert [(c.kernel_size, c.out_channels) for c in convolutions] == [
        ((10, 4), 276),
        *[((3, 3), 276), ((1, 1), 276)] * 5,
    ]
    assert [c.stride for c in convolutions if c.stride != (1, 1)] == [(2, 2)]
    assert net.classifier.out_features == 12


@pytest.mark.parametrize("shape", [(49, 10, 1), (20, 7, 3), (5, 4, 2)])
def test_maps_are_the_ceiling_of_half_the_input(shape):
    net = build(NetworkConfig(width=4, blocks=2), shape, 5)
    height, width, channels = shape
    x = torch.randn(2, channels, height, width)
    assert net.stem(x).shape == (2, 4, height, width)
    assert net.blocks(net.stem(x)).shape == (2, 4, -(-height // 2), -(-width // 2))
    assert net(x).shape == (2, 5)


def test_widths_are_the_channels_of_each_group():
    net = build(NetworkConfig(width=9, blocks=2), widths=(3, 4, 5))
    assert net.stem.conv.out_channels == net.blocks[0].depthwise.conv.out_channels == 3
    assert [block.pointwise.conv.out_channels for block in net.blocks] == [4, 5]
    assert full_widths(NetworkConfig(width=9, blocks=2)) == (9, 9, 9)


def test_architecture_survives_its_file(tmp_path):
    architecture = Architecture(
        network=NetworkConfig(width=9, blocks=2), widths=(3, 4, 5), input_shape=(20, 7, 1), classes=4
    )
    path = save_architecture(tmp_path / "architecture.json", architecture)
    loaded = load_architecture(path)
    loaded.load_state_dict(architecture.build().state_dict())  # raises when a shape differs
    assert loaded.blocks[1].pointwise.conv.weight.shape == (5, 4, 1, 1)


def test_damaged_architecture_names_the_field(tmp_path):
    path = tmp_path / "architecture.json"
    path.write_text('{"network": {"name": "dscnn"}, "widths": [3, "x"], "input_shape": [1, 2, 3], "classes": 2}')
    with pytest.raises(StageError, match=r"architecture.json: widths.1: .*; was it written by the prune step"):
        load_architecture(path)


@pytest.mark.parametrize("widths", [(3, 4), (3, 4, 0)])
def test_wrong_number_of_widths_is_refused(widths):
    with pytest.raises(StageError, match=r"dscnn: widths .* needed 3 positive ones"):
        build(NetworkConfig(width=9, blocks=2), widths=widths)


def test_budget_wants_units_and_positive_figures():
    budget = BudgetConfig(peak_bytes="51.7KB", size_bytes="63.6KB", macs="8.351M")
    assert (budget.peak_bytes, budget.size_bytes, budget.macs) == (51_700, 63_600, 8_351_000)
    with pytest.raises(ValidationError, match="above zero"):
        BudgetConfig(peak_bytes="-1KB", size_bytes="63.6KB", macs="8.351M")
    with pytest.raises(ValidationError, match="missing unit"):
        BudgetConfig(peak_bytes="51", size_bytes="63.6KB", macs="8.351M")
