"""Networks of known shapes with drawn int8 weights, for measuring: what they compute does not matter.

Grids are those of trained networks: 0 to 6 behind a ReLU, so that saturation to int8 is all the clipping there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from tests.stages.firmware.coverage.builder import Builder
from tests.stages.graph.int8_graphs import Int8Builder

_MOBILENET_BLOCKS = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
_PRUNED_WIDTHS = (84, 97, 97, 96, 96, 108)  # what `pipeline run kws_dscnn_s --quick` left of 120, seed 0
_DETECTOR_WIDTHS = (128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
_EXPANDED = 6  # times as many channels inside of a block of MobileNet-v2
# Channels, stride and repetitions of its blocks a third wide, as Keras rounds them.
_MOBILENET_V2_BLOCKS = ((8, 1, 1), (8, 2, 2), (16, 2, 3), (24, 2, 4), (32, 1, 3), (56, 2, 3), (112, 1, 1))
# Channels, stride, window and expansion, of the kind that MCUNet's search finds.
_MCUNET_BLOCKS = (
    *((8, 1, 3, 1), (16, 2, 7, 3), (16, 1, 3, 5), (24, 2, 5, 5), (24, 1, 3, 4), (24, 1, 3, 5), (40, 2, 7, 5)),
    *((40, 1, 3, 5), (40, 1, 5, 5), (48, 1, 3, 4), (48, 1, 3, 3), (96, 2, 3, 6), (96, 1, 5, 4), (96, 1, 3, 4)),
    (160, 1, 5, 5),
)
_ALIVE = 0.645  # of the channels: then half of the MACs are left
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


def mobilenet_v1(size: int = 96, thinned: Callable[[Int8Builder], None] = lambda _: None) -> Graph:
    """MobileNet-v1, a quarter wide, as in MLPerf Tiny's Visual Wake Words, with every weight in use."""
    builder = Int8Builder(5)
    relu6 = ConvOptions(activation="relu6")
    stem = ConvOptions(stride=(2, 2), activation="relu6")
    x = _on_grid(builder, builder.conv(builder.input(size, size, 3), 8, (3, 3), stem))
    for channels, stride in _MOBILENET_BLOCKS:
        thinned(builder)
        options = ConvOptions(stride=(stride, stride), activation="relu6")
        x = _on_grid(builder, builder.depthwise(x, (3, 3), options))
        x = _on_grid(builder, builder.conv(x, channels, (1, 1), relu6))
    thinned(builder)
    return _classified(builder, x, 2)


def half_dead_mobilenet_v1() -> Graph:
    """The same with so many filters of zeros that half of the MACs are for nothing, like MLPerf Tiny's own file."""

    def thinned(builder: Int8Builder) -> None:
        place = builder.ops[-1].inputs[1]
        weights = builder.tensors[place].data
        assert weights is not None
        dead = builder.rng.permutation(len(weights))[round(_ALIVE * len(weights)) :]
        kept = np.where(np.isin(np.arange(len(weights)), dead)[:, None, None, None], 0, weights).astype(np.int8)
        builder.tensors[place] = replace(builder.tensors[place], data=kept)

    return mobilenet_v1(thinned=thinned)


def _classified(builder: Int8Builder, x: int, classes: int) -> Graph:
    _, height, width, _ = builder.tensors[x].shape
    x = builder.pool("AVERAGE_POOL_2D", x, PoolOptions((height, width), (height, width)))
    return builder.graph(builder.softmax(builder.fully_connected(builder.flatten(x), classes, ActivationOptions())))


def mobilenet_v2(size: int = 96, classes: int = 10, last: int = 1280) -> Graph:
    """MobileNet-v2, 0.35 wide."""
    builder = Int8Builder(7)
    x = _stem(builder, size)
    for channels, stride, repeated in _MOBILENET_V2_BLOCKS:
        for number in range(repeated):
            x = _inverted_residual(builder, x, channels, stride if number == 0 else 1, is_first=len(builder.ops) == 1)
    x = _on_grid(builder, builder.conv(x, last, (1, 1), ConvOptions(activation="relu6")))
    return _classified(builder, x, classes)


def fomo() -> Graph:
    """MobileNet-v2 0.35 up to the expansion of block 6, and a head for each of 12 x 12 places, as object detectors
    for microcontrollers are built from it."""
    builder = Int8Builder(8)
    x = _stem(builder, 96)
    for channels, stride, repeated in _MOBILENET_V2_BLOCKS[:3]:
        for number in range(repeated):
            x = _inverted_residual(builder, x, channels, stride if number == 0 else 1, is_first=len(builder.ops) == 1)
    x = _on_grid(builder, builder.conv(x, _EXPANDED * 16, (1, 1), ConvOptions(activation="relu6")))
    x = _on_grid(builder, builder.conv(x, 32, (1, 1), ConvOptions(activation="relu")))
    return builder.graph(builder.softmax(builder.conv(x, 2, (1, 1), ConvOptions())))


def _stem(builder: Int8Builder, size: int) -> int:
    options = ConvOptions(stride=(2, 2), activation="relu6")
    return _on_grid(builder, builder.conv(builder.input(size, size, 3), 16, (3, 3), options))


def mcunet_like() -> Graph:
    """Inverted residuals with windows of 3, 5 and 7 at 176x176, the kind of network that MCUNet's search finds."""
    builder = Int8Builder(11)
    x = _stem(builder, 176)
    for number, (channels, stride, window, expanded) in enumerate(_MCUNET_BLOCKS):
        x = _inverted_residual(builder, x, channels, stride, is_first=number == 0, window=window, expanded=expanded)
    return _classified(builder, x, 1000)


