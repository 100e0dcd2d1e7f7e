"""The float reference: each op against plain loops, whole networks against torch."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from stages.graph.arithmetic.float_reference import float_op, run_float
from stages.graph.from_torch.conversion import graph_from_torch
from stages.graph.graph import ConvOptions, Graph, NoOptions, Op, PoolOptions, Tensor
from stages.graph.padding import zero_pads
from stages.nets.config import NetworkConfig
from stages.nets.registry import build
from tests.stages.qat.float_graphs import GRAPHS, FloatBuilder


def slow_window_op(graph: Graph, op: Op, x: np.ndarray) -> np.ndarray:
    """Convolution or pooling, one output value at a time."""
    assert isinstance(op.options, ConvOptions | PoolOptions)
    pools = isinstance(op.options, PoolOptions)
    weights = None if pools else graph.tensors[op.inputs[1]].data
    kernel = op.options.filter if pools else weights.shape[1:3]
    dilation = (1, 1) if pools else op.options.dilation
    top, _, left, _ = zero_pads(x.shape[1:3], kernel, op.options.stride, dilation, op.options.padding)
    shape = graph.tensors[op.outputs[0]].shape
    result = np.zeros((len(x), *shape[1:]))
    for n, row, column, channel in np.ndindex(result.shape):
        taps = []
        for down, across in itertools.product(range(kernel[0]), range(kernel[1])):
            y = row * op.options.stride[0] - top + down * dilation[0]
            z = column * op.options.stride[1] - left + across * dilation[1]
            if not (0 <= y < x.shape[1] and 0 <= z < x.shape[2]):
                continue
            if op.kind == "CONV_2D":
                taps.append(float(x[n, y, z] @ weights[channel, down, across]))
            elif op.kind == "DEPTHWISE_CONV_2D":
                source = channel // op.options.depth_multiplier
                taps.append(float(x[n, y, z, source] * weights[0, down, across, channel]))
            else:
                taps.append(float(x[n, y, z, channel]))
        total = {"MAX_POOL_2D": max, "AVERAGE_POOL_2D": lambda t: sum(t) / len(t)}.get(op.kind, sum)(taps)
        result[n, row, column, channel] = total
    if not pools:
        result += graph.tensors[op.inputs[2]].data
    low, high = {"none": (-math.inf, math.inf), "relu": (0, math.inf), "relu6": (0, 6)}[op.options.activation]
    return np.clip(result, low, high)


def test_window_ops_are_what_plain_loops_compute() -> None:
    graph = GRAPHS["residual"](0)
    x = np.random.default_rng(0).normal(size=(2, 14, 11, 2)).astype(np.float32)
    values = run_float(graph, x)
    checked = 0
    for op in graph.ops:
        if isinstance(op.options, ConvOptions | PoolOptions):
            expected = slow_window_op(graph, op, values[op.inputs[0]])
            np.testing.assert_allclose(values[op.outputs[0]], expected, rtol=1e-4, atol=1e-4)
            checked += 1
    assert checked == 7


def test_the_other_ops_are_their_formulas() -> None:
    x = np.random.default_rng(1).normal(0, 3, size=(3, 4, 5, 2)).astype(np.float32)
    b = FloatBuilder(0, 4, 5, 2)
    found = {kind: b.unary(kind, 0) for kind in ("LOGISTIC", "HARD_SWISH", "RELU", "RELU6")}
    total, product = b.elementwise("ADD", 0, 0, "relu6"), b.elementwise("MUL", 0, 0)
    mean, kept = b.mean(0), b.mean(0, keeps_map=True)
    padded, flat = b.pad(0, 1, 2, 0, 3), b.reshape(0, 40)
    joined = b.concatenation(0, found["RELU"])
    values = run_float(b.graph(flat), x)
    expected = {
        found["LOGISTIC"]: 1 / (1 + np.exp(-x)),
        found["HARD_SWISH"]: x * np.clip(x + 3, 0, 6) / 6,
        found["RELU"]: np.maximum(x, 0),
        found["RELU6"]: np.clip(x, 0, 6),
        total: np.clip(2 * x, 0, 6),
        product: x * x,
        mean: x.mean((1, 2)),
        kept: x.mean((1, 2), keepdims=True),
        padded: np.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0))),
        flat: x.reshape(3, 40),
        joined: np.concatenate([x, np.maximum(x, 0)], 3),
        b.ops[-1].outputs[0]: np.exp(x.reshape(3, 40)) / np.exp(x.reshape(3, 40)).sum(1, keepdims=True),
    }
    for tensor, value in expected.items():
        np.testing.assert_allclose(values[tensor], value, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["dscnn", "resnet8", "mobilenet_v2"])
def test_a_network_computes_what_torch_computes(name: str) -> None:
    config = NetworkConfig(name=name, input_shape=(25, 20, 3), classes=7)  # type: ignore[arg-type, call-arg]
    torch.manual_seed(0)
    net = build(config).eval()
    x = torch.randn(3, 3, 25, 20)
    graph = graph_from_torch(net, config.input_shape)
    values = run_float(graph, x.permute(0, 2, 3, 1).numpy())
    with torch.no_grad():
        expected = net(x).numpy()
    np.testing.assert_allclose(values[graph.ops[-1].inputs[0]], expected, rtol=1e-3, atol=1e-5)


def test_an_op_without_a_float_kernel_is_named() -> None:
    tensors = (Tensor("x", (1, 2), "float32"), Tensor("y", (1, 2), "float32"))
    op = Op("TANH", "y", (0,), (1,), NoOptions())
    with pytest.raises(StageError, match="TANH y: has no float kernel here"):
        float_op(Graph(tensors, (op,), (0,), (1,)), op, {0: np.zeros((1, 2), np.float32)})
