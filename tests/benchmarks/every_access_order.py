"""Every small layer, traced: the distance between input and output is what the kernel's loads and stores need, exactly.

python -m tests.benchmarks.every_access_order [--chains] [--most N]

Convolutions, depthwise convolutions and pools with every height to 6, width to 3, window to 3x2, stride to 3x2 and both
paddings, on one to five channels; pointwise layers of every size to 9 pixels and 9 channels. Each on the portable, the
fast and the small kernel. A layer that differs ends the run.

With --chains instead: every pair of pointwise, convolution, depthwise convolution and pool, both strides and paddings,
on three to seven rows, in bands of one to three rows, on portable, fast and small kernels. A chain that loses a byte of
its input at its distance, or writes beside its buffers, ends the run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stages.graph.graph import ConvOptions, Graph, PoolOptions
from tests.stages.firmware.kernels.access_trace import layer_of_chain
from tests.stages.firmware.kernels.test_access_order import check, check_chains, every_way
from tests.stages.graph.int8_graphs import Int8Builder

_CHUNK = 400  # layers in a program
_PAIRED = (  # kind, window, stride
    *(("conv", 1, 1), ("conv", 3, 1), ("conv", 3, 2), ("depthwise", 3, 1), ("depthwise", 3, 2)),
    *(("pool", 2, 2), ("pool", 3, 1)),
)


def graphs() -> Iterator[Graph]:
    for pixels, depth, outputs in itertools.product(range(1, 10), range(1, 10), range(1, 10)):
        builder = Int8Builder(pixels)
        yield builder.graph(builder.conv(builder.input(pixels, 1, depth), outputs, (1, 1), ConvOptions()))
    sizes = itertools.product(range(1, 7), range(1, 4), (1, 2, 3), (1, 2), (1, 2, 3), (1, 2), ("same", "valid"))
    for height, width, tall, wide, down, right, padding in sizes:
        if padding == "valid" and (tall > height or wide > width):
            continue
        window, stride = (tall, wide), (down, right)
        for channels, outputs in ((1, 1), (2, 4), (5, 3)):
            builder = Int8Builder(height)
            options = ConvOptions(stride=stride, padding=padding)
            yield builder.graph(builder.conv(builder.input(height, width, channels), outputs, window, options))
        for channels, multiplier in ((1, 1), (5, 1), (2, 3)):
            builder = Int8Builder(height)
            options = ConvOptions(stride=stride, padding=padding, depth_multiplier=multiplier)
            yield builder.graph(builder.depthwise(builder.input(height, width, channels), window, options))
        if tall <= height and wide <= width:
            builder = Int8Builder(height)
            x = builder.input(height, width, 3)
            yield builder.graph(builder.pool("MAX_POOL_2D", x, PoolOptions(window, stride, padding)))
    for height, width, channels, down, right in itertools.product(range(1, 9), range(1, 5), (1, 4, 5), (1, 2), (1, 2)):
        builder = Int8Builder(height)
        options = ConvOptions(stride=(down, right))
        yield builder.graph(builder.depthwise(builder.input(height, width, channels), (3, 3), options))


def pairs() -> Iterator[Graph]:
    for height, padding, *both in itertools.product(range(3, 8), ("same", "valid"), _PAIRED, _PAIRED):
        builder = Int8Builder(height)
        x = builder.input(height, 5, 4)
        for kind, window, stride in both:
            options = ConvOptions(stride=(stride, stride), padding=padding)
            if min(builder.tensors[x].shape[1:3]) < window and padding == "valid":
                break
            if kind == "conv":
                x = builder.conv(x, 5, (window, window), options)
            elif kind == "depthwise":
                x = builder.depthwise(x, (window, window), options)
            else:
                size = tuple(min(window, side) for side in builder.tensors[x].shape[1:3])
                x = builder.pool("MAX_POOL_2D", x, PoolOptions(size, (stride, stride), padding))
        if len(builder.ops) == 2 and all(builder.tensors[op.outputs[0]].shape[2] > 1 for op in builder.ops):
            yield builder.graph(x)


def every_chain(most: int | None) -> None:
    made = itertools.product(pairs(), (None, "fast", "small"), (1, 2, 3))
    layers = itertools.islice((layer_of_chain(graph, weights, band) for graph, weights, band in made), most)
    count = close = 0
    while chunk := list(itertools.islice(layers, _CHUNK)):
        with tempfile.TemporaryDirectory() as folder:
            close += check_chains(chunk, Path(folder))
        count += len(chunk)
        sys.stderr.write(f"{count} chains\n")
    sys.stdout.write(f"{'chains':<20}{count:>8}\n{'at the last byte':<20}{close:>8}\n")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--most", type=int)
    arguments.add_argument("--chains", action="store_true")
    given = arguments.parse_args()
    if given.chains:
        every_chain(given.most)
        return
    layers = (layer for graph in graphs() for layer in every_way([graph]))
    layers = itertools.islice(layers, given.most)
    seen: dict[str, int] = {}
    while chunk := list(itertools.islice(layers, _CHUNK)):
        with tempfile.TemporaryDirectory() as folder:
            for kernel, count in check(chunk, Path(folder)).items():
                seen[kernel] = seen.get(kernel, 0) + count
        sys.stderr.write(f"{sum(seen.values())} layers\n")
    for kernel, count in sorted(seen.items()):
        sys.stdout.write(f"{kernel:<20}{count:>8}\n")
    sys.stdout.write(f"{'all exact':<20}{sum(seen.values()):>8}\n")


if __name__ == "__main__":
    main()
