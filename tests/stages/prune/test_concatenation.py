"""Networks whose channels are concatenated, multiplied and tied in odd ways: narrowing them changes no output."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.memory.resources import ResourceModel, resources
from stages.nets.channels import Channels, find_channels
from stages.nets.narrowing import carry_over_optimiser, first_channels, kept_channels, narrowed
from stages.prune.signal.masks import explicit_forward, folded_forward, saliences, top_masks
from stages.prune.trajectory import group_names
from tests.stages.nets.small_backbones import shaken

SHAPE = (6, 5, 3)
PIXELS = SHAPE[0] * SHAPE[1]


class Program(nn.Module):
    """A network written down: each line is an op, the values that it reads (0: the network's input), a number.

    conv 5 | deep 2 (depthwise, multiplier) | cat | add | norm | relu | gate (squeeze-and-excitation); what nobody has
    read at the end is concatenated, and flattened or averaged in front of the classes.
    """

    def __init__(self, lines: list[tuple], flattens: bool = False) -> None:
        super().__init__()
        self.lines, self.flattens = lines, flattens
        self.layers = nn.ModuleDict()
        self.unread = {0}
        widths = [SHAPE[2]]
        for name, (kind, reads, number) in enumerate(lines, 1):
            width = sum(widths[index] for index in reads) if kind == "cat" else widths[reads[0]]
            if kind == "conv":
                layer = nn.Sequential(nn.Conv2d(width, number, 3, padding=1), nn.BatchNorm2d(number), nn.ReLU())
                self.layers[str(name)], width = layer, number
            elif kind == "plain":
                self.layers[str(name)], width = nn.Conv2d(width, number, 1), number
            elif kind == "deep":
                layer = nn.Conv2d(width, width * number, 3, padding=1, groups=width)
                width *= number
                self.layers[str(name)] = nn.Sequential(layer, nn.BatchNorm2d(width), nn.ReLU6())
            elif kind == "norm":
                self.layers[str(name)] = nn.BatchNorm2d(width)
            elif kind == "gate":
                self.layers[str(name)] = nn.Sequential(
                    nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.Sigmoid()
                )
            widths.append(width)
            self.unread = (self.unread - set(reads)) | {name}
        width = sum(widths[index] for index in sorted(self.unread))
        self.widths = widths
        self.head = nn.Linear(width * PIXELS if flattens else width, 4)

    def forward(self, x):
        values = [x]
        for name, (kind, reads, _) in enumerate(self.lines, 1):
            read = [values[index] for index in reads]
            if kind == "cat":
                values.append(torch.cat(read, 1))
            elif kind == "add":
                values.append(torch.relu(read[0] + read[1]))
            elif kind == "relu":
                values.append(F.relu6(read[0]))
            elif kind == "gate":
                values.append(read[0] * self.layers[str(name)](read[0]))
            else:
                values.append(self.layers[str(name)](read[0]))
        left = [values[index] for index in sorted(self.unread)]
        joined = torch.cat(left, 1) if len(left) > 1 else left[0]
        return self.head(torch.flatten(joined, 1) if self.flattens else joined.mean((2, 3)))


CASES = {
    "two_branches": [("conv", [0], 5), ("conv", [1], 4), ("conv", [1], 6), ("cat", [2, 3], 0), ("conv", [4], 5)],
    "nested": [("conv", [0], 4), ("conv", [1], 3), ("cat", [1, 2], 0), ("plain", [3], 5), ("cat", [3, 4, 1], 0)],
    "with_itself": [("conv", [0], 4), ("cat", [1, 1], 0), ("conv", [2], 5)],
    "with_the_input": [("conv", [0], 4), ("cat", [0, 1], 0), ("deep", [2], 1), ("conv", [3], 5)],
    "then_a_sum": [
        *(("conv", [0], 6), ("conv", [1], 10), ("cat", [1, 2], 0)),
        *(("conv", [3], 8), ("conv", [4], 8), ("cat", [4, 5], 0), ("add", [3, 6], 0), ("conv", [7], 3)),
    ],
    "crossed_sum": [
        *(("conv", [0], 4), ("conv", [1], 6), ("cat", [1, 2], 0), ("cat", [2, 1], 0)),
        *(("add", [3, 4], 0), ("conv", [5], 3)),
    ],
    "behind_depthwise": [("conv", [0], 4), ("deep", [1], 1), ("conv", [1], 3), ("cat", [2, 3], 0), ("conv", [4], 4)],
    "before_depthwise": [("conv", [0], 4), ("conv", [0], 3), ("cat", [1, 2], 0), ("deep", [3], 2), ("conv", [4], 4)],
    "multiplied": [("conv", [0], 4), ("deep", [1], 3), ("conv", [2], 5), ("deep", [3], 1), ("conv", [4], 4)],
    "multiplied_and_summed": [
        *(("conv", [0], 4), ("deep", [1], 2), ("plain", [2], 8), ("add", [2, 3], 0)),
        *(("deep", [4], 1), ("conv", [5], 3)),
    ],
    "dense": [
        *(("plain", [0], 4), ("norm", [1], 0), ("relu", [2], 0), ("plain", [3], 3), ("cat", [1, 4], 0)),
        *(("norm", [5], 0), ("relu", [6], 0), ("plain", [7], 3), ("cat", [5, 8], 0), ("norm", [9], 0)),
        *(("relu", [10], 0), ("conv", [11], 6)),
    ],
    "gated": [("conv", [0], 4), ("conv", [0], 5), ("cat", [1, 2], 0), ("gate", [3], 0), ("conv", [4], 5)],
}


def checked(net: nn.Module, seed: int) -> Channels:
    """Cut the network to random channels: outputs, resources and the rebuilt network have to be those of the masked."""
    net = shaken(net.double())
    channels = find_channels(net, SHAPE)
    draw = torch.Generator().manual_seed(seed)
    widths = [int(torch.randint(1, full + 1, (), generator=draw)) for full in channels.widths]
    masks = top_masks([torch.rand(full, generator=draw).double() for full in channels.widths], widths)
    assert [salience.shape for salience in saliences(net, channels)] == [mask.shape for mask in masks]
    small = narrowed(net, channels, kept_channels(masks))
    x = torch.randn(3, SHAPE[2], *SHAPE[:2], generator=draw).double()
    with torch.no_grad():
        masked = folded_forward(net, channels, masks, x)
        scale = float(masked.abs().max()) + 1
        assert float((masked - small(x)).abs().max()) < 1e-12 * scale
        assert float((masked - explicit_forward(channels, masks, x)).abs().max()) < 1e-12 * scale
    modelled = ResourceModel(channels.graph).resources(widths)
    assert modelled == resources(graph_from_torch(small, SHAPE))
    rebuilt = narrowed(net, channels, first_channels(channels, widths, "net"))
    rebuilt.load_state_dict(small.state_dict())
    assert len(set(group_names(channels.graph))) == len(widths)
    return channels


@pytest.mark.parametrize("flattens", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_narrowing_is_masking_and_the_resource_model_sees_the_narrowed_network(name, flattens):
    torch.manual_seed(0)
    for seed in range(3):
        checked(Program(CASES[name], flattens), seed)


def widths_of(name: str) -> tuple[int, ...]:
    return find_channels(Program(CASES[name]), SHAPE).widths


def test_the_groups_of_concatenations_are_those_of_their_parts():
    assert widths_of("two_branches") == (5, 4, 6, 5)
    assert widths_of("with_itself") == (4, 5)
    assert widths_of("with_the_input") == (4, 5)
    assert widths_of("multiplied") == (4, 5, 4)
    assert widths_of("dense") == (4, 3, 3, 6)


def test_a_sum_of_concatenations_with_other_seams_is_cut_at_all_of_them():
    # 6 + 10 channels meet 8 + 8: the first 6, the 2 between the seams, and the last 8.
    assert widths_of("then_a_sum") == (6, 2, 8, 3)
    # x y + y x of 4 and 6 channels: every second channel is the same one.
    assert widths_of("crossed_sum") == (2, 3)
    assert widths_of("multiplied_and_summed") == (4, 3)


def test_a_multiplied_channel_is_as_salient_as_its_best_copy():
    net = Program(CASES["multiplied"])
    net.layers["1"][1].weight.data = torch.tensor([0.1, 0.2, 0.3, 0.4])
    net.layers["2"][1].weight.data = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0, -0.6, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3])
    assert saliences(net, find_channels(net, SHAPE))[0].tolist() == pytest.approx([0.5, 0.6, 0.3, 0.4])


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name):
    torch.manual_seed(1)
    net = shaken(Program(CASES[name]).double())
    channels = find_channels(net, SHAPE)
    model, widths = ResourceModel(channels.graph), [0.7 * width for width in channels.widths]
    gradients = model.gradients(widths)
    for figure in ("size_bytes", "macs", "peak_bytes"):
        for group in range(len(widths)):
            moved = [
                getattr(model.usage([*widths[:group], widths[group] + step, *widths[group + 1 :]]), figure)
                for step in (1e-4, -1e-4)
            ]
            assert getattr(gradients, figure)[group] == pytest.approx((moved[0] - moved[1]) / 2e-4, rel=1e-4, abs=1e-3)
    if name in ("gated", "behind_depthwise", "multiplied_and_summed"):
        return  # folded, masks between 0 and 1 act twice there, or through a sigmoid: not as in front of the readers
    # Masks near 1, folded into gamma and beta, scale what the layers deliver just as the masks in front of readers do.
    x = torch.randn(4, SHAPE[2], *SHAPE[:2]).double()
    masks = [torch.ones(width).double().requires_grad_() for width in channels.widths]
    loss = explicit_forward(channels, masks, x).square().mean()
    for group, found in enumerate(torch.autograd.grad(loss, masks)):
        moved = []
        for step in (1e-6, -1e-6):
            other = [mask.detach().clone() for mask in masks]
            other[group][0] += step
            with torch.no_grad():
                moved.append(float(folded_forward(net, channels, other, x).square().mean()))
        assert float(found[0]) == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", ["nested", "then_a_sum", "multiplied_and_summed", "dense"])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_training_goes_on_as_if_nothing_had_been_cut(name, make):
    torch.manual_seed(2)
    net = Program(CASES[name]).double()
    options = {"momentum": 0.9, "nesterov": True} if make is torch.optim.SGD else {}
    optimiser = make(net.parameters(), 0.01, weight_decay=1e-3, **options)
    channels = find_channels(net, SHAPE)
    masks = top_masks(saliences(net, channels), [max(1, width // 2) for width in channels.widths])
    masks = [mask.double() for mask in masks]

    def train(forward, optimiser, seed):
        draw = torch.Generator().manual_seed(seed)
        for _ in range(3):
            x = torch.randn(8, SHAPE[2], *SHAPE[:2], generator=draw).double()
            optimiser.zero_grad()
            F.cross_entropy(forward(x), torch.randint(0, 4, (8,), generator=draw)).backward()
            optimiser.step()

    train(lambda x: folded_forward(net, channels, masks, x), optimiser, 0)
    kept = kept_channels(masks)
    small = narrowed(net, channels, kept)
    small_optimiser = make(net.parameters(), 0.01, weight_decay=1e-3, **options)
    small_optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    carry_over_optimiser(channels, kept, net, small, small_optimiser)
    train(lambda x: folded_forward(net, channels, masks, x), optimiser, 1)
    train(small, small_optimiser, 1)
    x = torch.randn(4, SHAPE[2], *SHAPE[:2]).double()
    net.eval(), small.eval()
    with torch.no_grad():
        assert float((folded_forward(net, channels, masks, x) - small(x)).abs().max()) < 1e-9


@st.composite
def programs(draw) -> Program:
    lines: list[tuple] = []
    widths = [SHAPE[2]]
    for name in range(1, draw(st.integers(2, 9)) + 1):
        kind = draw(st.sampled_from(["conv", "conv", "plain", "deep", "cat", "cat", "add", "norm", "relu"]))
        reads = [draw(st.integers(0, name - 1))]
        number = draw(st.integers(1, 5))
        if kind == "deep":
            number = draw(st.integers(1, 2))
            width = widths[reads[0]] * number
        elif kind == "cat":
            reads += draw(st.lists(st.integers(0, name - 1), min_size=1, max_size=2))
            width = sum(widths[index] for index in reads)
        elif kind == "add":
            equal = [index for index, found in enumerate(widths) if found == widths[reads[0]]]
            reads.append(draw(st.sampled_from(equal)))
            width = widths[reads[0]]
        else:
            width = number if kind in ("conv", "plain") else widths[reads[0]]
        if width > 40:
            kind, reads, width = "conv", reads[:1], number
        lines.append((kind, reads, number))
        widths.append(width)
    return Program(lines, draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 99))
def test_any_wiring_of_concatenations_sums_and_depthwise_layers_is_narrowed_exactly(net, seed):
    torch.manual_seed(seed)
    checked(net, seed)


def test_numbers_of_a_group_run_through_it_in_every_tensor():
    graph = find_channels(Program(CASES["crossed_sum"]), SHAPE).graph
    for tensor in graph.tensors:
        if tensor.channels is not None:
            groups = tensor.channels[:, 0]
            for group in set(groups[groups >= 0].tolist()):
                _, counts = np.unique(tensor.channels[groups == group, 1], return_counts=True)
                assert len(set(counts.tolist())) == 1
