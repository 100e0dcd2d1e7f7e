"""Peak memory of a runtime that writes the output of an op over the operand that dies in it, row by row.

An op whose kernel reads its input from front to back needs less than input and output together: when a share w of the
output is written and a share r of the input has been read for the last time, the two take w * output + (1 - r) * input,
and never less than the larger of them. That is linear in both, so it holds for widths that are not whole, and its
derivatives are exact. The moments (w, 1 - r) are those of the firmware's kernels at the grain of rows; what the
firmware really places (stages/firmware/kernels/access_order.py) differs by less than a row and rounding to 16 bytes.

Ops that follow one another may run as a chain (see `fusion`): then a tensor between them takes the share of it that its
buffer holds. What a chain needs depends on no other chain, so the best choice of chains is a shortest way through the
order: the largest need on it is as small as can be, and among such ways it has the fewest ops in chains.

The order of the ops is the best one without overlap, in which the exported network is stored and run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stages.graph.graph import ConvOptions, Graph, Op, PoolOptions
from stages.graph.memory.buffers import ALIASES, IN_PLACE
from stages.graph.memory.fusion import Chain, Links, window_pass
from stages.graph.memory.op_order import MOST_STATES, OpOrder, OrderProblem

Runtime = Literal["classic", "overlap"]
Moment = tuple[float, float]  # share of the output that is written, share of the input that is still to be read


@dataclass(frozen=True)
class Stretch:
    """One op of an order, or several that run as a chain, and the share of each buffer that is in use meanwhile."""

    start: int  # positions in the order
    end: int
    need: dict[int, float]
    chain: Chain | None = None

    @property
    def fused_ops(self) -> int:
        return 0 if self.chain is None else len(self.chain.ops)


class OverlapProblem(OrderProblem):
    """An `OrderProblem` that says of its order what it needs with overlap."""

    def __init__(self, graph: Graph, may_fuse: Collection[int] | None = None) -> None:
        """`may_fuse`: the ops that can be part of a chain; without it, all that the rows allow."""
        super().__init__(graph)
        self._moments = [moments(graph, op) for op in graph.ops]
        self._links = Links(graph, may_fuse)

    def solve(self, tensor_bytes: Sequence[float] | None = None, most_states: int = MOST_STATES) -> OpOrder:
        """The best order without overlap; peak and bottleneck are those with it, `shares` of each tensor."""
        return self._overlapped(super().solve(tensor_bytes, most_states), tensor_bytes)

    def measure(self, order: Sequence[int], tensor_bytes: Sequence[float] | None = None) -> OpOrder:
        """What a given order costs."""
        return self._overlapped(super().measure(order, tensor_bytes), tensor_bytes)

    def live_bytes(
        self, order: Sequence[int], tensor_bytes: Sequence[float] | None = None, first: int = 0, last: int | None = None
    ) -> tuple[float, ...]:
        """Bytes in use while each op runs; ops of one chain run at the same time."""
        sizes, _ = self._sizes(tensor_bytes)
        way = self._best_way(order, sizes)
        return tuple(_bytes(each.need, sizes) for each in way for _ in range(each.start, each.end))[first:last]

    def chains(self, order: Sequence[int]) -> tuple[Chain, ...]:
        """The chains to run for the smallest peak of this order."""
        sizes, _ = self._sizes(None)
        return tuple(each.chain for each in self._best_way(order, sizes) if each.chain is not None)

    def _overlapped(self, found: OpOrder, tensor_bytes: Sequence[float] | None) -> OpOrder:
        sizes, _ = self._sizes(tensor_bytes)
        most = max((each.need for each in self._best_way(found.order, sizes)), key=lambda need: _bytes(need, sizes))
        peak = _bytes(most, sizes)
        return replace(
            found,
            peak_bytes=peak,
            bottleneck=tuple(self.buffers.tensors[b][0] for b in most),
            shares=tuple(most.values()),
            lower_bound_bytes=peak,
            proven_optimal=False,
        )

    def _best_way(self, order: Sequence[int], sizes: list[float]) -> list[Stretch]:
        """Through the whole order, with the smallest peak, and then the fewest ops in chains."""
        into: list[list[tuple[Stretch, float]]] = [[] for _ in range(len(order) + 1)]
        for stretch in self._stretches(order, sizes):
            into[stretch.end].append((stretch, _bytes(stretch.need, sizes)))
        peaks = [0.0]
        for found in into[1:]:
            peaks.append(min(max(peaks[stretch.start], need) for stretch, need in found))
        ways: list[tuple[int, Stretch | None] | None] = [(0, None)]
        for found in into[1:]:
            reached = [(stretch, ways[stretch.start]) for stretch, need in found if need <= peaks[-1]]
            known = [(before[0] + stretch.fused_ops, stretch) for stretch, before in reached if before is not None]
            ways.append(min(known, key=lambda way: way[0], default=None))
        way: list[Stretch] = []
        position = len(order)
        while position:
            found_way = ways[position]
            assert found_way is not None
            assert found_way[1] is not None
            way.append(found_way[1])
            position = found_way[1].start
        return way[::-1]

    def _stretches(self, order: Sequence[int], sizes: list[float]) -> Iterator[Stretch]:
        """Every op on its own, and every chain."""
        buffers, done = self.buffers, 0
        alive = [b for b, maker in enumerate(buffers.makers) if maker == 0 and buffers.is_alive(b, 0)]
        for position, number in enumerate(order):
            op = buffers.ops[number]
            yield Stretch(position, position + 1, self._need(number, done, alive, sizes))
            for chain in self._links.starting_at(order, position):
                need = self._chain_need(chain, done, alive, sizes)
                yield Stretch(position, position + len(chain.ops), need, chain)
            done |= 1 << number
            alive = [b for b in dict.fromkeys([*alive, *op.writes]) if buffers.is_alive(b, done)]

    def _need(self, number: int, done: int, alive: Sequence[int], sizes: list[float]) -> dict[int, float]:
        """The share of each buffer that is in use while an op runs."""
        buffers, op, steps = self.buffers, self.buffers.ops[number], self._moments[number]
        dying = [b for b in op.reads if not buffers.is_alive(b, done | 1 << number)]
        if steps is None or not dying or len(op.writes) != 1:
            written = op.writes if buffers.replaced(number, done, sizes) is None else ()
            return dict.fromkeys([*alive, *written], 1.0)
        others = dict.fromkeys((b for b in alive if b not in dying), 1.0)
        return {**others, **_shared(op.writes[0], dict.fromkeys(dying, steps), sizes)}

    def _chain_need(self, chain: Chain, done: int, alive: Sequence[int], sizes: list[float]) -> dict[int, float]:
        buffers = self.buffers
        after = done | sum(1 << number for number in chain.ops)
        between = {
            buffers.ops[number].writes[0]: rows / each.rows
            for number, rows, each in zip(chain.ops, chain.buffer_rows, chain.passes, strict=False)
        }
        reads = {b for number in chain.ops for b in buffers.ops[number].reads} - set(between)
        whole = {b for number in chain.ops[1:] if self._joins(number) for b in buffers.ops[number].reads}
        dying = [b for b in alive if b in reads - whole and not buffers.is_alive(b, after)]
        output = buffers.ops[chain.ops[-1]].writes[0]
        others = dict.fromkeys((b for b in alive if b not in dying), 1.0)
        # What an ADD at the end reads it reads at the pace at which it writes, and later than the first op does.
        at_pace = buffers.ops[chain.ops[-1]].reads
        steps = {b: () if b in at_pace else self._chain_moments(chain) for b in dying}
        shared = _shared(output, steps, sizes) if dying else {output: 1.0}
        return {**others, **between, **shared}

    def _joins(self, number: int) -> bool:
        """Whether an op writes one operand beside the other: what it reads later must not be written over."""
        return self.graph.ops[number].kind == "CONCATENATION"

    def _chain_moments(self, chain: Chain) -> tuple[Moment, ...]:
        rows, lines = chain.passes[-1].rows, chain.passes[0].lines
        return tuple((written / rows, 1 - line / lines) for written, line in chain.moments() if line < lines)


def _shared(output: int, dying: Mapping[int, Sequence[Moment]], sizes: list[float]) -> dict[int, float]:
    """The shares that the output and the operands that die take together at the worst moment."""
    cases: list[dict[int, float]] = [{output: 1.0}, dict.fromkeys(dying, 1.0)]
    cases += [{output: written, operand: unread} for operand, steps in dying.items() for written, unread in steps]
    return max(cases, key=lambda case: _bytes(case, sizes))


def _bytes(shares: dict[int, float], sizes: list[float]) -> float:
    return sum(share * sizes[b] for b, share in shares.items())


def moments(graph: Graph, op: Op) -> tuple[Moment, ...] | None:
    """When an op has written how much and still needs how much; None: no overlap is known for it.

    An op that goes through both at the same pace, or reads everything first, has no moment worse than either end.
    """
    if op.kind in ("FULLY_CONNECTED", "SOFTMAX") or (op.kind in IN_PLACE and _same_shapes(graph, op)):
        return ()
    if op.kind in ALIASES or not isinstance(op.options, ConvOptions | PoolOptions):
        return None
    window = op.options.filter if isinstance(op.options, PoolOptions) else graph.tensors[op.inputs[1]].shape[1:3]
    if op.kind == "CONV_2D" and tuple(window) == (1, 1) and op.options.stride == (1, 1):
        return ()
    return tuple(_rows(graph, op))


def _same_shapes(graph: Graph, op: Op) -> bool:
    return all(graph.tensors[i].shape == graph.tensors[op.outputs[0]].shape for i in graph.activations_of(op))


def _rows(graph: Graph, op: Op) -> Iterator[Moment]:
    down = window_pass(graph, op)
    assert down is not None
    is_widened = op.kind == "CONV_2D" and isinstance(op.options, ConvOptions) and op.options.dilation[0] == 1
    is_buffered = is_widened or _is_interleaved(graph, op)
    for done in range(1, down.rows + (not is_buffered)):
        if not is_buffered:  # straight from the input
            line = (done - 1) * down.stride - down.top
        elif is_widened:  # lines are widened into a buffer
            line = max((done - 1) * down.stride + down.reach, done * down.stride) - down.top
        else:  # two lines are interleaved at a time, one step ahead
            line = 2 * ((done - 1) // 2 if down.stride == 1 else done - 1) + 4 - down.top
        if line < down.lines:
            yield done / down.rows, 1 - max(line, 0) / down.lines


def _is_interleaved(graph: Graph, op: Op) -> bool:
    options = op.options
    if op.kind != "DEPTHWISE_CONV_2D" or not isinstance(options, ConvOptions):
        return False
    is_plain = options.dilation == (1, 1) and max(options.stride) <= 2 and options.depth_multiplier == 1
    return is_plain and tuple(graph.tensors[op.inputs[1]].shape[1:3]) == (3, 3)
