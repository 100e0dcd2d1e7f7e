"""Networks are built from their configuration, a user's own too, and come back from architecture.json."""

from __future__ import annotations

import sys

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from pipeline.errors import ConfigError, StageError
from stages.nets.channels import find_channels
from stages.nets.config import FAMILIES, BudgetConfig, NetworkConfig
from stages.nets.registry import Architecture, architecture_of, build, read_architecture, save_architecture
from stages.prepare.config import DataConfig

MY_NETS = """
from torch import nn

def make(width, classes=3):
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width, classes),
    )

def text():
    return "no network"

def broken(width):
    raise KeyError("depth")

def heads(width):
    class Heads(nn.Module):
        def forward(self, x):
            return {"logits": x}
    return Heads()

def shared(width, what):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, width, 3), nn.Conv2d(1, width, 3)
            self.norm, self.head = nn.BatchNorm2d(width), nn.Linear(width, 3)
            if what == "weight":
                self.b.weight = self.a.weight
        def forward(self, x):
            a, b = self.norm(self.a(x)), self.b(x)
            return self.head((a + (self.norm(b) if what == "norm" else b)).mean((2, 3)))
    return Shared()

def nested(width, table, extra=None):
    return make(width * table[0][1])

def odd():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(nn.GELU()), nn.Flatten(), nn.Linear(4 * 6 * 4, 3))
"""


