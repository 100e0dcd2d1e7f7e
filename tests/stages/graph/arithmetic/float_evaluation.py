"""The obvious interpreter of a float graph: every op as its definition says, one tap of a window at a time."""

from __future__ import annotations

import numpy as np

from stages.graph.graph import ConvOptions, Graph, Op, PoolOptions
from stages.graph.padding import zero_pads


def evaluated(graph: Graph, x: np.ndarray) -> np.ndarray:
    """The graph's first output for one NHWC input."""
    values = {index: tensor.data for index, tensor in enumerate(graph.tensors) if tensor.data is not None}
    values[graph.inputs[0]] = x.astype(np.float64)
    for op in graph.ops:
        result = _result(op, [values[index] for index in op.inputs])
        activation = getattr(op.options, "activation", "none")
        values[op.outputs[0]] = {"none": result, "relu": np.maximum(result, 0), "relu6": np.clip(result, 0, 6)}[
            activation
        ]
        assert values[op.outputs[0]].shape == graph.tensors[op.outputs[0]].shape, op.name
    return values[graph.outputs[0]]


def _result(op: Op, operands: list[np.ndarray]) -> np.ndarray:
    first = operands[0]
    match op.kind:
        case "CONV_2D" | "DEPTHWISE_CONV_2D":
            return _convolution(op, *operands)
        case "AVERAGE_POOL_2D" | "MAX_POOL_2D":
            return _pool(op, first)
        case "FULLY_CONNECTED":
            return first @ operands[1].T + operands[2]
        case "ADD":
            return first + operands[1]
        case "MUL":
            return first * operands[1]
        case "CONCATENATION":
            return np.concatenate(operands, axis=op.options.axis)
        case "PAD":
            return np.pad(first, operands[1])
        case "RESHAPE":
            return first.reshape(operands[1])
        case "RELU":
            return np.maximum(first, 0)
        case "RELU6":
            return np.clip(first, 0, 6)
        case "LOGISTIC":
            return 1 / (1 + np.exp(-first))
        case "HARD_SWISH":
            return first * np.clip(first + 3, 0, 6) / 6
        case "SOFTMAX":
            return np.exp(first) / np.exp(first).sum()
    raise AssertionError(op.kind)


def _taps(x: np.ndarray, kernel: tuple[int, int], options: ConvOptions | PoolOptions, outside: float):
    """For every tap of the window: its place, and what lies under it at all places of the window."""
    stride, dilation = options.stride, getattr(options, "dilation", (1, 1))
    size = x.shape[1:3]
    top, bottom, left, right = zero_pads(size, kernel, stride, dilation, options.padding)
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=outside)
    rows, columns = (
        (padded.shape[axis + 1] - (kernel[axis] - 1) * dilation[axis] - 1) // stride[axis] + 1 for axis in (0, 1)
    )
    for down in range(kernel[0]):
        for along in range(kernel[1]):
            y, z = down * dilation[0], along * dilation[1]
            yield (
                down,
                along,
                padded[:, y : y + rows * stride[0] : stride[0], z : z + columns * stride[1] : stride[1]][
                    :, :rows, :columns
                ],
            )


def _convolution(op: Op, x: np.ndarray, filters: np.ndarray, bias: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, ConvOptions)
    result = 0.0
    for down, along, pixels in _taps(x, filters.shape[1:3], op.options, 0.0):
        if op.kind == "CONV_2D":
            result = result + pixels @ filters[:, down, along, :].T.astype(np.float64)
        else:
            result = result + np.repeat(pixels, op.options.depth_multiplier, axis=3) * filters[0, down, along]
    return result + bias


def _pool(op: Op, x: np.ndarray) -> np.ndarray:
    assert isinstance(op.options, PoolOptions)
    pixels = np.stack([pixels for _, _, pixels in _taps(x, op.options.filter, op.options, np.nan)])
    return np.nanmax(pixels, axis=0) if op.kind == "MAX_POOL_2D" else np.nanmean(pixels, axis=0)
