"""Row-wise (depth-first) fusion: chains of ops run a few rows each, so that tensors between them never exist whole.

The last op of a chain makes a band of rows at a time; every op before it makes the rows that the next one's window
needs and does not have. Of a tensor between two ops only the rows that are still to be read are kept, in a buffer from
which rows fall out at the top. No row is computed twice. `steps` is the schedule; the C code that the firmware compiler
writes (stages/firmware/kernels/fused.py) follows it, and so do the resource model and the arena layout.

In a chain are convolutions, depthwise convolutions, pools, functions of one value, concatenations of channels, images
enlarged by repeated lines, each the only reader of the one before; as the last op also an ADD of two tensors of one
shape. What else an ADD or a concatenation reads exists whole. `fused_graph` makes one op of a chain: it reads what the
chain reads and writes what the chain writes, and the buffers between, which nobody else reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stages.graph.arithmetic.movement import nearest
from stages.graph.graph import ConcatOptions, ConvOptions, Graph, NoOptions, Op, PlainOptions, PoolOptions
from stages.graph.memory.buffers import OF_ONE
from stages.graph.padding import padding_around

MOST_OPS = 12  # of a chain
_MOST_LINES = 2**15 - 1  # of an image: kernels count them in int16
_BY_VALUE = frozenset({"ADD", "QUANTIZE"}) | OF_ONE


@dataclass(frozen=True)
class RowPass:
    """How an op goes down its image, row by row."""

    lines: int  # rows of its input
    rows: int  # rows of its output
    reach: int = 1  # rows of the input that one row of the output sees
    stride: int = 1
    top: int = 0  # padding
    repeats: int = 1  # rows of the output that are one row of the input; there is no window then

    def needed(self, end: int) -> int:
        """Rows of the input, from its first on, without which rows before `end` of the output cannot be made."""
        if self.repeats > 1:
            return -(-end // self.repeats)
        return min(self.lines, (end - 1) * self.stride + self.reach - self.top)

    def lowest(self, row: int) -> int:
        """The first row of the input that row `row` of the output, or a later one, sees."""
        return max(0, row // self.repeats * self.stride - self.top)


@dataclass(frozen=True)
class RowTile:
    """What one op of a chain does in one step: rows [start, end) of its output, after those before `kept` are gone."""

    kept: int
    start: int
    end: int


@dataclass(frozen=True)
class Chain:
    """Consecutive ops of a graph, by number, and how many rows of the last one's output a step makes."""

    ops: tuple[int, ...]
    passes: tuple[RowPass, ...]
    band: int

    @cached_property
    def steps(self) -> tuple[tuple[RowTile, ...], ...]:
        """For every step, the rows of every op."""
        return tuple(_steps(self.passes, self.band))

    @property
    def buffer_rows(self) -> tuple[int, ...]:
        """Of each tensor between two ops, the most rows that are in memory at once."""
        return tuple(max(step[k].end - step[k].kept for step in self.steps) for k in range(len(self.ops) - 1))

    def counts(self, position: int) -> frozenset[int]:
        """Numbers of rows that an op of the chain is asked for."""
        return frozenset(step[position].end - step[position].start for step in self.steps) - {0}

    def moments(self) -> Iterator[tuple[int, int]]:
        """After each step but the last: rows of the output that are written, first row of the input still to be read.

        All that a step reads of the chain's input it reads before it writes to the output.
        """
        last = self.steps[-1][0].end
        for step in self.steps[:-1]:
            if step[0].end < last:
                yield step[-1].end, self.passes[0].lowest(step[0].end)


def _steps(passes: Sequence[RowPass], band: int) -> Iterator[tuple[RowTile, ...]]:
    made = [0] * len(passes)
    while made[-1] < passes[-1].rows:
        ends = [*made[:-1], min(made[-1] + band, passes[-1].rows)]
        for k in reversed(range(len(passes) - 1)):
            ends[k] = max(made[k], passes[k + 1].needed(ends[k + 1]))
        kept = [min(made[k], passes[k + 1].lowest(made[k + 1])) for k in range(len(passes) - 1)]
        yield tuple(RowTile(*rows) for rows in zip([*kept, 0], made, ends, strict=True))
        made = ends


