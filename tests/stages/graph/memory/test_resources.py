"""The resource model gives the paper's figures to the last digit, and exact gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, NoOptions, Op, Options, PoolOptions, Tensor
from stages.graph.memory.resources import ResourceModel, Resources, op_macs, op_size_bytes, resources
from stages.nets.config import NetworkConfig
from stages.nets.registry import build


@pytest.mark.parametrize(
    "blocks, expected",
    [
        (5, Resources(size_bytes=419_844, peak_bytes=169_740, peak_bytes_imprecise=169_740, macs=54_609_912)),
        (7, Resources(size_bytes=581_580, peak_bytes=169_740, peak_bytes_imprecise=169_740, macs=74_274_912)),
    ],
    ids=["MN-M", "MN-L"],
)
def test_ds_cnn_needs_what_the_paper_prints(blocks, expected):
    assert resources(graph_from_torch(build(NetworkConfig(blocks=blocks)), (49, 10, 1))) == expected


class Branches(nn.Module):
    """Two branches of different width that meet in an Add, a residual over a wide layer, a hidden linear layer."""

    def __init__(self, stem=6, inner=5, wide=20, hidden=7) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, stem, 3, padding=1)
        self.inner = nn.Conv2d(stem, inner, 3, padding=1)
        self.back = nn.Conv2d(inner, stem, 1)
        self.expand = nn.Conv2d(stem, wide, 1)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.project = nn.Conv2d(wide, stem, 1)
        self.hidden = nn.Linear(stem * 8 * 4, hidden)
        self.classifier = nn.Linear(hidden, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = x + self.back(self.inner(x))
        x = x + self.project(self.depthwise(self.expand(x)))
        return self.classifier(torch.relu(self.hidden(torch.flatten(x, 1))))


SHAPE = (8, 4, 1)
WIDTHS = {"stem": 6, "inner": 5, "wide": 20, "hidden": 7}  # in the order of the groups


def test_figures_at_other_widths_are_those_of_the_narrower_network():
    model = ResourceModel(graph_from_torch(Branches(**WIDTHS), SHAPE))
    assert model.widths == tuple(WIDTHS.values())
    for narrow in ((6, 5, 20, 7), (3, 5, 11, 2), (1, 1, 1, 1), (6, 2, 9, 7)):
        rebuilt = Branches(**dict(zip(WIDTHS, narrow, strict=True)))
        assert model.resources(narrow) == resources(graph_from_torch(rebuilt, SHAPE))


def test_branches_by_hand():
    found = resources(graph_from_torch(Branches(**WIDTHS), SHAPE))
    weights = 9 * 6 + 9 * 6 * 5 + 5 * 6 + 6 * 20 + 9 * 20 + 20 * 6 + 6 * 32 * 7 + 7 * 3
    assert found.size_bytes == weights + 4 * (6 + 5 + 6 + 20 + 20 + 6 + 7 + 3)
    pixels = 9 * 6 + 9 * 6 * 5 + 5 * 6 + 6 * 20 + 9 * 20 + 20 * 6 + 2 * 6
    assert found.macs == 32 * pixels + 6 * 32 * 7 + 7 * 3
    assert found.peak_bytes_imprecise == 32 * (20 + 20)
    assert found.peak_bytes == 32 * (20 + 20 + 6)


@pytest.mark.parametrize("runtime", ["classic", "overlap"])
@pytest.mark.parametrize("net, shape", [(Branches(), SHAPE), (build(NetworkConfig(width=9, blocks=3)), (49, 10, 1))])
def test_gradients_agree_with_finite_differences(net, shape, runtime):
    model = ResourceModel(graph_from_torch(net, shape), runtime)
    draw = np.random.default_rng(1)
    for _ in range(10):
        widths = draw.uniform(1.5, 9.0, len(model.widths)).tolist()
        gradients = model.gradients(widths)
        for group in range(len(widths)):
            step = 1e-4
            above, below = ([w + sign * step * (i == group) for i, w in enumerate(widths)] for sign in (1, -1))
            high, low = model.usage(above), model.usage(below)
            for figure in ("size_bytes", "peak_bytes", "peak_bytes_imprecise", "macs"):
                slope = (getattr(high, figure) - getattr(low, figure)) / (2 * step)
                assert getattr(gradients, figure)[group] == pytest.approx(slope, rel=1e-5, abs=1e-5), (figure, group)


def test_only_the_bottleneck_has_a_peak_gradient():
    model = ResourceModel(graph_from_torch(build(NetworkConfig(width=12, blocks=2)), (49, 10, 1)))
    assert model.gradients([12.0, 12.0, 12.0]).peak_bytes.tolist() == [490 + 125, 0, 0]


def test_what_the_ops_need_adds_up_to_what_the_network_needs():
    graph = graph_from_torch(Branches(**WIDTHS), SHAPE)
    found = resources(graph)
    assert sum(op_macs(graph, op) for op in graph.ops) == found.macs
    assert sum(op_size_bytes(graph, op) for op in graph.ops) == found.size_bytes
    stem = graph.ops[0]
    assert (op_macs(graph, stem), op_size_bytes(graph, stem)) == (32 * 9 * 6, 9 * 6 + 4 * 6)


def macs_of(kind: str, options: Options, result: tuple[int, ...], *operands: tuple[int, ...]) -> int:
    """MACs of one op alone; the operands behind the first are constants."""
    data = [None, *(np.ones(shape, np.int8) for shape in operands[1:])]
    tensors = [Tensor(f"t{n}", shape, "int8", data=data[n]) for n, shape in enumerate(operands)]
    op = Op(kind, "op", tuple(range(len(operands))), (len(operands),), options)
    return op_macs(Graph((*tensors, Tensor("result", result, "int8")), (op,), (0,), op.outputs), op)


def test_every_row_and_every_image_of_a_batch_counts():
    connected = ActivationOptions()
    assert macs_of("FULLY_CONNECTED", connected, (4, 8), (4, 16), (8, 16)) == 4 * 8 * 16
    assert macs_of("FULLY_CONNECTED", connected, (1, 4, 8), (1, 4, 16), (8, 16)) == 4 * 8 * 16
    assert macs_of("FULLY_CONNECTED", connected, (1, 8), (1, 16), (8, 16)) == 8 * 16
    for images in (1, 2):
        maps = (images, 6, 4, 3)
        assert macs_of("CONV_2D", ConvOptions(), (images, 6, 4, 5), maps, (5, 3, 3, 3)) == images * 24 * 5 * 27
        assert macs_of("DEPTHWISE_CONV_2D", ConvOptions(), maps, maps, (1, 3, 3, 3)) == images * 24 * 3 * 9
        pooling = PoolOptions((2, 2), (2, 2))
        assert macs_of("MAX_POOL_2D", pooling, (images, 3, 2, 3), maps) == images * 24 * 3
        assert macs_of("ADD", connected, maps, maps, maps) == images * 24 * 3
        assert macs_of("RELU", NoOptions(), maps, maps) == 0
