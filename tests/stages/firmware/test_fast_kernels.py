"""The fast kernels on the twin against TensorFlow Lite Micro, bit for bit, on random shapes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stages.firmware.model_source import compile_model
from stages.graph.arena_layout import arena_layout
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Quantisation
from tests.stages.firmware.host_models import tflm_outputs
from tests.stages.firmware.twin_models import twin_outputs
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network

_ACTIVATIONS = ("none", "relu", "relu6")


def _rescaled(graph: Graph, seed: int) -> Graph:
    """For some seeds another output scale, up to multipliers of 2^6: both directions of the shift, mixed in one layer."""
    power = (0, 0, 0, 5, 7, 13)[seed % 6]
    result = graph.ops[-1].outputs[0]
    tensors = list(graph.tensors)
    grid = tensors[result].quantisation
    assert grid
    tensors[result] = replace(tensors[result], quantisation=Quantisation((grid.scale[0] * 2.0**-power,), grid.zero_point))
    if power:  # small weights and biases, so that the outputs are not all saturated
        for index in graph.ops[-1].inputs[1:]:
            data = tensors[index].data
            assert data is not None
            tensors[index] = replace(tensors[index], data=(data / 2.0 ** min(power, 6)).astype(data.dtype))
        source, weights, bias = (tensors[index] for index in graph.ops[-1].inputs)
        assert source.quantisation and weights.quantisation
        # TFLM compares the bias's scale with its factors' before it accepts a large multiplier.
        scale = float(np.float32(source.quantisation.scale[0] * weights.quantisation.scale[0]))
        tensors[graph.ops[-1].inputs[2]] = replace(bias, quantisation=Quantisation((scale,), (0,)))
    return replace(graph, tensors=tuple(tensors))


def _conv(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    kernel = (int(rng.integers(1, 7)), int(rng.integers(1, 6)))
    height, width = (int(rng.integers(side, side + 9)) for side in kernel)
    channels = int(rng.choice([1, 2, 3, 4, 5, 8, 16, 33]))
    options = ConvOptions(
        stride=(int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        padding=("same", "valid")[seed % 2],
        activation=_ACTIVATIONS[seed % 3],
    )
    x = builder.input(height, width, channels)
    outputs = int(rng.integers(4, 20))
    return _rescaled(builder.graph(builder.conv(x, outputs, kernel, options, per_channel=seed % 4 > 0)), seed)


def _pointwise(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width = (int(n) for n in rng.integers(1, 9, 2))
    channels = int(rng.choice([1, 2, 3, 7, 16, 63, 64, 101, 159, 161, 330]))
    x = builder.input(height, width, channels)
    options = ConvOptions(activation=_ACTIVATIONS[seed % 3])
    outputs = int(rng.integers(4, 30))
    return _rescaled(builder.graph(builder.conv(x, outputs, (1, 1), options, per_channel=seed % 4 > 0)), seed)


def _depthwise(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    height, width = (int(n) for n in rng.integers(3, 12, 2))
    options = ConvOptions(
        stride=(1 + seed % 2, 1 + seed // 2 % 2),
        padding=("same", "valid")[seed // 4 % 2],
        activation=_ACTIVATIONS[seed % 3],
    )
    x = builder.input(height, width, int(rng.integers(1, 40)))
    return _rescaled(builder.graph(builder.depthwise(x, (3, 3), options, per_channel=seed % 5 > 0)), seed)


def _fully_connected(seed: int) -> Graph:
    builder = Int8Builder(seed)
    rng = builder.rng
    x = builder.flatten(builder.input(1, 1, int(rng.choice([1, 5, 64, 127, 321, 640, 1100]))))
    options = ActivationOptions(("none", "relu")[seed % 2])
    outputs = int(rng.integers(4, 30))
    return _rescaled(builder.graph(builder.fully_connected(x, outputs, options, per_channel=seed % 3 == 0)), seed)


MAKERS = {
    "conv": _conv,
    "pointwise": _pointwise,
    "depthwise": _depthwise,
    "fully_connected": _fully_connected,
    "network": residual_network,
}