def row_pass(graph: Graph, op: Op) -> RowPass | None:
    """None for an op that cannot be part of a chain."""
    source, result = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    if len(source) != 4 or len(result) != 4 or source[0] != 1 or source[1] > _MOST_LINES:
        return None
    if op.kind in _BY_VALUE:
        is_plain = all(graph.tensors[i].data is None and graph.tensors[i].shape == result for i in op.inputs)
        return RowPass(result[1], result[1]) if is_plain else None
    if isinstance(op.options, ConcatOptions):
        has_lines = op.options.axis % 4 == 3 and all(graph.tensors[i].data is None for i in op.inputs)
        return RowPass(result[1], result[1]) if has_lines else None
    if op.kind == "RESIZE_NEAREST_NEIGHBOR" and isinstance(op.options, PlainOptions):
        repeats, shown = result[1] // source[1], nearest(source[1], result[1], *map(int, op.options.values))
        is_even = repeats > 1 and list(shown) == [row // repeats for row in range(result[1])]
        return RowPass(source[1], result[1], repeats=repeats) if is_even else None
    return window_pass(graph, op)


def window_pass(graph: Graph, op: Op) -> RowPass | None:
    """How a window goes down an image; None for an op without one."""
    lines, rows = graph.tensors[op.inputs[0]].shape[1], graph.tensors[op.outputs[0]].shape[1]
    if isinstance(op.options, ConvOptions):
        taps, dilation = graph.tensors[op.inputs[1]].shape[1], op.options.dilation[0]
    elif isinstance(op.options, PoolOptions):
        taps, dilation = op.options.filter[0], 1
    else:
        return None
    stride = op.options.stride[0]
    top, _ = padding_around(lines, taps, stride, dilation, op.options.padding)
    return RowPass(lines, rows, (taps - 1) * dilation + 1, stride, top)


class Links:
    """Which ops of a graph can follow which in a chain."""

    def __init__(self, graph: Graph, may: Collection[int] | None = None) -> None:
        """`may`: the ops that can be part of a chain; without it, all."""
        self.graph = graph
        allowed = range(len(graph.ops)) if may is None else may
        self.passes = [row_pass(graph, op) if n in allowed else None for n, op in enumerate(graph.ops)]
        readers: dict[int, list[int]] = {}
        for number, op in enumerate(graph.ops):
            for tensor in graph.activations_of(op):
                readers.setdefault(tensor, []).append(number)
        self._next: dict[int, int] = {}
        for number, op in enumerate(graph.ops):
            found = readers.get(op.outputs[0], [])
            if op.kind != "ADD" and len(found) == 1 and op.outputs[0] not in graph.outputs:
                self._next[number] = found[0]
        self._chains: dict[tuple[int, ...], Chain] = {}

    def starting_at(self, order: Sequence[int], position: int) -> Iterator[Chain]:
        """The chains, shortest first, that begin with the op at `position` of an order; bands as low as they may be."""
        first = order[position]
        if self.passes[first] is None or self.graph.ops[first].kind in ("ADD", "CONCATENATION"):
            return
        for end in range(position + 1, min(position + MOST_OPS, len(order))):
            if self._next.get(order[end - 1]) != order[end] or self.passes[order[end]] is None:
                return
            yield self._chain(tuple(order[position : end + 1]))

    def _chain(self, ops: tuple[int, ...]) -> Chain:
        if ops not in self._chains:
            passes = tuple(p for p in (self.passes[number] for number in ops) if p is not None)
            self._chains[ops] = Chain(ops, passes, _least_band(passes))
        return self._chains[ops]


def _least_band(passes: Sequence[RowPass]) -> int:
    """Two rows where a window moves by one: kernels of depthwise convolutions make two rows of three lines each."""
    windows = [each for each in passes if each.reach > 1]
    return min(2 if windows and windows[-1].stride == 1 else 1, passes[-1].rows)


@dataclass(frozen=True)
class FusedOptions(NoOptions):
    """Of the one op that stands for a chain: the ops themselves, on the tensors of the graph it was made from."""

    ops: tuple[Op, ...]
    chain: Chain


def fused_graph(graph: Graph, chains: Sequence[Chain]) -> Graph:
    """One op for each chain, whose ops follow one another; a tensor between two has as many rows as its buffer."""
    tensors = list(graph.tensors)
    firsts = {chain.ops[0]: chain for chain in chains}
    inside = {number for chain in chains for number in chain.ops}
    ops = []
    for number, op in enumerate(graph.ops):
        if number in firsts:
            ops.append(_fused_op(graph, firsts[number]))
            for tensor, rows in zip(ops[-1].outputs[1:], firsts[number].buffer_rows, strict=True):
                shape = tensors[tensor].shape
                tensors[tensor] = replace(tensors[tensor], shape=(shape[0], rows, *shape[2:]))
        elif number not in inside:
            ops.append(op)
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def _fused_op(graph: Graph, chain: Chain) -> Op:
    parts = tuple(graph.ops[number] for number in chain.ops)
    between = tuple(op.outputs[0] for op in parts[:-1])
    inputs = dict.fromkeys(i for op in parts for i in op.inputs if i >= 0 and i not in between)
    return Op(
        kind="+".join(op.kind for op in parts),
        name=" + ".join(op.name for op in parts),
        inputs=tuple(inputs),
        outputs=(parts[-1].outputs[0], *between),
        options=FusedOptions(parts, chain),
    )
