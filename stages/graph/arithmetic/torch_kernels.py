"""The float arithmetic of the ops on torch tensors, without rounding: what fine-tuning and the float reference share.

Maps are NCHW here, as torch likes them, and NHWC in the Graph; axes of the Graph are translated. `N` may be any number
of samples. Weights are in torch's layout (`to_torch_layout`).
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.graph.graph import ConcatOptions, ConvOptions, Graph, Op, PoolOptions
from stages.graph.padding import zero_pads

_NCHW_AXIS = (0, 2, 3, 1)  # of each NHWC axis


def activated(x: Tensor, activation: str) -> Tensor:
    """A fused activation."""
    if activation == "relu6":
        return x.clamp(0, 6)
    return x.relu() if activation == "relu" else x


def weighted(op: Op, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, before the activation."""
    if op.kind == "FULLY_CONNECTED":
        return F.linear(x.reshape(-1, weight.shape[1]), weight, bias)
    assert isinstance(op.options, ConvOptions)
    groups = x.shape[1] if op.kind == "DEPTHWISE_CONV_2D" else 1
    left, right, top, bottom = _pads(op, x, weight.shape[2:], op.options.dilation)
    if (left, top) != (right, bottom):  # the convolution pads for free, but only symmetrically
        x, left, top = F.pad(x, (left, right, top, bottom)), 0, 0
    stride = op.options.stride
    if weight.shape[2:] == (1, 1) and (left, top) == (0, 0):  # see stages/training/layout.py: oneDNN may crash
        x, stride = x[:, :, :: stride[0], :: stride[1]], (1, 1)
    return F.conv2d(x, weight, bias, stride, (top, left), op.options.dilation, groups)


def pooled_sums(op: Op, x: Tensor) -> tuple[Tensor, Tensor]:
    """(sum, number of summands) of every window of an AVERAGE_POOL_2D; outside the map nothing counts."""
    assert isinstance(op.options, PoolOptions)
    if op.options.filter == tuple(x.shape[2:]) and op.options.padding == "valid":
        return x.sum((2, 3), keepdim=True), torch.tensor(float(math.prod(op.options.filter)))
    pads = _pads(op, x, op.options.filter, (1, 1))
    inside = F.pad(x.new_ones(1, 1, *x.shape[2:]), pads)
    sums, counts = (
        F.avg_pool2d(value, op.options.filter, op.options.stride, divisor_override=1)
        for value in (F.pad(x, pads), inside)
    )
    return sums, counts


def max_pooled(op: Op, x: Tensor) -> Tensor:
    """MAX_POOL_2D."""
    assert isinstance(op.options, PoolOptions)
    padded = F.pad(x, _pads(op, x, op.options.filter, (1, 1)), value=-math.inf)
    return F.max_pool2d(padded, op.options.filter, op.options.stride)


def summed(graph: Graph, op: Op, x: Tensor) -> tuple[Tensor, int]:
    """(sum over the axes of a MEAN, number of summands)."""
    axes = sorted({nchw_axis(x, int(axis)) for axis in _constant(graph, op).flat})
    shape = graph.tensors[op.outputs[0]].shape
    keeps = len(shape) == x.dim()
    sums = x.sum(axes, keepdim=keeps)
    return sums, math.prod(x.shape[axis] for axis in axes)


def reshaped(graph: Graph, op: Op, x: Tensor) -> Tensor:
    """RESHAPE: the device walks through HWC, torch through CHW."""
    nhwc = x.permute(0, 2, 3, 1) if x.dim() == 4 else x
    made = nhwc.reshape(len(nhwc), *graph.tensors[op.outputs[0]].shape[1:])
    return made.permute(0, 3, 1, 2) if made.dim() == 4 else made


def padded(graph: Graph, op: Op, x: Tensor) -> Tensor:
    """PAD with zeros."""
    pairs = _constant(graph, op).reshape(-1, 2)
    by_axis = {nchw_axis(x, axis): (int(before), int(after)) for axis, (before, after) in enumerate(pairs)}
    return F.pad(x, [side for axis in reversed(range(x.dim())) for side in by_axis[axis]])


def concatenated(op: Op, parts: list[Tensor]) -> Tensor:
    """CONCATENATION."""
    assert isinstance(op.options, ConcatOptions)
    return torch.cat(parts, nchw_axis(parts[0], op.options.axis))


def unary(kind: str, x: Tensor) -> Tensor:
    """The function that an op without weights applies to every value."""
    if kind == "LOGISTIC":
        return x.sigmoid()
    if kind == "HARD_SWISH":
        return F.hardswish(x)
    assert kind in ("RELU", "RELU6"), kind
    return activated(x, kind.lower())


def nchw_axis(x: Tensor, axis: int) -> int:
    """Where an axis of the Graph lies in torch."""
    return _NCHW_AXIS[axis % 4] if x.dim() == 4 else axis % x.dim()


def to_torch_layout(kind: str, data: np.ndarray) -> np.ndarray:
    """Weights of the Graph as torch wants them."""
    if kind == "CONV_2D":
        return np.ascontiguousarray(data.transpose(0, 3, 1, 2))
    return np.ascontiguousarray(data.transpose(3, 0, 1, 2)) if kind == "DEPTHWISE_CONV_2D" else data.copy()


def from_torch_layout(kind: str, data: np.ndarray) -> np.ndarray:
    """Weights of torch as the Graph wants them."""
    if kind == "CONV_2D":
        return np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    return np.ascontiguousarray(data.transpose(1, 2, 3, 0)) if kind == "DEPTHWISE_CONV_2D" else data.copy()


def _constant(graph: Graph, op: Op) -> np.ndarray:
    data = graph.tensors[op.inputs[1]].data
    assert data is not None, op.name
    return data


def _pads(op: Op, x: Tensor, kernel: tuple[int, ...], dilation: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, right, top, bottom, as TensorFlow Lite pads."""
    assert isinstance(op.options, ConvOptions | PoolOptions)
    top, bottom, left, right = zero_pads(x.shape[2:], kernel, op.options.stride, dilation, op.options.padding)
    return left, right, top, bottom
