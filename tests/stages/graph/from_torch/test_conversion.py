"""A graph made from a torch network computes what the network computes, and refuses what it cannot express."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipeline.errors import StageError
from stages.graph.from_torch.conversion import graph_from_torch, trace
from stages.graph.graph import NO_GROUP, ActivationOptions, ConcatOptions, ConvOptions
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from tests.stages.graph.arithmetic.float_evaluation import evaluated
from tests.stages.nets.small_backbones import shaken

SHAPE = (9, 6, 2)
DSCNN = NetworkConfig(width=5, blocks=2, input_shape=SHAPE, classes=4)


class Residual(nn.Module):
    """Every kind of layer: an Add, strided depthwise with multiplier, dilation, ReLU6, pools, flattening, two FCs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6())
        self.left = nn.Sequential(nn.Conv2d(4, 4, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(4))
        self.right = nn.Conv2d(4, 4, (1, 3), padding="same")
        self.deep = nn.Conv2d(4, 8, 3, stride=2, groups=4)
        self.pool = nn.MaxPool2d(2, 1)
        self.average = nn.AvgPool2d((2, 1), 1)
        self.hidden = nn.Linear(8 * 2 * 1, 5)
        self.norm = nn.BatchNorm1d(5)
        self.classifier = nn.Linear(5, 3)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(self.left(x) + self.right(x))
        x = self.average(self.pool(torch.relu(self.deep(x))))
        return self.classifier(torch.relu(self.norm(self.hidden(torch.flatten(x, 1)))))


class Gated(nn.Module):
    """Squeeze-and-excitation, activations of their own, a concatenation, padding that is not 'same'."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.Hardswish())
        self.reduce, self.expand, self.gate = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1), nn.Sigmoid()
        self.wide = nn.Sequential(nn.Conv2d(4, 3, 1), nn.SiLU())
        self.rectified = nn.Sequential(nn.Conv2d(4, 5, 1), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.average = nn.AvgPool2d(3, 2, padding=1)
        self.classifier = nn.Linear(8 * 2 * 1, 3)

    def forward(self, x):
        x = self.stem(x)
        x = x * self.gate(self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True)))))
        x = torch.relu(x) + torch.nn.functional.relu6(x)
        x = torch.cat([self.average(self.wide(x)), self.pool(self.rectified(x))], 1)
        return self.classifier(torch.flatten(self.pool(torch.relu(x)), 1))


class MeanHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.classifier = nn.Linear(3, 4)

    def forward(self, x):
        return self.classifier(self.conv(x).mean((2, 3)))


class Functional(nn.Module):
    """Pooling, gates and flattening by functions and methods, sizes taken from the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.squeeze, self.excite = nn.Conv2d(2, 6, 3, padding=1), nn.Linear(6, 3), nn.Linear(3, 6)
        self.wide, self.classifier = nn.Conv2d(6, 4, 1), nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 2, padding=1)
        count, channels = x.size(0), x.size(1)
        gate = F.adaptive_avg_pool2d(x, 1).view(count, channels)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(gate)))).view(count, channels, 1, 1)
        x = F.avg_pool2d(self.wide(x * gate), (2, 1), stride=1)
        return self.classifier(F.dropout(x.reshape(x.shape[0], -1), 0.5, self.training))


NETS = {
    "dscnn": lambda: build(DSCNN),
    "dscnn_pruned": lambda: build(DSCNN, widths=(2, 3, 5)),
    "residual": Residual,
    "gated": Gated,
    "mean": MeanHead,
    "functional": Functional,
}


@pytest.mark.parametrize("name", NETS)
def test_graph_computes_what_the_network_computes(name):
    torch.manual_seed(0)
    net = shaken(NETS[name]())
    x = torch.randn(1, 2, 9, 6)
    graph = graph_from_torch(net, SHAPE, softmax=False)
    expected = net(x).detach().numpy()
    assert np.abs(evaluated(graph, x.numpy().transpose(0, 2, 3, 1)) - expected).max() < 1e-4
    probabilities = evaluated(graph_from_torch(net, SHAPE), x.numpy().transpose(0, 2, 3, 1))
    assert np.abs(probabilities - torch.softmax(net(x), 1).detach().numpy()).max() < 1e-4


