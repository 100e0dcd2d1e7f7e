"""Masked, explicitly masked and physically shrunk networks compute the same, and train the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipeline.errors import StageError
from stages.nets.channels import find_channels
from stages.nets.config import NetworkConfig
from stages.nets.narrowing import carry_over_optimiser, cut_tensors, kept_channels, narrowed
from stages.nets.registry import build
from stages.prune.signal.masks import explicit_forward, folded_forward, saliences, top_masks

SHAPE = (11, 6, 2)


class Residual(nn.Module):
    """A shortcut, an inverted bottleneck, a convolution without batch norm, a flattened map, a hidden layer."""

    def __init__(self, stem=6, wide=9, plain=5, hidden=7) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, stem, 3, padding=1), nn.BatchNorm2d(stem), nn.ReLU())
        self.expand = nn.Sequential(nn.Conv2d(stem, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide), nn.ReLU6()
        )
        self.project = nn.Sequential(nn.Conv2d(wide, stem, 1), nn.BatchNorm2d(stem))
        self.plain = nn.Conv2d(stem, plain, 3)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(plain * 4 * 2, hidden)
        self.classifier = nn.Linear(hidden, 3)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(x + self.project(self.depthwise(self.expand(x))))
        x = self.pool(torch.relu(self.plain(x)))
        return self.classifier(torch.relu(self.hidden(torch.flatten(x, 1))))


def dscnn(widths=None) -> nn.Module:
    return build(NetworkConfig(width=8, blocks=2, input_shape=SHAPE, classes=3), widths)


CASES = {
    "dscnn": (dscnn, dscnn, (5, 3, 4)),
    "residual": (Residual, lambda widths: Residual(*widths), (4, 5, 3, 2)),
}


@pytest.fixture(params=CASES)
def case(request):
    """A network after a few steps of training, its masks, and the same one cut to them."""
    make, make_small, widths = CASES[request.param]
    torch.manual_seed(1)
    net = make().double()
    optimiser = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(net(torch.randn(8, 2, 11, 6).double()), torch.randint(0, 3, (8,))).backward()
        optimiser.step()
    channels = find_channels(net, SHAPE)
    masks = top_masks(saliences(net, channels), widths)
    small = narrowed(net, channels, kept_channels(masks))
    built_small = make_small(widths).state_dict()
    assert {name: tensor.shape for name, tensor in small.state_dict().items()} == {
        name: tensor.shape for name, tensor in built_small.items()
    }
    return net, optimiser, channels, masks, small


def test_shrinking_changes_no_output(case):
    net, _, channels, masks, small = case
    x = torch.randn(16, 2, 11, 6).double()
    net.eval(), small.eval()
    with torch.no_grad():
        masked = folded_forward(net, channels, masks, x)
        assert float((masked - net(x)).abs().max()) > 1e-3  # the masks do something
        assert float((masked - small(x)).abs().max()) < 1e-12
        assert float((masked - explicit_forward(channels, masks, x)).abs().max()) < 1e-12


def test_training_goes_on_as_if_nothing_had_been_cut(case):
    net, optimiser, channels, masks, small = case
    small_optimiser = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    small_optimiser.load_state_dict(optimiser.state_dict())
    carry_over_optimiser(channels, kept_channels(masks), net, small, small_optimiser)
    net.train(), small.train()
    for _ in range(3):
        x, y = torch.randn(8, 2, 11, 6).double(), torch.randint(0, 3, (8,))
        for forward, steps in (
            (lambda x: folded_forward(net, channels, masks, x), optimiser),
            (small, small_optimiser),
        ):
            steps.zero_grad()
            F.cross_entropy(forward(x), y).backward()
            steps.step()
    expected = cut_tensors(channels, kept_channels(masks), net.state_dict())
    for name, tensor in small.state_dict().items():
        assert torch.allclose(tensor.double(), expected[name].double(), atol=1e-12), name


def test_a_masked_channel_has_a_gradient_only_behind_the_activation(case):
    net, _, channels, masks, _ = case
    net.eval()
    x = torch.randn(16, 2, 11, 6).double()
    open_masks = [mask.clone().requires_grad_() for mask in masks]
    gradients = torch.autograd.grad(explicit_forward(channels, open_masks, x).square().sum(), open_masks)
    assert all(bool((gradient[mask == 0] != 0).any()) for gradient, mask in zip(gradients, masks, strict=True))


def test_a_layer_that_only_feeds_a_depthwise_one_is_not_masked():
    channels = find_channels(dscnn(), SHAPE)
    masked = {layer.weight: layer.masked for layer in channels.layers}
    assert masked == {
        "stem.conv": False,
        "blocks.0.depthwise.conv": True,
        "blocks.0.pointwise.conv": False,
        "blocks.1.depthwise.conv": True,
        "blocks.1.pointwise.conv": True,
        "classifier": False,
    }


def test_salience_is_the_largest_gamma_of_the_group_and_the_norm_of_a_linear_layer():
    net = Residual()
    channels = find_channels(net, SHAPE)
    net.stem[1].weight.data = torch.tensor([1.0, -3.0, 0.0, 0.5, 0.0, 1.0])
    net.project[1].weight.data = torch.tensor([-2.0, 1.0, 0.0, 0.0, 0.25, 1.0])
    net.hidden.weight.data.fill_(0.5)
    found = saliences(net, channels)
    assert found[0].tolist() == [2.0, 3.0, 0.0, 0.5, 0.25, 1.0]
    assert found[3].tolist() == pytest.approx([0.5 * 40**0.5] * 7)


def test_a_gate_is_neither_masked_nor_salient_beside_the_map_that_it_multiplies():
    net = build(NetworkConfig(name="efficientnet_b0", input_shape=(32, 32, 3), width_multiplier=0.25))
    channels = find_channels(net, (32, 32, 3))
    block = {
        layer.weight.removeprefix("blocks.1."): layer
        for layer in channels.layers
        if layer.weight.startswith("blocks.1.")
    }
    assert {name: layer.masked for name, layer in block.items()} == {
        "expand.conv": False,  # a Hardswish lies between it and the depthwise convolution
        "depthwise.conv": True,
        "excite.reduce": True,
        "excite.expand": False,
        "project.conv": True,
    }
    net.get_submodule("blocks.1.excite.expand").weight.data.fill_(100.0)
    assert float(saliences(net, channels)[block["depthwise.conv"].outputs.whole].max()) == 1.0


@pytest.mark.parametrize(
    "layers, sentence",
    [
        ({"twice": nn.Conv2d(2, 2, 1)}, "twice: used more than once"),
        ({"norm": nn.BatchNorm2d(2, affine=False)}, "norm: batch normalisation without gamma has no salience"),
    ],
)
def test_layers_that_cannot_be_pruned_are_refused(layers, sentence):
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(2, 2, 1), nn.Identity()
            for name, layer in layers.items():
                self.add_module(name, layer)

        def forward(self, x):
            x = self.first(x)
            for name in layers:
                x = getattr(self, name)(x)
                x = getattr(self, name)(x) if name == "twice" else x
            return self.last(x)

    net = Odd()
    net.last = nn.Conv2d(2, 3, 1)
    with pytest.raises(StageError, match=sentence):
        find_channels(net, SHAPE)


def test_equal_saliences_keep_exactly_as_many_channels_as_asked():
    (mask,) = top_masks([torch.ones(6)], [4])
    assert mask.tolist() == [1, 1, 1, 1, 0, 0]
    (mask,) = top_masks([torch.tensor([0.1, 0.5, 0.3])], [2])
    assert mask.tolist() == [0, 1, 1]