@pytest.fixture
def my_nets(tmp_path, monkeypatch):
    """A project folder with a network in it, on the path as the engine puts it there."""
    (tmp_path / "my_nets.py").write_text(MY_NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "my_nets.py"
    sys.modules.pop("my_nets", None)


def own(module="my_nets:make", **settings) -> NetworkConfig:
    return NetworkConfig(
        **({"module": module, "args": {"width": 6}, "input_shape": (8, 6, 1), "classes": 3} | settings)
    )


def test_default_network_is_mn_m():
    net = build(NetworkConfig())
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert [(c.kernel_size, c.out_channels) for c in convolutions] == [
        ((10, 4), 276),
        *[((3, 3), 276), ((1, 1), 276)] * 5,
    ]
    assert [c.stride for c in convolutions if c.stride != (1, 1)] == [(2, 2)]
    assert net.classifier.out_features == 12


def test_mlperf_has_its_stride_in_the_first_convolution():
    net = build(NetworkConfig(name="dscnn_mlperf"))
    strides = [module.stride for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert strides == [(2, 2)] + [(1, 1)] * 8


def test_dilations_of_res15_are_those_of_its_authors():
    net = build(NetworkConfig(name="res15", width=4))
    dilations = [module.dilation[0] for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert dilations == [1, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16]


@pytest.mark.parametrize("shape", [(49, 10, 1), (20, 7, 3), (5, 4, 2)])
def test_maps_are_the_ceiling_of_half_the_input(shape):
    net = build(NetworkConfig(width=4, blocks=2, input_shape=shape, classes=5))
    height, width, channels = shape
    x = torch.randn(2, channels, height, width)
    assert net.stem(x).shape == (2, 4, height, width)
    assert net.blocks(net.stem(x)).shape == (2, 4, -(-height // 2), -(-width // 2))
    assert net(x).shape == (2, 5)


@pytest.mark.parametrize(
    "multiplier, stem, last", [(1.0, 32, 1280), (0.75, 24, 1280), (0.35, 16, 1280), (1.4, 48, 1792)]
)
def test_width_multiplier_rounds_to_eights_and_never_narrows_the_last_layer(multiplier, stem, last):
    net = build(NetworkConfig(name="mobilenet_v2", input_shape=(32, 32, 3), width_multiplier=multiplier))
    assert (net.stem.conv.out_channels, net.last.conv.out_channels) == (stem, last)


def test_widths_are_the_channels_of_each_group():
    net = build(NetworkConfig(width=9, blocks=2), widths=(3, 4, 5))
    assert net.stem.conv.out_channels == net.blocks[0].depthwise.conv.out_channels == 3
    assert net.blocks[0].depthwise.conv.groups == net.blocks[0].pointwise.conv.in_channels == 3
    assert [block.pointwise.conv.out_channels for block in net.blocks] == [4, 5]
    assert net.blocks[1].pointwise.norm.num_features == net.classifier.in_features == 5


@pytest.mark.parametrize("widths", [(3, 4), (3, 4, 0), (3, 4, 10)])
def test_wrong_widths_are_refused(widths):
    with pytest.raises(StageError, match=r"dscnn: widths .* needed 3, one per channel group, from 1 to \[9, 9, 9\]"):
        build(NetworkConfig(width=9, blocks=2), widths=widths)


def test_architecture_survives_its_file(tmp_path):
    config = NetworkConfig(width=9, blocks=2, input_shape=(20, 7, 1), classes=4)
    architecture = architecture_of(config, (3, 4, 5))
    path = save_architecture(tmp_path / "architecture.json", architecture)
    loaded = read_architecture(path).build()
    loaded.load_state_dict(architecture.build().state_dict())  # raises when a shape differs
    assert loaded.blocks[1].pointwise.conv.weight.shape == (5, 4, 1, 1)


def test_damaged_architecture_names_the_field(tmp_path):
    path = tmp_path / "architecture.json"
    path.write_text('{"network": {"name": "dscnn"}, "widths": [3, "x"]}')
    with pytest.raises(StageError, match=r"architecture.json: widths.1: .*; was it written by the prune step"):
        read_architecture(path).build()


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"name": "res8", "blocks": 3}, "found blocks, which res8 does not take; it takes width"),
        ({"name": "dscnn", "extras": True}, "found extras, which dscnn does not take; it takes width, blocks"),
        ({"name": "dscnn", "args": {"width": 3}}, "found args, which go with 'module'"),
        ({"name": "dscnnn"}, "Input should be 'dscnn'"),
        ({"name": "dscnn", "widht": 3}, "Extra inputs are not permitted"),
        ({"name": "dscnn", "width": 0}, "greater than or equal to 1"),
        ({"name": "dscnn", "input_shape": [49, 10]}, "Field required"),
        ({"module": "my_nets"}, "String should match pattern"),
        ({"module": "my_nets:make", "width": 3}, "found width beside module"),
    ],
)
def test_arguments_that_a_network_does_not_take_are_refused(settings, sentence):
    with pytest.raises(ValidationError, match=sentence):
        NetworkConfig(**settings)


def test_what_is_not_given_comes_from_the_family():
    config = NetworkConfig(name="mobilenet_v2", width_multiplier=0.5)
    assert (config.input_shape, config.classes, config.extras) == ((160, 160, 3), 2, True)
    assert config.arguments == {"width_multiplier": 0.5, "extras": True}
    assert config.width is config.blocks is None
    assert NetworkConfig(**config.model_dump()) == config
    assert set(FAMILIES) == set(NetworkConfig.model_fields["name"].annotation.__args__[0].__args__)


def test_an_image_that_is_too_small_for_the_network_is_refused():
    with pytest.raises(StageError, match=r"vgg16: network.input_shape is \(31, 32, 3\), needed at least 32x32"):
        build(NetworkConfig(name="vgg16", input_shape=(31, 32, 3)))
    with pytest.raises(StageError, match=r"res8: network.input_shape is \(9, 2, 1\), needed at least 4x3"):
        build(NetworkConfig(name="res8", input_shape=(9, 2, 1)))


def test_a_network_of_the_users_own_is_built_narrowed_and_found_again(my_nets, tmp_path):
    config = own()
    architecture = architecture_of(config, (4,))
    path = save_architecture(tmp_path / "architecture.json", architecture)
    net = read_architecture(path).build()
    assert net[0].weight.shape == (4, 1, 3, 3) and net[5].weight.shape == (3, 4)
    assert find_channels(build(config), config.input_shape).resources.size_bytes == 6 * 9 + 6 * 4 + 18 + 12
    assert config.source_modules == ("my_nets",)
    my_nets.write_text(MY_NETS + "# changed\n")
    with pytest.raises(StageError, match="the source of my_nets:make is not the one that was pruned; run prune again"):
        read_architecture(path).build()


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"module": "nowhere:make"}, "network.module: nowhere:make: cannot be imported"),
        ({"module": "my_nets:mkae"}, "network.module: my_nets:mkae: cannot be imported"),
        ({"args": {}}, "does not take these args .*width.*; check network.args"),
        ({"args": {"width": 4, "depth": 2}}, "does not take these args .*depth"),
        ({"module": "my_nets:text", "args": {}}, "returned str, needed a torch.nn.Module"),
        ({"module": "my_nets:broken"}, r"my_nets:broken: does not take these args \(KeyError: 'depth'\); check"),
        ({"module": "my_nets:heads"}, "delivers a dict, needed one tensor; return only the logits"),
        ({"input_shape": (8, 6, 3)}, r"does not take an input of \(8, 6, 3\)"),
        (
            {"module": "my_nets:nested", "args": {"width": 2, "table": [[1, 2]]}, "classes": 4},
            r"delivers \(1, 3\), needed \(1, 4\) for 4 classes; let the function take a parameter 'classes', or",
        ),
        ({"input_shape": None}, "its input shape and classes are not known before the data are prepared; give network"),
    ],
)
def test_a_network_of_the_users_own_that_does_not_fit_is_a_config_error(settings, sentence, my_nets):
    with pytest.raises(ConfigError, match=sentence):
        build(own(**settings))


