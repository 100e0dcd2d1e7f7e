"""An int8 network of the shapes of a graph, with drawn weights: enough for a .tflite whose memory is to be measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stages.graph.graph import ConvOptions, Graph, Op, Quantisation, Tensor

_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_PROBABILITIES = Quantisation((1 / 256,), (-128,))  # what SOFTMAX and LOGISTIC have to give
_GRID = Quantisation((0.05,), (0,))


def int8_stand_in(graph: Graph) -> Graph:
    """Every activation int8 on one grid, every weight drawn; weights that the graph lacks are made up."""
    draw = np.random.default_rng(0)
    tensors = [
        replace(tensor, dtype="int8", quantisation=_GRID) if tensor.data is None else tensor for tensor in graph.tensors
    ]
    ops = []
    for op in graph.ops:
        if op.kind in ("SOFTMAX", "LOGISTIC"):
            tensors[op.outputs[0]] = replace(tensors[op.outputs[0]], quantisation=_PROBABILITIES)
        ops.append(_with_weights(op, tensors, draw) if op.kind in _WEIGHTED else op)
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def _with_weights(op: Op, tensors: list[Tensor], draw: np.random.Generator) -> Op:
    source, result = tensors[op.inputs[0]], tensors[op.outputs[0]]
    channels = result.shape[-1]
    known = tensors[op.inputs[1]].shape if len(op.inputs) > 1 else None
    made_up = (channels, 1, 1, source.shape[-1]) if op.kind == "CONV_2D" else (1, 3, 3, channels)
    shape = made_up if known is None else known
    axis = 3 if op.kind == "DEPTHWISE_CONV_2D" else 0
    grid = Quantisation((0.01,) * channels, (0,) * channels, axis)
    bias_grid = Quantisation((0.01 * _GRID.scale[0],) * channels, (0,) * channels)
    weights = draw.integers(-127, 128, shape, np.int8)
    tensors.append(Tensor(f"{op.name} weights", shape, "int8", grid, weights))
    tensors.append(Tensor(f"{op.name} bias", (channels,), "int32", bias_grid, np.zeros(channels, np.int32)))
    assert known is not None or isinstance(op.options, ConvOptions)
    return replace(op, inputs=(op.inputs[0], len(tensors) - 2, len(tensors) - 1))
