"""Peak memory of a runtime that writes the output of an op over the operand that dies in it, row by row.

An op whose kernel reads its input from front to back needs less than input and output together: when a share w of the
output is written and a share r of the input has been read for the last time, the two take w * output + (1 - r) * input,
and never less than the larger of them. That is linear in both, so it holds for widths that are not whole, and its
derivatives are exact. The moments (w, 1 - r) are those of the firmware's kernels at the grain of rows; what the
firmware really places (stages/firmware/access_order.py) differs by less than a row and the rounding to 16 bytes.

The order of the ops is the best one without overlap, in which the exported network is stored and run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from stages.graph.buffers import ALIASES, IN_PLACE
from stages.graph.graph import ConvOptions, Graph, Op, PoolOptions
from stages.graph.op_check import padding_before
from stages.graph.op_order import MOST_STATES, OpOrder, OrderProblem

Runtime = Literal["classic", "overlap"]
Moment = tuple[float, float]  # share of the output that is written, share of the input that is still to be read


class OverlapProblem(OrderProblem):
    """An `OrderProblem` that says of its order what it needs with overlap."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._moments = [moments(graph, op) for op in graph.ops]

    def solve(self, tensor_bytes: Sequence[float] | None = None, most_states: int = MOST_STATES) -> OpOrder:
        """The best order without overlap; peak and bottleneck are those with it, `shares` of each tensor."""
        return self._overlapped(super().solve(tensor_bytes, most_states), tensor_bytes)

    def measure(self, order: Sequence[int], tensor_bytes: Sequence[float] | None = None) -> OpOrder:
        """What a given order costs."""
        return self._overlapped(super().measure(order, tensor_bytes), tensor_bytes)

    def _overlapped(self, found: OpOrder, tensor_bytes: Sequence[float] | None) -> OpOrder:
        sizes, _ = self._sizes(tensor_bytes)
        needs = list(self._needs(found.order, sizes))
        most = max(needs, key=lambda need: _bytes(need, sizes))
        peak = _bytes(most, sizes)
        return replace(
            found,
            peak_bytes=peak,
            bottleneck=tuple(self.buffers.tensors[b][0] for b in most),
            shares=tuple(most.values()),
            lower_bound_bytes=peak,
            proven_optimal=False,
        )

    def _needs(self, order: Sequence[int], sizes: list[float]) -> Iterator[dict[int, float]]:
        """Per op, the share of each buffer that is in use while it runs."""
        buffers, done = self.buffers, 0
        alive = [b for b, maker in enumerate(buffers.makers) if maker == 0 and buffers.is_alive(b, 0)]
        for number in order:
            op = buffers.ops[number]
            steps = self._moments[number]
            after = done | 1 << number
            dying = [b for b in op.reads if not buffers.is_alive(b, after)]
            if steps is None or not dying or len(op.writes) != 1:
                written = op.writes if buffers.replaced(number, done, sizes) is None else ()
                yield dict.fromkeys([*alive, *written], 1.0)
            else:
                others = dict.fromkeys((b for b in alive if b not in dying), 1.0)
                yield {**others, **_shared(op.writes[0], dying, steps, sizes)}
            alive = [b for b in dict.fromkeys([*alive, *op.writes]) if buffers.is_alive(b, after)]
            done = after


def _shared(output: int, dying: list[int], steps: Sequence[Moment], sizes: list[float]) -> dict[int, float]:
    """The shares that the output and the operands that die take together at the worst moment."""
    cases: list[dict[int, float]] = [{output: 1.0}, dict.fromkeys(dying, 1.0)]
    cases += [{output: written, operand: unread} for operand in dying for written, unread in steps]
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
    return tuple(_rows(graph, op, window[0]))


def _same_shapes(graph: Graph, op: Op) -> bool:
    return all(graph.tensors[i].shape == graph.tensors[op.outputs[0]].shape for i in graph.activations_of(op))


def _rows(graph: Graph, op: Op, height: int) -> Iterator[Moment]:
    lines, rows = graph.tensors[op.inputs[0]].shape[1], graph.tensors[op.outputs[0]].shape[1]
    assert isinstance(op.options, ConvOptions | PoolOptions)
    stride, dilation = op.options.stride[0], op.options.dilation[0] if isinstance(op.options, ConvOptions) else 1
    top = padding_before(lines, height, stride, dilation, op.options.padding)
    is_buffered = (op.kind == "CONV_2D" and dilation == 1) or _is_interleaved(graph, op)
    for done in range(1, rows + (not is_buffered)):
        if not is_buffered:  # straight from the input
            line = (done - 1) * stride - top
        elif op.kind == "CONV_2D":  # lines are widened into a buffer
            line = max((done - 1) * stride + height, done * stride) - top
        else:  # two lines are interleaved at a time, one step ahead
            line = 2 * ((done - 1) // 2 if stride == 1 else done - 1) + 4 - top
        if line < lines:
            yield done / rows, 1 - max(line, 0) / lines


def _is_interleaved(graph: Graph, op: Op) -> bool:
    options = op.options
    if op.kind != "DEPTHWISE_CONV_2D" or not isinstance(options, ConvOptions):
        return False
    is_plain = options.dilation == (1, 1) and max(options.stride) <= 2 and options.depth_multiplier == 1
    return is_plain and tuple(graph.tensors[op.inputs[1]].shape[1:3]) == (3, 3)