def test_ds_cnn_becomes_one_op_per_layer_with_telling_names():
    graph = graph_from_torch(build(NetworkConfig(width=8, blocks=2)), (49, 10, 1))
    assert [(op.kind, op.name) for op in graph.ops] == [
        ("CONV_2D", "stem"),
        ("DEPTHWISE_CONV_2D", "blocks.0.depthwise"),
        ("CONV_2D", "blocks.0.pointwise"),
        ("DEPTHWISE_CONV_2D", "blocks.1.depthwise"),
        ("CONV_2D", "blocks.1.pointwise"),
        ("AVERAGE_POOL_2D", "pool"),
        ("RESHAPE", "flatten.reshape"),
        ("FULLY_CONNECTED", "classifier"),
        ("SOFTMAX", "softmax"),
    ]
    assert graph.ops[1].options == ConvOptions((2, 2), "same", (1, 1), "relu", 1)
    assert graph.ops[7].options == ActivationOptions("none")
    assert all(t.data is None or t.data.dtype == np.dtype(t.dtype) for t in graph.tensors)


def test_tracing_leaves_the_network_as_it_was():
    net = build(NetworkConfig(width=4, blocks=1))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.train()
    trace(net, (49, 10, 1))
    assert net.training and net.stem.norm.training
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def channels_of(graph):
    """Group and number of every channel of each op's result."""
    return {op.name: [tuple(pair) for pair in graph.tensors[op.outputs[0]].channels.tolist()] for op in graph.ops}


def test_groups_tie_depthwise_and_summands_but_not_inputs_or_classes():
    traced = trace(Residual(), SHAPE)
    channels = channels_of(traced.graph)
    assert channels["stem.0"] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert channels["left.0"] == channels["right"] == channels["add"] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert channels["deep"] == channels["pool"] == [(1, number) for number in range(4) for _ in range(2)]
    assert channels["flatten.reshape"] == 2 * channels["pool"]
    assert channels["hidden"] == [(2, number) for number in range(5)]
    assert channels["classifier"] == channels["softmax"] == [(NO_GROUP, 0)] * 3
    assert set(map(tuple, traced.graph.tensors[traced.graph.inputs[0]].channels)) == {(NO_GROUP, 0)}
    assert [(layer.weight, layer.norm) for layer in traced.layers[:2]] == [("stem.0", "stem.1"), ("left.0", "left.1")]


class Wrapped(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.odd = layer
        self.conv = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        return self.odd(self.conv(x))


@pytest.mark.parametrize(
    "layer, sentence",
    [
        (nn.GELU(), r"odd \(GELU\): no such layer is supported"),
        (nn.Hardsigmoid(), r"odd \(Hardsigmoid\): no such layer is supported; rewrite it with .*Sigmoid"),
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), "padding mode 'reflect', needed 'zeros'"),
        (nn.Conv2d(4, 4, 1, groups=2), "2 groups, needed 1 or one per input channel"),
        (nn.AdaptiveAvgPool2d(2), "output size 2, needed 1"),
        (nn.AvgPool2d(2, padding=1, count_include_pad=False), "padding .* which is neither 'same' nor zeros"),
        (nn.MaxPool2d(2, padding=1), "padding .* which is neither 'same' nor zeros"),
        (nn.MaxPool2d(2, ceil_mode=True), "ceil mode"),
        (nn.MaxPool2d(2, return_indices=True), r"odd \(MaxPool2d\): returns indices"),
    ],
)
def test_a_layer_that_cannot_be_expressed_is_refused_by_its_path(layer, sentence):
    net = Wrapped(layer)
    if isinstance(layer, nn.Conv2d) and layer.groups == 2:
        net.conv = nn.Conv2d(2, 4, 1)
    with pytest.raises(StageError, match=sentence):
        graph_from_torch(net, SHAPE)


class Padded(nn.Module):
    def __init__(self, *pad: object, **more: object) -> None:
        super().__init__()
        self.conv, self.pad, self.more = nn.Conv2d(2, 2, 3), pad, more

    def forward(self, x):
        return self.conv(nn.functional.pad(x, *self.pad, **self.more))


@pytest.mark.parametrize(
    ("pad", "more"),
    [
        (((1, 1, 1, 1), "reflect"), {}),
        (((1, 1, 1, 1),), {"mode": "replicate"}),
        (((1, 1, 1, 1), "constant", 2.0), {}),
        (((1, 1, 1, 1),), {"value": 1.0}),
        (((1, 1),), {}),
    ],
)
def test_a_functional_pad_of_other_than_zeros_is_refused(pad, more):
    with pytest.raises(StageError, match="not zero padding of height and width"):
        graph_from_torch(Padded(*pad, **more), SHAPE)
    graph_from_torch(Padded((1, 1, 1, 1), "constant", 0.0), SHAPE)