def test_a_network_of_the_users_own_is_handed_the_shape_and_classes_of_the_data_if_it_takes_them(my_nets):
    asked = NetworkConfig(module="my_nets:make", args={"width": 6})
    assert build(asked.for_data((8, 6, 1), 5))[5].out_features == 5
    kept = NetworkConfig(module="my_nets:make", args={"width": 6, "classes": 5})
    assert build(kept.for_data((8, 6, 1), 5))[5].out_features == 5
    with pytest.raises(ConfigError, match=r"delivers \(1, 5\), needed \(1, 4\)"):
        build(kept.for_data((8, 6, 1), 4))


@pytest.mark.parametrize(
    "given, shape, name",
    [
        ({}, (49, 10, 1), "dscnn"),
        ({}, (24, 24, 3), "mobilenet_v1"),
        ({"width": 8}, (24, 24, 3), "dscnn"),
        ({"name": "vgg16", "classes": 7}, (32, 32, 3), "vgg16"),
    ],
)
def test_what_is_not_given_comes_from_the_data(given, shape, name):
    found = NetworkConfig(**given).for_data(shape, 7)
    assert (found.name, found.input_shape, found.classes) == (name, shape, 7)
    assert build(found)(torch.zeros(2, shape[2], *shape[:2])).shape == (2, 7)


def test_a_size_that_is_not_that_of_the_pictures_names_both_keys():
    asked = NetworkConfig(name="mobilenet_v2", input_shape=(64, 64, 3))
    with pytest.raises(ConfigError, match=r"found 64x64x3 .*, the data are 96x96x3; .* or set data.image_px to 64$"):
        asked.for_data((96, 96, 3), 2)


def test_the_size_of_pictures_is_said_once_in_either_section():
    data, network = {"source": "folder", "root": "x", "image_px": 40}, {"name": "vgg16"}
    assert NetworkConfig.completed(network, {"data": data})["input_shape"] == [40, 40, 3]
    assert NetworkConfig.completed(network | {"input_shape": [8, 8, 3]}, {"data": data})["input_shape"] == [8, 8, 3]
    assert "input_shape" not in NetworkConfig.completed({}, {"data": {"image_px": 40}})  # keywords have no size
    shaped = {"network": {"input_shape": [48, 48, 3]}}
    assert DataConfig.completed({"source": "folder"}, shaped)["image_px"] == 48
    assert DataConfig.completed({"image_px": 32}, shaped)["image_px"] == 32
    assert "image_px" not in DataConfig.completed({}, {"network": {"input_shape": [49, 10, 1]}})


@pytest.mark.parametrize(
    "what, sentence",
    [
        ("norm", "^norm: used more than once, which cannot be pruned; give each use its own layer"),
        ("weight", "^b.weight: the same parameter as a.weight, which cannot be pruned; give each its own"),
    ],
)
def test_what_two_layers_share_is_refused_before_training(my_nets, what, sentence):
    net = build(own("my_nets:shared", args={"width": 4, "what": what}))
    with pytest.raises(StageError, match=sentence):
        find_channels(net, (8, 6, 1))


def test_a_file_that_is_no_python_is_a_config_error(my_nets):
    my_nets.write_text("def make(:\n")
    with pytest.raises(ConfigError, match=r"my_nets:make: cannot be imported \(SyntaxError: invalid syntax"):
        build(own())


def test_arguments_may_be_tables(my_nets):
    net = build(own("my_nets:nested", args={"width": 2, "table": [[3, 4], [1, 16]], "extra": None}))
    assert net[0].out_channels == 8


def test_an_unsupported_layer_of_the_users_own_is_named_by_its_path(my_nets):
    config = own(module="my_nets:odd", args={})
    with pytest.raises(StageError, match=r"1.0 \(GELU\): no such layer is supported"):
        find_channels(build(config), config.input_shape)


def test_channels_that_leave_through_a_sigmoid_cannot_be_masked():
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Sigmoid(), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(2 * 6, 3))
    with pytest.raises(StageError, match="2: reads channels that cannot be masked, they went through a sigmoid"):
        find_channels(net, (3, 2, 1))


def test_budget_wants_units_and_positive_figures_and_at_least_one():
    budget = BudgetConfig(peak_bytes="51.7KB", size_bytes="63.6KB", macs="8.351M")
    assert budget.limits == {"peak_bytes": 51_700, "size_bytes": 63_600, "macs": 8_351_000}
    assert BudgetConfig(macs="15.35M").limits == {"macs": 15_350_000}
    with pytest.raises(ValidationError, match="above zero"):
        BudgetConfig(peak_bytes="-1KB", size_bytes="63.6KB", macs="8.351M")
    with pytest.raises(ValidationError, match="missing unit"):
        BudgetConfig(peak_bytes="51", size_bytes="63.6KB", macs="8.351M")
    with pytest.raises(ValidationError, match="needed at least one of peak_bytes, size_bytes and macs"):
        BudgetConfig()


def test_architecture_without_a_network_name_is_refused():
    with pytest.raises(ValidationError):
        Architecture.model_validate({"widths": [3]})
