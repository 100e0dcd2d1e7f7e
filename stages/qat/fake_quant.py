"""A float Graph as a torch network that computes as the int8 device will: weights and activations on their int8 grids.

Weights are symmetric (-127 ... 127), one scale per output channel, one for all of a fully connected layer. Activations
have one scale and a zero point that represents 0 exactly; behind a ReLU the grid starts at 0, so that clamping to the
grid is the ReLU. Pooling and reshape stay on their input's grid, as their kernels demand. Rounding passes gradients
straight through inside the grid's range and blocks them outside (straight-through estimator).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stages.graph.graph import ConvOptions, Graph, Op, PoolOptions, Quantisation
from stages.graph.op_check import padding_before, windows

WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_KEEPS_GRID = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE"})
_SOFTMAX_GRID = Quantisation((1 / 256,), (-128,))  # prescribed by TensorFlow Lite
_CLIP_CANDIDATES = np.linspace(0.6, 1.0, 21)  # shares of the observed range that calibration tries
_CALIBRATION_VALUES = 1 << 17  # values of a tensor that are looked at, evenly spaced; bounds the time
_LARGEST_BIAS = 2.0**30  # in int32 units: leaves room for the products


class FakeQuantNetwork(nn.Module):
    """Interprets `graph`; input NCHW, output the logits. Weights and biases are trained, the grids are calibrated."""

    scales: Tensor  # per tensor of the graph; those that are no activation, or use another's grid, stay at 1
    zero_points: Tensor

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.quantises = True
        self._calibrates = False
        self.weights = nn.ParameterDict()
        self.biases = nn.ParameterDict()
        for number, op in enumerate(graph.ops):
            if op.kind in WEIGHTED:
                weight = torch.from_numpy(_to_torch_layout(op.kind, graph.tensors[op.inputs[1]].data))
                self.weights[str(number)] = nn.Parameter(weight.contiguous(memory_format=_memory_format(weight)))
                self.biases[str(number)] = nn.Parameter(torch.from_numpy(graph.tensors[op.inputs[2]].data.copy()))
        self.grid_of = _grid_owners(graph)
        count = len(graph.tensors)
        self.register_buffer("scales", torch.ones(count))
        self.register_buffer("zero_points", torch.zeros(count))
        self._has_relu = {op.outputs[0]: getattr(op.options, "activation", "none") for op in graph.ops}

    def forward(self, x: Tensor) -> Tensor:
        values = {self.graph.inputs[0]: self._on_grid(x, self.graph.inputs[0])}
        for number, op in enumerate(self.graph.ops):
            result = op.outputs[0]
            if op.kind == "SOFTMAX":  # the loss wants logits, and softmax changes no ranking
                return values[op.inputs[0]]
            values[result] = self._run(number, op, values)
        return values[self.graph.outputs[0]]

    def calibrate(self, x: Tensor) -> None:
        """Choose every activation's grid from these inputs, front to back: each sees the rounding before it."""
        self._calibrates = True
        try:
            with torch.no_grad():
                self(x)
        finally:
            self._calibrates = False

    def quantised_graph(self) -> Graph:
        """The graph with the trained float weights and, on every tensor, the grid to round to."""
        tensors = list(self.graph.tensors)
        for index, owner in self.grid_of.items():
            grid = Quantisation((float(self.scales[owner]),), (int(self.zero_points[owner]),))
            tensors[index] = replace(tensors[index], quantisation=grid)
        for op in self.graph.ops:
            if op.kind == "SOFTMAX":
                tensors[op.outputs[0]] = replace(tensors[op.outputs[0]], quantisation=_SOFTMAX_GRID)
        for key, weight in self.weights.items():
            op, bias = self.graph.ops[int(key)], self.biases[key]
            scale = self._weight_scale(op, weight, bias).detach()
            axis = 3 if op.kind == "DEPTHWISE_CONV_2D" else 0
            grid = Quantisation(tuple(scale.flatten().tolist()), (0,) * scale.numel(), axis)
            data = _from_torch_layout(op.kind, weight.detach().numpy())
            tensors[op.inputs[1]] = replace(tensors[op.inputs[1]], quantisation=grid, data=data)
            tensors[op.inputs[2]] = replace(tensors[op.inputs[2]], data=bias.detach().numpy().copy())
        return replace(self.graph, tensors=tuple(tensors))

    def _run(self, number: int, op: Op, values: dict[int, Tensor]) -> Tensor:
        operands = [values[index] for index in self.graph.activations_of(op)]
        if op.kind in WEIGHTED:
            return self._on_grid(self._weighted(str(number), op, operands[0]), op.outputs[0])
        if op.kind in ("ADD", "MUL"):
            combined = operands[0] + operands[1] if op.kind == "ADD" else operands[0] * operands[1]
            return self._on_grid(combined, op.outputs[0])
        if op.kind == "AVERAGE_POOL_2D":
            return self._on_grid(_average_pool(op, operands[0]), op.outputs[0])
        if op.kind == "MAX_POOL_2D":
            assert isinstance(op.options, PoolOptions)
            padded = F.pad(operands[0], _pads(op, operands[0], op.options.filter, (1, 1)), value=-math.inf)
            return F.max_pool2d(padded, op.options.filter, op.options.stride)
        assert op.kind == "RESHAPE", op.kind
        # The device flattens HWC, torch CHW.
        nhwc = operands[0].permute(0, 2, 3, 1) if operands[0].dim() == 4 else operands[0]
        return nhwc.reshape(len(nhwc), *self.graph.tensors[op.outputs[0]].shape[1:])

    def _weighted(self, key: str, op: Op, x: Tensor) -> Tensor:
        weight, bias = self.weights[key], self.biases[key]
        if self.quantises:
            scale = self._weight_scale(op, weight.detach(), bias.detach())
            weight = _RoundedConstant.apply(weight, scale)
            bias = _RoundedConstant.apply(bias, scale.flatten() * self.scales[self.grid_of[op.inputs[0]]])
        if op.kind == "FULLY_CONNECTED":
            return F.linear(x.reshape(-1, weight.shape[1]), weight, bias)
        assert isinstance(op.options, ConvOptions)
        groups = x.shape[1] if op.kind == "DEPTHWISE_CONV_2D" else 1
        left, right, top, bottom = _pads(op, x, weight.shape[2:], op.options.dilation)
        if (left, top) != (right, bottom):  # the convolution pads for free, but only symmetrically
            x, left, top = F.pad(x, (left, right, top, bottom)), 0, 0
        return F.conv2d(x, weight, bias, op.options.stride, (top, left), op.options.dilation, groups)

    def _weight_scale(self, op: Op, weight: Tensor, bias: Tensor) -> Tensor:
        """Largest magnitude / 127, and large enough for the bias to fit int32 where a channel has hardly any weight."""
        flat = weight.reshape(1 if op.kind == "FULLY_CONNECTED" else len(weight), -1)
        step = self.scales[self.grid_of[op.inputs[0]]] * _LARGEST_BIAS
        largest_bias = bias.abs().reshape(len(flat), -1).amax(1)
        scale = torch.maximum(flat.abs().amax(1) / 127, largest_bias / step).clamp_min(1e-12)
        return scale.reshape(-1, *[1] * (weight.dim() - 1))

    def _on_grid(self, x: Tensor, tensor: int) -> Tensor:
        owner = self.grid_of[tensor]
        if not self.quantises:
            return _activated(x, self._has_relu.get(tensor, "none"))
        if self._calibrates and owner == tensor:
            scale, zero_point = calibrated_grid(x, self._has_relu.get(tensor, "none"))
            self.scales[tensor], self.zero_points[tensor] = scale, zero_point
        scale, zero_point = float(self.scales[owner]), int(self.zero_points[owner])
        return _RoundedActivation.apply(x, scale, -128 - zero_point, 127 - zero_point)