@pytest.mark.parametrize("order", ["conv relu norm", "conv norm norm", "conv pad norm relu", "norm conv"])
def test_batch_normalisation_that_cannot_be_folded_is_a_depthwise_convolution_of_one_pixel(order):
    class Ordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()
            self.pad = nn.ZeroPad2d(1)

        def forward(self, x):
            for name in order.split():
                x = getattr(self, name)(x)
            return x

    torch.manual_seed(0)
    net, x = shaken(Ordered()), torch.randn(1, 2, 9, 6)
    graph = graph_from_torch(net, SHAPE, softmax=False)
    found = evaluated(graph, x.numpy().transpose(0, 2, 3, 1))
    assert np.abs(found - net(x).detach().numpy().transpose(0, 2, 3, 1)).max() < 1e-5
    assert [op.kind for op in graph.ops if op.name == "norm"] == ["DEPTHWISE_CONV_2D"]


def test_batch_normalisation_of_a_vector_that_cannot_be_folded_is_refused():
    class Vector(MeanHead):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.classifier(self.norm(torch.relu(self.conv(x).mean((2, 3)))))

    with pytest.raises(StageError, match=r"norm \(BatchNorm1d\): not directly behind"):
        graph_from_torch(Vector(), SHAPE)


def test_a_value_with_two_readers_keeps_its_activation_apart_even_behind_a_dropout():
    class Forked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.dropout, self.relu = nn.Conv2d(2, 2, 1), nn.Dropout(), nn.ReLU()

        def forward(self, x):
            x = self.conv(x)
            return x + self.relu(self.dropout(x))

    graph = graph_from_torch(Forked(), SHAPE, softmax=False)
    assert [op.kind for op in graph.ops] == ["CONV_2D", "RELU", "ADD"]
    assert graph.ops[0].options.activation == "none"


def test_what_has_no_fused_form_becomes_an_op_of_its_own():
    graph = graph_from_torch(Gated(), SHAPE, softmax=False)
    assert [(op.kind, op.name) for op in graph.ops] == [
        ("PAD", "stem.0.pad"),
        ("CONV_2D", "stem.0"),
        ("HARD_SWISH", "stem.2"),
        ("AVERAGE_POOL_2D", "mean"),
        ("CONV_2D", "reduce"),
        ("CONV_2D", "expand"),
        ("LOGISTIC", "gate"),
        ("MUL", "mul"),
        ("RELU", "relu_1"),
        ("RELU6", "relu6"),
        ("ADD", "add"),
        ("CONV_2D", "wide.0"),
        ("LOGISTIC", "wide.1.logistic"),
        ("MUL", "wide.1"),
        ("PAD", "average.pad"),
        ("AVERAGE_POOL_2D", "average"),
        ("CONV_2D", "rectified.0"),
        ("MAX_POOL_2D", "pool"),
        ("CONCATENATION", "cat"),
        ("RELU", "relu_2"),
        ("PAD", "pool.pad"),
        ("MAX_POOL_2D", "pool"),
        ("RESHAPE", "flatten.reshape"),
        ("FULLY_CONNECTED", "classifier"),
    ]
    paddings = graph.tensors[graph.ops[0].inputs[1]]
    assert paddings.dtype == "int32" and paddings.data.tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
    by_name = {op.name: op for op in graph.ops}
    assert by_name["cat"].options == ConcatOptions(3)
    assert [graph.tensors[index].shape for index in by_name["mul"].inputs] == [(1, 5, 3, 4), (1, 1, 1, 4)]


def test_a_gate_has_the_channels_of_its_map_and_a_concatenation_those_of_its_parts():
    channels = channels_of(graph_from_torch(Gated(), SHAPE))
    assert channels["stem.0"] == channels["stem.2"] == channels["expand"] == channels["gate"] == channels["add"]
    assert channels["stem.0"] == [(0, number) for number in range(4)]
    assert channels["reduce"] == [(1, 0), (1, 1)]
    assert channels["wide.0"] == channels["wide.1"] == [(2, number) for number in range(3)]
    assert channels["rectified.0"] == [(3, number) for number in range(5)]
    assert channels["cat"] == channels["wide.0"] + channels["rectified.0"]


def test_a_forward_that_cannot_be_traced_is_refused():
    class Branching(MeanHead):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(StageError, match="Branching: torch.fx cannot trace it"):
        graph_from_torch(Branching(), SHAPE)
    with pytest.raises(StageError, match=r"MeanHead: torch.fx cannot trace it for input \(9, 6, 3\)"):
        graph_from_torch(MeanHead(), (9, 6, 3))


class Calling(nn.Module):
    """Two layers and one way of using them, two modules deep."""

    def __init__(self, call) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_Called(call))

    def forward(self, x):
        return self.blocks(x)


