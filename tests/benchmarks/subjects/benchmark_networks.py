"""Networks of known shapes with drawn int8 weights, for measuring: what they compute does not matter.

Grids are those of trained networks: 0 to 6 behind a ReLU, so that saturation to int8 is all the clipping there is.
"""

from __future__ import annotations

from dataclasses import replace

from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from tests.stages.graph.int8_graphs import Int8Builder

_MOBILENET_BLOCKS = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
_PRUNED_WIDTHS = (84, 97, 97, 96, 96, 108)  # what `pipeline run kws_dscnn_s --quick` left of 120, seed 0
_DETECTOR_WIDTHS = (128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
_SIX = 6 / 255  # scale of an activation behind ReLU6


def _on_grid(builder: Int8Builder, x: int, scale: float = _SIX, zero_point: int = -128) -> int:
    """Put the newest layer's output there; its weights' scales follow, so that the values spread as before."""
    before = builder.tensors[x].quantisation
    weights = builder.ops[-1].inputs[1]
    grid = builder.tensors[weights].quantisation
    assert before
    assert grid
    factor = scale / before.scale[0]
    scaled = replace(grid, scale=tuple(each * factor for each in grid.scale))
    builder.tensors[weights] = replace(builder.tensors[weights], quantisation=scaled)
    builder.set_grid(x, scale, zero_point)
    return x


def mobilenet_v1(size: int = 96) -> Graph:
    """MobileNet-v1, a quarter wide, as in MLPerf Tiny's Visual Wake Words, with every weight in use."""
    builder = Int8Builder(5)
    relu6 = ConvOptions(activation="relu6")
    stem = ConvOptions(stride=(2, 2), activation="relu6")
    x = _on_grid(builder, builder.conv(builder.input(size, size, 3), 8, (3, 3), stem))
    for channels, stride in _MOBILENET_BLOCKS:
        options = ConvOptions(stride=(stride, stride), activation="relu6")
        x = _on_grid(builder, builder.depthwise(x, (3, 3), options))
        x = _on_grid(builder, builder.conv(x, channels, (1, 1), relu6))
    side = builder.tensors[x].shape[1]
    x = builder.pool("AVERAGE_POOL_2D", x, PoolOptions((side, side), (side, side)))
    return builder.graph(builder.softmax(builder.fully_connected(builder.flatten(x), 2, ActivationOptions())))


def pruned_dscnn() -> Graph:
    """DS-CNN for keywords after pruning: uneven widths."""
    builder = Int8Builder(6)
    relu = ConvOptions(activation="relu")
    x = _on_grid(builder, builder.conv(builder.input(49, 10, 1), _PRUNED_WIDTHS[0], (10, 4), relu))
    for number, channels in enumerate(_PRUNED_WIDTHS[1:]):
        stride = (2, 2) if number == 0 else (1, 1)
        x = _on_grid(builder, builder.depthwise(x, (3, 3), ConvOptions(stride=stride, activation="relu")))
        x = _on_grid(builder, builder.conv(x, channels, (1, 1), relu))
    _, height, width, _ = builder.tensors[x].shape
    x = builder.pool("AVERAGE_POOL_2D", x, PoolOptions((height, width), (height, width)))
    return builder.graph(builder.softmax(builder.fully_connected(builder.flatten(x), 12, ActivationOptions())))


def anomaly_detector() -> Graph:
    """FULLY_CONNECTED layers like those of MLPerf Tiny's anomaly detection."""
    builder = Int8Builder(6)
    x = builder.flatten(builder.input(1, 1, 640))
    for width in _DETECTOR_WIDTHS:
        x = builder.fully_connected(x, width, ActivationOptions("none" if width == 640 else "relu"))
        x = _on_grid(builder, x)
    return builder.graph(x)
