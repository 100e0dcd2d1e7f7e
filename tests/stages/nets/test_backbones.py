"""Every backbone is the paper's: its figures to the last printed digit, its channel groups, and what it computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stages.graph.checks.op_check import check_graph
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import resources
from stages.nets.channels import find_channels
from stages.nets.config import NetworkConfig
from stages.nets.narrowing import kept_channels, narrowed
from stages.nets.registry import build
from stages.prune.signal.masks import explicit_forward, folded_forward, top_masks
from tests.stages.graph.arithmetic.float_evaluation import evaluated
from tests.stages.nets.small_backbones import SMALL, images, shaken

# Size, peak, MACs: decoded from the paper's table, where three or four digits are printed.
TABLE = [
    ({"name": "dscnn", "blocks": 7}, 581_580, 169_740, 74_274_912),  # 582 K, 170 KB, 74.27 M
    ({"name": "dscnn"}, 419_844, 169_740, 54_609_912),  # 420 K, 170 KB, 54.61 M
    ({"name": "res15"}, 240_438, 66_150, 116_446_590),  # 240 K, 66.1 KB, 116.4 M
    ({"name": "res8"}, 111_603, 23_670, 4_161_510),  # 112 K, 23.7 KB, 4.162 M
    ({"name": "vgg16"}, 14_732_520, 131_072, 313_326_592),  # 14.7 M, 131 KB, 313.3 M
    ({"name": "mobilenet_v2", "input_shape": (50, 50, 3)}, 2_321_288, 76_224, 22_578_344),  # 2.32 M, 76.2 KB, 22.58 M
    ({"name": "mobilenet_v2"}, 2_321_288, 768_000, 164_792_960),  # 2.32 M, 768 KB, 164.8 M
    ({"name": "efficientnet_b0"}, 3_663_512, 768_000, 187_551_040),  # 3.66 M, 768 KB, 187.6 M
    ({"name": "mcunet_s", "width_multiplier": 0.5}, 747_880, 332_800, 67_408_000),  # 748 K, 333 KB, 67.41 M
    ({"name": "mcunet_m", "width_multiplier": 0.5}, 755_784, 340_736, 81_935_648),  # 756 K, 341 KB, 81.94 M
    ({"name": "etinynet"}, 979_360, 200_704, 105_941_184),  # 979 K, 201 KB, 105.9 M
    ({"name": "etinynet", "width_multiplier": 0.75}, 660_256, 150_528, 63_349_392),  # 660 K, 151 KB, 63.35 M
    # No row in the paper's table; MLPerf Tiny's networks have 24.9 K, 78.7 K and 222 K parameters, unfolded.
    ({"name": "dscnn_mlperf"}, 24_368, 16_000, 2_664_768),
    ({"name": "resnet8"}, 78_744, 49_152, 12_534_400),
    ({"name": "mobilenet_v1"}, 219_064, 55_296, 7_491_968),
    ({"name": "bc_kws"}, 55_068, 36_000, 3_851_952),
    ({"name": "bc_kws", "width": 8}, 9_556, 12_000, 699_984),  # 8,168 parameters; BC-ResNet-1 has 9,232
    ({"name": "bc_kws", "width": 8, "input_shape": (49, 10, 1)}, 9_356, 11_760, 821_036),
    ({"name": "inverted_cifar"}, 174_744, 65_536, 9_269_312),
    ({"name": "resnet18"}, 11_183_592, 196_608, 555_676_672),
]


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only lose by sharing the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("network", "size", "peak", "macs"), TABLE, ids=lambda value: str(value))
def test_figures_are_those_of_the_table(network, size, peak, macs):
    config = NetworkConfig(**network)
    found = resources(graph_from_torch(build(config), config.input_shape))
    assert (found.size_bytes, found.peak_bytes, found.macs) == (size, peak, macs)


@pytest.mark.parametrize("name", SMALL)
def test_graph_computes_what_the_backbone_computes(name):
    torch.manual_seed(1)
    net = shaken(build(SMALL[name]))
    x = images(SMALL[name], 1)
    graph = graph_from_torch(net, SMALL[name].input_shape, softmax=False)
    check_graph(graph)
    expected = net(x).detach().numpy()
    found = evaluated(graph, x.numpy().transpose(0, 2, 3, 1))
    assert np.abs(found - expected).max() < 1e-4 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", SMALL)
def test_shrinking_a_backbone_changes_no_output(name):
    torch.manual_seed(2)
    config = SMALL[name]
    net = shaken(build(config).double())
    channels = find_channels(net, config.input_shape)
    draw = torch.Generator().manual_seed(4)
    widths = [int(torch.randint(1, full + 1, (), generator=draw)) for full in channels.widths]
    masks = top_masks([torch.rand(full, generator=draw).double() for full in channels.widths], widths)
    small = narrowed(net, channels, kept_channels(masks))
    x = images(config, 3).double()
    with torch.no_grad():
        masked = folded_forward(net, channels, masks, x)
        assert float((masked - net(x)).abs().max()) > 1e-3  # the masks do something
        assert float((masked - small(x)).abs().max()) < 1e-5
        assert float((masked - explicit_forward(channels, masks, x)).abs().max()) < 1e-5
        rebuilt = build(config, widths).double().eval()
        rebuilt.load_state_dict(small.state_dict())  # raises when a shape differs
        assert torch.equal(rebuilt(x), small(x))


def groups_of(name: str) -> set[frozenset[str]]:
    """The groups of a backbone as sets of layers; at full width, where no two stages happen to be equally wide."""
    config = SMALL[name].model_dump(exclude_none=True)
    full = NetworkConfig(**(config | {"width_multiplier": 1.0} if "width_multiplier" in config else config))
    channels = find_channels(build(full), full.input_shape)
    return {
        frozenset(layer.weight.removesuffix(".conv") for layer in channels.of_group(group))
        for group in range(len(channels.widths))
    }


def separable(blocks: int, last: str = "blocks") -> list[str]:
    """A chain of depthwise-separable blocks: each depthwise keeps the channels of the layer before it."""
    first = ["stem blocks.0.depthwise"]
    middle = [f"{last}.{n}.pointwise {last}.{n + 1}.depthwise" for n in range(blocks - 1)]
    return [*first, *middle, f"{last}.{blocks - 1}.pointwise"]


def inside(blocks: range, *layers: str) -> list[str]:
    """Inside each inverted bottleneck: the expansion, what it is spread by, and the gate."""
    return [" ".join(f"blocks.{n}.{layer}" for layer in layers) for n in blocks]


def main_line(*runs: tuple[int, ...]) -> list[str]:
    """Projections that shortcuts tie together."""
    return [" ".join(f"blocks.{n}.project" for n in run) for run in runs]


_BROADCAST = ("spectral", "temporal", "pointwise")  # the sums tie them all
GROUPS = {
    "dscnn": separable(3),
    "dscnn_mlperf": separable(2),
    "mobilenet_v1": separable(13),
    "res8": [
        "stem layers.0.second layers.1.second layers.2.second",
        "layers.0.first",
        "layers.1.first",
        "layers.2.first",
    ],
    "res15": [
        "stem layers.0.second layers.1.second layers.2.second layers.3.second layers.4.second layers.5.second",
        *(f"layers.{n}.first" for n in range(6)),
        "layers.6",
    ],
    "bc_kws": [
        "stem",
        *(
            " ".join(
                [f"blocks.{first}.enter", *(f"blocks.{n}.{layer}" for n in range(first, last) for layer in _BROADCAST)]
            )
            + (" depthwise" if last == 12 else "")
            for first, last in ((0, 2), (2, 4), (4, 8), (8, 12))
        ),
        "pointwise",
    ],
    "vgg16": [f"stages.{stage}.{n}" for stage, count in enumerate((2, 2, 3, 3, 3)) for n in range(count)],
    "resnet8": [
        "stem blocks.0.second",
        "blocks.1.second blocks.1.shortcut",
        "blocks.2.second blocks.2.shortcut",
        *(f"blocks.{n}.first" for n in range(3)),
    ],
    "resnet18": [
        "stem blocks.0.second blocks.1.second",
        "blocks.2.second blocks.2.shortcut blocks.3.second",
        "blocks.4.second blocks.4.shortcut blocks.5.second",
        "blocks.6.second blocks.6.shortcut blocks.7.second",
        *(f"blocks.{n}.first" for n in range(8)),
    ],
    "inverted_cifar": [
        "stem",
        *inside(range(10), "expand", "depthwise"),
        *main_line((0, 1, 2), (3, 4, 5, 6), (7, 8, 9)),
        "last",
    ],
    "mobilenet_v2": [
        "stem",
        *inside(range(17), "expand", "depthwise"),
        "blocks.0.project blocks.0.shortcut",
        *main_line((1, 2), (3, 4, 5), (6, 7, 8, 9), (13, 14, 15)),
        "blocks.10.project blocks.10.shortcut blocks.11.project blocks.12.project",
        "blocks.16.project blocks.16.shortcut",
        "last",
    ],
    "mobilenet_v2_published": [
        "stem blocks.0.depthwise",
        *inside(range(1, 17), "expand", "depthwise"),
        *main_line((0,), (1, 2), (3, 4, 5), (6, 7, 8, 9), (10, 11, 12), (13, 14, 15), (16,)),
        "last",
    ],
    "efficientnet_b0": [
        "stem blocks.0.depthwise blocks.0.excite.expand",
        *inside(range(1, 16), "expand", "depthwise", "excite.expand"),
        *inside(range(16), "excite.reduce"),
        *main_line((0,), (1, 2), (3, 4), (5, 6, 7), (8, 9, 10), (11, 12, 13, 14), (15,)),
    ],
    "mcunet_s": [
        "stem blocks.0.depthwise",
        *inside(range(1, 18), "expand", "depthwise"),
        *main_line((0,), (1, 2, 3, 4), (5, 6, 7), (8, 9), (10, 11, 12), (13, 14, 15, 16), (17,)),
    ],
    "mcunet_m": [
        "stem blocks.0.depthwise",
        *inside(range(1, 18), "expand", "depthwise"),
        *main_line((0,), (1, 2, 3, 4), (5, 6, 7), (8, 9, 10), (11, 12, 13), (14, 15, 16), (17,)),
    ],
    "etinynet": [
        "stem blocks.0.spread",
        *(f"blocks.{n}.pointwise blocks.{n}.depthwise blocks.{n + 1}.spread" for n in range(8)),
        # Dense blocks: the sums tie what goes in to what comes out.
        "blocks.8.pointwise blocks.8.depthwise blocks.9.spread blocks.9.pointwise blocks.9.depthwise blocks.10.spread "
        "blocks.10.pointwise blocks.10.depthwise blocks.11.spread",
        "blocks.11.pointwise blocks.11.depthwise blocks.12.spread blocks.12.pointwise blocks.12.depthwise "
        "blocks.13.spread",
        "blocks.13.pointwise blocks.13.depthwise",
    ],
}


@pytest.mark.parametrize("name", SMALL)
def test_groups_are_those_listed_by_hand(name):
    assert groups_of(name) == {frozenset(group.split()) for group in GROUPS[name]}