def vgg_like() -> Graph:
    """Pairs of 3x3 convolutions, each with a pool behind it."""
    builder = Int8Builder(12)
    x = builder.input(96, 96, 3)
    for channels in (16, 32, 64):
        for _ in range(2):
            x = _on_grid(builder, builder.conv(x, channels, (3, 3), ConvOptions(activation="relu")))
        x = builder.pool("MAX_POOL_2D", x, PoolOptions((2, 2), (2, 2)))
    return _classified(builder, x, 10)


def unet_like() -> Graph:
    """Down by pools and up by repeated lines, each time joined to the image of that size; with leaky ReLUs."""
    builder = Builder(13)

    def layer(x: int, channels: int) -> int:
        y = _on_grid(builder, builder.conv(x, channels, (3, 3), ConvOptions()), zero_point=0)
        return builder.plain("LEAKY_RELU", (y,), builder.tensors[y].shape, options=(0.1,))

    x, sides = builder.input(96, 96, 3), []
    for channels in (8, 16, 32):
        x = layer(layer(x, channels), channels)
        sides.append(x)
        x = builder.pool("MAX_POOL_2D", x, PoolOptions((2, 2), (2, 2)))
    x = layer(x, 64)
    for side in reversed(sides):
        _, height, width, channels = builder.tensors[side].shape
        larger = (1, height, width, builder.tensors[x].shape[3])
        x = builder.plain("RESIZE_NEAREST_NEIGHBOR", (x, builder.integers([height, width])), larger, options=(0, 0))
        x = layer(builder.concatenate(3, x, side), channels)
    return builder.graph(builder.conv(x, 2, (1, 1), ConvOptions()))


def _inverted_residual(
    builder: Int8Builder,
    x: int,
    channels: int,
    stride: int,
    *,
    is_first: bool,
    window: int = 3,
    expanded: int = _EXPANDED,
) -> int:
    """Wider, depthwise, narrower and without activation; added to its input where that has the same shape."""
    source = x
    inside = builder.tensors[x].shape[3] * expanded
    if not is_first:
        x = _on_grid(builder, builder.conv(x, inside, (1, 1), ConvOptions(activation="relu6")))
    x = builder.depthwise(x, (window, window), ConvOptions(stride=(stride, stride), activation="relu6"))
    x = builder.conv(_on_grid(builder, x), channels, (1, 1), ConvOptions())
    if builder.tensors[x].shape != builder.tensors[source].shape:
        return x
    return builder.elementwise("ADD", source, x, ActivationOptions())


def dscnn() -> Graph:
    """DS-CNN for keywords, 64 wide, like MLPerf Tiny's."""
    builder = Int8Builder(9)
    relu = ConvOptions(activation="relu")
    stem = ConvOptions(stride=(2, 2), activation="relu")
    x = _on_grid(builder, builder.conv(builder.input(49, 10, 1), 64, (10, 4), stem))
    for _ in range(4):
        x = _on_grid(builder, builder.depthwise(x, (3, 3), relu))
        x = _on_grid(builder, builder.conv(x, 64, (1, 1), relu))
    return _classified(builder, x, 12)


def resnet_8() -> Graph:
    """Three residual blocks, like MLPerf Tiny's image classification."""
    builder = Int8Builder(10)
    relu = ConvOptions(activation="relu")
    x = _on_grid(builder, builder.conv(builder.input(32, 32, 3), 16, (3, 3), relu))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        shortcut = x
        x = _on_grid(
            builder, builder.conv(x, channels, (3, 3), ConvOptions(stride=(stride, stride), activation="relu"))
        )
        x = builder.conv(x, channels, (3, 3), ConvOptions())
        if stride == 2:
            shortcut = builder.conv(shortcut, channels, (1, 1), ConvOptions(stride=(2, 2)))
        x = builder.elementwise("ADD", shortcut, x, ActivationOptions("relu"))
        builder.set_grid(x, _SIX, -128)
    return _classified(builder, x, 10)


def tiny_conv() -> Graph:
    """One depthwise convolution of one channel with multiplier 8, and a classifier, like TFLM's micro_speech."""
    builder = Int8Builder(11)
    options = ConvOptions(stride=(2, 2), activation="relu", depth_multiplier=8)
    x = _on_grid(builder, builder.depthwise(builder.input(49, 40, 1), (10, 8), options))
    return builder.graph(builder.softmax(builder.fully_connected(builder.flatten(x), 4, ActivationOptions())))


def pruned_dscnn() -> Graph:
    """DS-CNN for keywords after pruning: uneven widths."""
    builder = Int8Builder(6)
    relu = ConvOptions(activation="relu")
    x = _on_grid(builder, builder.conv(builder.input(49, 10, 1), _PRUNED_WIDTHS[0], (10, 4), relu))
    for number, channels in enumerate(_PRUNED_WIDTHS[1:]):
        stride = (2, 2) if number == 0 else (1, 1)
        x = _on_grid(builder, builder.depthwise(x, (3, 3), ConvOptions(stride=stride, activation="relu")))
        x = _on_grid(builder, builder.conv(x, channels, (1, 1), relu))
    return _classified(builder, x, 12)


def anomaly_detector() -> Graph:
    """FULLY_CONNECTED layers like those of MLPerf Tiny's anomaly detection."""
    builder = Int8Builder(6)
    x = builder.flatten(builder.input(1, 1, 640))
    for width in _DETECTOR_WIDTHS:
        x = builder.fully_connected(x, width, ActivationOptions("none" if width == 640 else "relu"))
        x = _on_grid(builder, x)
    return builder.graph(x)
