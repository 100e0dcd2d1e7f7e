"""Networks with many ways through: random-wired ones (Watts-Strogatz) and stacks of cells like NASNet-A's.

Channels are drawn wherever the wiring leaves them free; what is summed has the same channels.
"""

from __future__ import annotations

import random

from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    Graph,
    Op,
    Options,
    PoolOptions,
    Quantisation,
    Tensor,
)


class Builder:
    """Collects int8 ops and activations; weights do not matter here and are left out."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self._grid = Quantisation((0.05,), (0,))
        self.tensors = [Tensor("input", (1, *shape), "int8", self._grid)]
        self.ops: list[Op] = []

    def op(self, kind: str, inputs: tuple[int, ...], shape: tuple[int, int, int], options: Options) -> int:
        self.tensors.append(Tensor(f"{kind.lower()}{len(self.ops)}", (1, *shape), "int8", self._grid))
        self.ops.append(Op(kind, f"op{len(self.ops)}", inputs, (len(self.tensors) - 1,), options))
        return len(self.tensors) - 1

    def conv(self, source: int, channels: int, stride: int = 1) -> int:
        height, width = (-(-side // stride) for side in self.tensors[source].shape[1:3])
        return self.op("CONV_2D", (source,), (height, width, channels), ConvOptions(stride=(stride, stride)))

    def depthwise(self, source: int, stride: int = 1) -> int:
        _, height, width, channels = self.tensors[source].shape
        shape = (-(-height // stride), -(-width // stride), channels)
        return self.op("DEPTHWISE_CONV_2D", (source,), shape, ConvOptions(stride=(stride, stride)))

    def separable(self, source: int, middle: int, channels: int, stride: int = 1) -> int:
        """Depthwise and pointwise, twice, as in NASNet."""
        inner = self.conv(self.depthwise(source, stride), middle)
        return self.conv(self.depthwise(inner), channels)

    def pool(self, source: int, stride: int = 1) -> int:
        _, height, width, channels = self.tensors[source].shape
        shape = (-(-height // stride), -(-width // stride), channels)
        return self.op("AVERAGE_POOL_2D", (source,), shape, PoolOptions((3, 3), (stride, stride), "same"))

    def add(self, *sources: int) -> int:
        total = sources[0]
        for source in sources[1:]:
            shape = self.tensors[total].shape[1:]
            total = self.op("ADD", (total, source), (shape[0], shape[1], shape[2]), ActivationOptions())
        return total

    def concat(self, sources: tuple[int, ...]) -> int:
        _, height, width, _ = self.tensors[sources[0]].shape
        channels = sum(self.tensors[source].shape[3] for source in sources)
        return self.op("CONCATENATION", sources, (height, width, channels), ConcatOptions(axis=3))

    def graph(self, output: int) -> Graph:
        return Graph(tuple(self.tensors), tuple(self.ops), (0,), (output,))


def watts_strogatz(nodes: int, neighbours: int, rewired: float, draw: random.Random) -> list[tuple[int, int]]:
    """Edges from lower to higher node: a ring lattice, each edge's far end moved with that probability."""
    edges = {frozenset((i, (i + j) % nodes)) for i in range(nodes) for j in range(1, neighbours // 2 + 1)}
    for j in range(1, neighbours // 2 + 1):
        for i in range(nodes):
            old = frozenset((i, (i + j) % nodes))
            free = [n for n in range(nodes) if n != i and frozenset((i, n)) not in edges]
            if old in edges and free and draw.random() < rewired:
                edges.remove(old)
                edges.add(frozenset((i, draw.choice(free))))
    return sorted((min(edge), max(edge)) for edge in edges)


def random_wired(seed: int, nodes: int = 32, neighbours: int = 4, rewired: float = 0.75) -> Graph:
    """A node sums what arrives, takes it to channels of its own, and comes back to those that are summed."""
    draw = random.Random(seed)
    edges = watts_strogatz(nodes, neighbours, rewired, draw)
    net = Builder((8, 8, 3))
    shared = draw.randint(8, 64)
    stem = net.conv(0, shared)
    made: list[int] = []
    for node in range(nodes):
        sources = [made[a] for a, b in edges if b == node] or [stem]
        made.append(net.conv(net.conv(net.add(*sources), draw.randint(8, 64)), shared))
    read = {a for a, _ in edges}
    return net.graph(net.add(*(made[node] for node in range(nodes) if node not in read)))


def nasnet_like(cells: int, seed: int) -> Graph:
    """Cells that read the two before them; every third halves the map. A cell's five blocks sum two branches each."""
    draw = random.Random(seed)
    net = Builder((16, 16, 3))
    before = last = net.conv(0, draw.randint(8, 32))
    for cell in range(cells):
        stride = 2 if cell % 3 == 2 else 1
        channels = draw.randint(8, 32)
        shrink = net.tensors[before].shape[1] // net.tensors[last].shape[1]
        here, there = net.conv(last, channels), net.conv(before, channels, stride=shrink)

        def middle() -> int:
            return draw.randint(8, 48)

        blocks = (
            [
                net.add(net.separable(here, middle(), channels), here),
                net.add(net.separable(there, middle(), channels), net.separable(here, middle(), channels)),
                net.add(net.pool(here), there),
                net.add(net.pool(there), net.pool(there)),
                net.add(net.separable(there, middle(), channels), net.separable(there, middle(), channels)),
            ]
            if stride == 1
            else _reduction(net, here, there, channels, draw)
        )
        before, last = last, net.concat((*blocks, there) if stride == 1 else tuple(blocks))
    return net.graph(last)


def _reduction(net: Builder, here: int, there: int, channels: int, draw: random.Random) -> list[int]:
    def far(source: int, stride: int) -> int:
        return net.separable(source, draw.randint(8, 48), channels, stride)

    first = net.add(far(there, 2), far(here, 2))
    second = net.add(net.pool(here, 2), far(there, 2))
    third = net.add(net.pool(here, 2), far(there, 2))
    return [second, third, net.add(net.pool(first), second), net.add(far(first, 1), net.pool(here, 2))]
