"""A graph made from a torch network computes what the network computes, and refuses what it cannot express."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.errors import StageError
from stages.graph.from_torch import graph_from_torch, trace
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.padding import same_pads
from stages.nets.config import NetworkConfig
from stages.nets.registry import build

SHAPE = (9, 6, 2)


def evaluated(graph: Graph, x: np.ndarray) -> np.ndarray:
    """The slow and obvious interpreter: every op as its definition says, one output element at a time."""
    values = {index: tensor.data for index, tensor in enumerate(graph.tensors) if tensor.data is not None}
    values[graph.inputs[0]] = x
    for op in graph.ops:
        operands = [values[index] for index in op.inputs]
        if op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            result = _convolution(op.kind, *operands, op.options)
        elif op.kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            result = _pool(np.mean if op.kind == "AVERAGE_POOL_2D" else np.max, operands[0], op.options)
        elif op.kind == "FULLY_CONNECTED":
            result = operands[0] @ operands[1].T + operands[2]
        elif op.kind == "ADD":
            result = operands[0] + operands[1]
        elif op.kind == "RESHAPE":
            result = operands[0].reshape(operands[1])
        elif op.kind == "SOFTMAX":
            result = np.exp(operands[0]) / np.exp(operands[0]).sum()
        else:
            raise AssertionError(op.kind)
        activation = getattr(op.options, "activation", "none")
        values[op.outputs[0]] = {"none": result, "relu": np.maximum(result, 0), "relu6": np.clip(result, 0, 6)}[
            activation
        ]
        assert values[op.outputs[0]].shape == graph.tensors[op.outputs[0]].shape, op.name
    return values[graph.outputs[0]]


def _windows(x, kernel, options, dilation=(1, 1)):
    pads = same_pads(x.shape[1:3], kernel, options.stride, dilation) if options.padding == "same" else (0, 0, 0, 0)
    reach = [(taps - 1) * spread + 1 for taps, spread in zip(kernel, dilation, strict=True)]
    rows = (x.shape[1] + pads[0] + pads[1] - reach[0]) // options.stride[0] + 1
    columns = (x.shape[2] + pads[2] + pads[3] - reach[1]) // options.stride[1] + 1
    for row in range(rows):
        for column in range(columns):
            taps = []
            for down in range(kernel[0]):
                for right in range(kernel[1]):
                    y = row * options.stride[0] - pads[0] + down * dilation[0]
                    z = column * options.stride[1] - pads[2] + right * dilation[1]
                    if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                        taps.append((down, right, x[0, y, z]))
            yield row, column, rows, columns, taps


def _convolution(kind, x, filters, bias, options: ConvOptions):
    result = None
    for row, column, rows, columns, taps in _windows(x, filters.shape[1:3], options, options.dilation):
        if result is None:
            result = np.tile(bias.astype(np.float64), (1, rows, columns, 1))
        for down, right, pixel in taps:
            if kind == "CONV_2D":
                result[0, row, column] += filters[:, down, right, :] @ pixel
            else:
                result[0, row, column] += filters[0, down, right] * np.repeat(pixel, options.depth_multiplier)
    return result


def _pool(reduce, x, options: PoolOptions):
    result = None
    for row, column, rows, columns, taps in _windows(x, options.filter, options):
        if result is None:
            result = np.zeros((1, rows, columns, x.shape[3]))
        result[0, row, column] = reduce([pixel for _, _, pixel in taps], axis=0)
    return result


def agitated(net: nn.Module) -> nn.Module:
    """Batch normalisation with statistics and scales that folding must not ignore."""
    generator = torch.Generator().manual_seed(3)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            for tensor, low in (
                (module.weight, 0.5),
                (module.bias, -0.5),
                (module.running_mean, -0.5),
                (module.running_var, 0.5),
            ):
                tensor.data.uniform_(low, low + 1, generator=generator)
    return net.eval()


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


class MeanHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.classifier = nn.Linear(3, 4)

    def forward(self, x):
        return self.classifier(self.conv(x).mean((2, 3)))


NETS = {
    "dscnn": lambda: build(NetworkConfig(width=5, blocks=2), SHAPE, 4),
    "dscnn_pruned": lambda: build(NetworkConfig(width=5, blocks=2), SHAPE, 4, widths=(2, 3, 5)),
    "residual": Residual,
    "mean": MeanHead,
}


@pytest.mark.parametrize("name", NETS)
def test_graph_computes_what_the_network_computes(name):
    torch.manual_seed(0)
    net = agitated(NETS[name]())
    x = torch.randn(1, 2, 9, 6)
    graph = graph_from_torch(net, SHAPE, softmax=False)
    expected = net(x).detach().numpy()
    assert np.abs(evaluated(graph, x.numpy().transpose(0, 2, 3, 1)) - expected).max() < 1e-4
    probabilities = evaluated(graph_from_torch(net, SHAPE), x.numpy().transpose(0, 2, 3, 1))
    assert np.abs(probabilities - torch.softmax(net(x), 1).detach().numpy()).max() < 1e-4


@pytest.mark.parametrize("length", range(1, 12))
@pytest.mark.parametrize("kernel, stride", [(1, 1), (3, 1), (4, 1), (3, 2), (10, 1), (2, 2), (5, 3), (1, 2)])
def test_same_padding_gives_the_ceiling_of_size_over_stride(length, kernel, stride):
    top, bottom, _, _ = same_pads((length, 1), (kernel, 1), (stride, 1), (1, 1))
    assert (length + top + bottom - kernel) // stride + 1 == -(-length // stride)
    assert bottom - top in (0, 1)


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


def test_groups_tie_depthwise_and_summands_but_not_inputs_or_classes():
    traced = trace(Residual(), SHAPE)
    groups = {op.name: traced.graph.tensors[op.outputs[0]].group for op in traced.graph.ops}
    assert groups["stem.0"] == 0
    assert groups["left.0"] == groups["right"] == groups["add"] == groups["deep"] == groups["pool"] == 1
    assert groups["hidden"] == 2
    assert groups["classifier"] is groups["softmax"] is None
    assert traced.graph.tensors[traced.graph.inputs[0]].group is None
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
        (nn.Conv2d(2, 2, 4, padding=1), r"odd \(Conv2d\): padding .* \(1, 1, 1, 1\), needed \(1, 2, 1, 2\)"),
        (nn.Conv2d(4, 4, 1, groups=2), "2 groups, needed 1 or one per input channel"),
        (nn.AdaptiveAvgPool2d(2), "output size 2, needed 1"),
        (nn.AvgPool2d(3, padding=1), "zeros that count in the average"),
    ],
)
def test_a_layer_that_cannot_be_expressed_is_refused_by_its_path(layer, sentence):
    net = Wrapped(layer)
    if isinstance(layer, nn.Conv2d) and layer.groups == 2:
        net.conv = nn.Conv2d(2, 4, 1)
    with pytest.raises(StageError, match=sentence):
        graph_from_torch(net, SHAPE)


@pytest.mark.parametrize(
    "order, sentence",
    [
        ("conv relu norm", r"norm \(BatchNorm2d\): not directly behind"),
        ("conv norm norm", r"norm \(BatchNorm2d\): not directly behind"),
        ("conv pad norm", r"norm \(BatchNorm2d\): not directly behind"),
        ("conv relu relu", r"relu \(ReLU\): not directly behind an op that can take an activation"),
        ("norm conv", r"norm \(BatchNorm2d\): not directly behind"),
    ],
)
def test_what_cannot_be_folded_is_refused(order, sentence):
    class Ordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()
            self.pad = nn.ZeroPad2d(1)

        def forward(self, x):
            for name in order.split():
                x = getattr(self, name)(x)
            return x

    with pytest.raises(StageError, match=sentence):
        graph_from_torch(Ordered(), SHAPE)


def test_a_value_with_two_readers_is_not_fused_even_behind_a_dropout():
    class Forked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.dropout, self.relu = nn.Conv2d(2, 2, 1), nn.Dropout(), nn.ReLU()

        def forward(self, x):
            x = self.conv(x)
            return x + self.relu(self.dropout(x))

    with pytest.raises(StageError, match=r"relu \(ReLU\): its input is also read elsewhere"):
        graph_from_torch(Forked(), SHAPE)


def test_a_forward_that_cannot_be_traced_is_refused():
    class Branching(MeanHead):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(StageError, match="Branching: torch.fx cannot trace it"):
        graph_from_torch(Branching(), SHAPE)
    with pytest.raises(StageError, match=r"MeanHead: torch.fx cannot trace it for input \(9, 6, 3\)"):
        graph_from_torch(MeanHead(), (9, 6, 3))
