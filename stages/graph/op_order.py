"""The operator order that needs the least memory, exactly.

Memory model. An activation takes its bytes from the op that computes it (the network's inputs: from the start) until
its last reader has run (the network's outputs: to the end). While an op runs, its inputs and outputs are alive together
with everything that is still needed later. Two things cost nothing: a RESHAPE, whose output is its input's buffer, and
the result of an ADD that is accumulated into an operand which nobody needs afterwards (paper, 'Baseline comparisons').

How much is alive depends only on which ops have run, not on their order, so the best order is a bottleneck shortest
path over the sets of finished ops (Liberis & Lane 2019), found best first. A ready op that raises neither the peak nor
what is alive behind it can always go first: moved to the front of any completion it makes no later moment worse. That
dominance settles chains, and most of real networks, without branching.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from stages.graph.graph import Graph, Tensor

ALIASES = frozenset({"RESHAPE"})  # the output is the input's buffer under another shape
IN_PLACE = frozenset({"ADD"})  # the output may take the place of an operand


@dataclass(frozen=True)
class OpOrder:
    """An order of the graph's ops and what it costs."""

    order: tuple[int, ...]  # op indices
    peak_bytes: float  # a whole number unless the tensor sizes were not
    bottleneck: tuple[int, ...]  # one tensor for each buffer alive at the (first) peak; their bytes add up to it


def activation_bytes(tensor: Tensor) -> int:
    """Bytes on the device: float32 tensors of a torch graph become int8 there."""
    return tensor.elements if tensor.dtype == "float32" else tensor.nbytes


def smallest_peak_order(graph: Graph, tensor_bytes: Sequence[float] | None = None) -> OpOrder:
    """The order with the smallest peak; `tensor_bytes` replaces the tensors' own sizes (for widths in between)."""
    memory = _Memory(graph, tensor_bytes)
    every_op = (1 << len(graph.ops)) - 1
    floor = memory.lower_bound()
    # Entries: peak so far, minus the number of ops done (deeper first among equals), ops done, how they were reached.
    heap: list[tuple[float, int, int, _Step | None]] = [(floor, 0, 0, None)]
    settled: set[int] = set()
    while heap:
        peak, _, done, last = heapq.heappop(heap)
        if done in settled:
            continue
        settled.add(done)
        if done == every_op:
            return memory.measured(_path(last))
        live = memory.live_bytes(done)
        ready = [op for op in range(len(graph.ops)) if not done >> op & 1 and memory.needs[op] & ~done == 0]
        moves = [(op, memory.running_bytes(done, live, op)) for op in ready]
        free = next(
            ((op, used) for op, used in moves if used <= peak and memory.live_bytes(done | 1 << op) <= live), None
        )
        for op, used in moves if free is None else [free]:
            after = done | 1 << op
            if after not in settled:
                heapq.heappush(heap, (max(peak, used), -after.bit_count(), after, _Step(op, last)))
    raise AssertionError("the ops of a graph always have an order")


def peak_of_order(graph: Graph, order: Sequence[int], tensor_bytes: Sequence[float] | None = None) -> OpOrder:
    """What a given order costs."""
    return _Memory(graph, tensor_bytes).measured(tuple(order))


class _Step:
    """One step of a path; heap entries share their common beginnings. Never decides a comparison by value."""

    __slots__ = ("before", "op")

    def __init__(self, op: int, before: _Step | None) -> None:
        self.op, self.before = op, before

    def __lt__(self, other: object) -> bool:
        return False


def _path(last: _Step | None) -> tuple[int, ...]:
    ops: list[int] = []
    while last is not None:
        ops.append(last.op)
        last = last.before
    return tuple(reversed(ops))


class _Memory:
    """Buffers, who writes and reads them, and how much is alive once a set of ops (a bit mask) has run."""

    def __init__(self, graph: Graph, tensor_bytes: Sequence[float] | None) -> None:
        self.graph = graph
        buffer_of = _buffers(graph)
        size = tensor_bytes if tensor_bytes is not None else [activation_bytes(tensor) for tensor in graph.tensors]
        self.size: dict[int, float] = {}
        for tensor, buffer in buffer_of.items():
            self.size[buffer] = max(self.size.get(buffer, 0), size[tensor])
        self.reads = [tuple(dict.fromkeys(buffer_of[i] for i in graph.activations_of(op))) for op in graph.ops]
        self.writes: list[tuple[int, ...]] = []
        self.readers = dict.fromkeys(self.size, 0)
        writer: dict[int, int] = {}  # tensor -> op
        start = {buffer_of[index] for index in graph.inputs}
        self.maker: dict[int, int] = dict.fromkeys(
            start, 0
        )  # buffer -> mask of the op that makes it; 0: there at start
        for number, op in enumerate(graph.ops):
            made = [buffer_of[index] for index in op.outputs if buffer_of[index] not in self.maker]
            self.writes.append(tuple(made))
            self.maker.update(dict.fromkeys(made, 1 << number))
            writer.update(dict.fromkeys(op.outputs, number))
            for buffer in self.reads[number]:
                self.readers[buffer] |= 1 << number
        self.needs = [
            sum({1 << writer[index] for index in graph.activations_of(op) if index in writer}) for op in graph.ops
        ]
        self.kept = {buffer_of[index] for index in graph.outputs}

    def is_alive(self, buffer: int, done: int) -> bool:
        made = self.maker[buffer]
        return (made == 0 or done & made != 0) and (buffer in self.kept or self.readers[buffer] & ~done != 0)

    def live(self, done: int) -> list[int]:
        return [buffer for buffer in self.size if self.is_alive(buffer, done)]

    def live_bytes(self, done: int) -> float:
        return sum(self.size[buffer] for buffer in self.live(done))

    def new_buffers(self, done: int, op: int) -> tuple[int, ...]:
        """What `op` has to allocate: nothing for an ADD into an operand that it is the last to read."""
        made = self.writes[op]
        if self.graph.ops[op].kind in IN_PLACE and made:
            for buffer in self.reads[op]:
                is_last_reader = self.readers[buffer] & ~done == 1 << op and buffer not in self.kept
                if is_last_reader and self.size[buffer] == self.size[made[0]]:
                    return ()
        return made

    def running_bytes(self, done: int, live_bytes: float, op: int) -> float:
        return live_bytes + sum(self.size[buffer] for buffer in self.new_buffers(done, op))

    def lower_bound(self) -> float:
        """No order can beat the op that needs most on its own."""
        needs: list[float] = [0]
        for number, op in enumerate(self.graph.ops):
            made = () if op.kind in IN_PLACE else self.writes[number]
            needs.append(sum(self.size[buffer] for buffer in {*self.reads[number], *made}))
        return max(needs)

    def measured(self, order: tuple[int, ...]) -> OpOrder:
        done = 0
        peak: float = 0
        bottleneck: list[int] = []
        for op in order:
            alive = [*self.live(done), *self.new_buffers(done, op)]
            used = sum(self.size[buffer] for buffer in alive)
            if used > peak:
                peak, bottleneck = used, alive
            done |= 1 << op
        return OpOrder(order, peak, tuple(bottleneck))


def _buffers(graph: Graph) -> dict[int, int]:
    """The buffer of every activation, named by its first tensor: a RESHAPE does not open a new one."""
    buffer_of = {index: index for index in graph.inputs}
    for op in graph.ops:
        sources = list(graph.activations_of(op))
        for index in op.outputs:
            buffer_of[index] = buffer_of[sources[0]] if op.kind in ALIASES and sources else index
    return buffer_of