class _Called(nn.Module):
    def __init__(self, call) -> None:
        super().__init__()
        self.conv, self.other, self.call = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1), call

    def forward(self, x):
        return self.call(self, x)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda net, x: F.leaky_relu(net.conv(x)), "^blocks.0, leaky_relu in its forward: no such layer is supported"),
        (lambda net, x: F.fractional_max_pool2d(net.conv(x), 2, 2), "^blocks.0, fractional_max_pool2d in its forward"),
        (lambda net, x: net.conv(x).chunk(2)[0], "^blocks.0, chunk in its forward: no such layer"),
        (lambda net, x: net.conv(x).view(-1, 108), "view in its forward: a size of 108 that is written out; use torch"),
        (lambda net, x: net.conv(x).view(1, -1), "view in its forward: a size of 1 that is written out"),
        (
            lambda net, x: net.conv(x).view(x.size(0), -1, x.size(3)),
            r"view in its forward: makes \(1, 18, 6\); needed a",
        ),
        (lambda net, x: F.max_pool2d(net.conv(x), 2, ceil_mode=True), "max_pool2d in its forward: ceil mode"),
        (lambda net, x: (net.conv(x), net.other(x)), "^the network returns 2 tensors, needed one tensor; return"),
        (lambda net, x: {"logits": net.conv(x)}, "^the network returns a dict, needed one tensor"),
    ],
)
def test_a_call_that_cannot_be_expressed_is_refused_with_the_module_that_makes_it(call, sentence):
    with pytest.raises(StageError, match=sentence) as refusal:
        graph_from_torch(Calling(call), SHAPE)
    assert " at 0x" not in str(refusal.value)


def _overwrites_a_shortcut(net, x):
    x = net.conv(x)
    y = net.other(F.relu(x, inplace=True))
    return x + y


def _overwrites_behind_a_dropout(net, x):
    x = net.conv(x)
    y = net.other(F.dropout(x, 0.5, net.training).relu_())
    return x + y


@pytest.mark.parametrize("call", [_overwrites_a_shortcut, _overwrites_behind_a_dropout])
def test_what_torch_overwrites_must_not_be_read_again(call):
    with pytest.raises(StageError, match="works in place on what .*add in its forward reads afterwards; set inplace"):
        graph_from_torch(Calling(call), SHAPE)


def test_a_sum_in_place_that_the_tracer_takes_for_another_is_refused():
    def act(net, x):
        x, y = net.conv(x), net.other(x)
        shortcut = x
        x += y
        return x + shortcut

    with pytest.raises(StageError, match="Calling: computes something else when torch.fx traces it; write x = x \\+ y"):
        graph_from_torch(Calling(act), SHAPE)


def test_in_place_layers_whose_operand_nobody_else_reads_are_no_different():
    def act(net, x):
        x = net.conv(x)
        size = x.size(0)
        y = net.other(x)
        x = F.relu(x, inplace=True)
        y += x
        return y.relu_().view(size, -1)

    torch.manual_seed(0)
    net = Calling(act)
    x = torch.randn(1, 2, 9, 6)
    found = evaluated(graph_from_torch(net, SHAPE, softmax=False), x.numpy().transpose(0, 2, 3, 1))
    expected = net(x).detach().reshape(1, 2, 9, 6).permute(0, 2, 3, 1).reshape(1, -1).numpy()
    assert np.abs(found - expected).max() < 1e-5


def test_a_network_without_parameters_is_traced_too():
    graph = graph_from_torch(nn.Sequential(nn.MaxPool2d(3), nn.Flatten()), SHAPE, softmax=False)
    assert [op.kind for op in graph.ops] == ["MAX_POOL_2D", "RESHAPE"]


def test_concatenation_takes_its_arguments_by_name():
    def act(net, x):
        return torch.cat(tensors=[net.conv(x), net.other(x)], axis=1)

    graph = graph_from_torch(Calling(act), SHAPE, softmax=False)
    assert graph.ops[-1].kind == "CONCATENATION" and graph.tensors[graph.outputs[0]].shape == (1, 9, 6, 4)


def test_same_padding_is_recognised_by_height_and_width_of_the_map():
    """With stride 2, an even height wants its one zero below and an odd width one on either side."""
    net = nn.Sequential(nn.ZeroPad2d((1, 1, 0, 1)), nn.Conv2d(2, 3, 3, stride=2))
    (conv,) = graph_from_torch(net, (8, 7, 2), softmax=False).ops
    assert (conv.kind, conv.options.padding) == ("CONV_2D", "same")
    kinds = [op.kind for op in graph_from_torch(net, (7, 8, 2), softmax=False).ops]
    assert kinds == ["PAD", "CONV_2D"]