class _RoundedConstant(torch.autograd.Function):
    """Multiples of the scale, which was chosen so that all values lie inside: every gradient passes."""

    @staticmethod
    def forward(ctx, x, scale):  # type: ignore[no-untyped-def]
        return (x / scale).round_().mul_(scale)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient, None


class _RoundedActivation(torch.autograd.Function):
    """Multiples of the scale from lowest * scale to highest * scale; the gradient passes where x is inside."""

    @staticmethod
    def forward(ctx, x, scale, lowest, highest):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        ctx.ends = (lowest * scale, highest * scale)
        return (x / scale).round_().clamp_(lowest, highest).mul_(scale)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        # One vectorised kernel for 'gradient where low < x < high'.
        return torch.ops.aten.hardtanh_backward(gradient, *ctx.saved_tensors, *ctx.ends), None, None, None


def calibrated_grid(x: Tensor, activation: str) -> tuple[float, int]:
    """The (scale, zero point) with the least squared error on these values; the range may be clipped to get it."""
    flat = _activated(x, activation).flatten()
    sample = flat[:: max(1, len(flat) // _CALIBRATION_VALUES)].double().numpy()
    lowest, highest = min(0.0, float(sample.min())), max(0.0, float(sample.max()))
    if lowest == highest:
        return 1.0, -128 if activation != "none" else 0
    grids = [_grid(lowest * share, highest * share) for share in _CLIP_CANDIDATES]
    return min(grids, key=lambda grid: _squared_error(sample, *grid))


def _grid(lowest: float, highest: float) -> tuple[float, int]:
    scale = float(np.float32((highest - lowest) / 255))
    return scale, int(np.clip(round(-128 - lowest / scale), -128, 127))


def _squared_error(values: np.ndarray, scale: float, zero_point: int) -> float:
    rounded = np.clip(np.round(values / scale), -128 - zero_point, 127 - zero_point) * scale
    return float(np.square(rounded - values).sum())


def _activated(x: Tensor, activation: str) -> Tensor:
    if activation == "relu6":
        return x.clamp(0, 6)
    return x.relu() if activation == "relu" else x


def _grid_owners(graph: Graph) -> dict[int, int]:
    """For every quantised activation the one whose grid it uses."""
    owners = {index: index for index in graph.inputs}
    for op in graph.ops:
        if op.kind != "SOFTMAX":
            owners[op.outputs[0]] = owners[op.inputs[0]] if op.kind in _KEEPS_GRID else op.outputs[0]
    return owners


def _pads(op: Op, x: Tensor, kernel: tuple[int, ...], dilation: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, right, top, bottom, as TensorFlow Lite pads."""
    assert isinstance(op.options, ConvOptions | PoolOptions)
    pads = []
    for size, side, stride, spread in zip(x.shape[2:], kernel, op.options.stride, dilation, strict=True):
        before = padding_before(size, side, stride, spread, op.options.padding)
        reach = (windows(size, side, stride, spread, op.options.padding) - 1) * stride + (side - 1) * spread + 1
        pads.append((before, max(0, reach - size - before)))
    return (*pads[1], *pads[0])


def _average_pool(op: Op, x: Tensor) -> Tensor:
    assert isinstance(op.options, PoolOptions)
    if op.options.filter == tuple(x.shape[2:]) and op.options.padding == "valid":
        return x.mean((2, 3), keepdim=True)
    pads = _pads(op, x, op.options.filter, (1, 1))
    mean = F.avg_pool2d(F.pad(x, pads), op.options.filter, op.options.stride)
    # Outside the map nothing counts, so the divisor is smaller at the rim.
    inside = F.pad(torch.ones(1, 1, *x.shape[2:]), pads)
    return mean / F.avg_pool2d(inside, op.options.filter, op.options.stride)


def _memory_format(weight: Tensor) -> torch.memory_format:
    return torch.channels_last if weight.dim() == 4 else torch.contiguous_format


def _to_torch_layout(kind: str, data: np.ndarray) -> np.ndarray:
    if kind == "CONV_2D":
        return np.ascontiguousarray(data.transpose(0, 3, 1, 2))
    return np.ascontiguousarray(data.transpose(3, 0, 1, 2)) if kind == "DEPTHWISE_CONV_2D" else data.copy()


def _from_torch_layout(kind: str, data: np.ndarray) -> np.ndarray:
    if kind == "CONV_2D":
        return np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    return np.ascontiguousarray(data.transpose(1, 2, 3, 0)) if kind == "DEPTHWISE_CONV_2D" else data.copy()
