"""Lines and columns that a file repeats by a TILE along an axis of its own: an image that is enlarged.

Newer Keras writes its enlarging layers so (a new axis, a TILE along it, a RESHAPE that joins it to the one before it).
It is the same bytes as RESIZE_NEAREST_NEIGHBOR, which TensorFlow Lite Micro has, where it has no TILE, and which is
fused row-wise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from stages.graph.graph import Graph, Op, PlainOptions, Tensor


def with_enlarging(graph: Graph) -> Graph:
    """The very same object where there is nothing to do."""
    tensors, gone, enlarged = list(graph.tensors), set(), {}
    makers = {index: op for op in graph.ops for index in op.outputs}
    uses = Counter(index for op in graph.ops for index in op.inputs) + Counter(graph.outputs)
    for last in graph.ops:
        tile = _maker_of(last, "RESHAPE", makers)
        first = tile and _maker_of(tile, "TILE", makers)
        if not tile or not first or not _repeats(graph, first, tile, last):
            continue
        between = (*tile.inputs[:1], *tile.outputs)
        if any(uses[index] > 1 for index in between):
            continue
        sides = np.array(graph.tensors[last.outputs[0]].shape[1:3], np.int32)
        tensors.append(Tensor(f"sides of {last.name}", (2,), "int32", data=sides))
        inputs = first.inputs[0], len(tensors) - 1
        enlarged[last.outputs] = Op("RESIZE_NEAREST_NEIGHBOR", last.name, inputs, last.outputs, PlainOptions((0, 0)))
        gone.update(between)
    if not enlarged:
        return graph
    ops = (enlarged.get(op.outputs, op) for op in graph.ops if not gone.intersection(op.outputs))
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def _maker_of(op: Op, kind: str, makers: dict[int, Op]) -> Op | None:
    """What made the first operand of an op of this kind; None for one whose form the check will refuse."""
    is_whole = op.kind == kind and op.inputs and min(op.inputs) >= 0 and len(op.outputs) == 1
    return makers.get(op.inputs[0]) if is_whole else None


def _repeats(graph: Graph, first: Op, tile: Op, last: Op) -> bool:
    """Whether the three give every line, or every column, of an image several times in a row."""
    if first.kind not in ("EXPAND_DIMS", "RESHAPE") or not first.inputs or first.inputs[0] < 0 or len(tile.inputs) != 2:
        return False
    source, apart, result = (graph.tensors[index] for index in (first.inputs[0], tile.inputs[0], last.outputs[0]))
    counts, shape = graph.tensors[tile.inputs[1]].data, source.shape
    if counts is None or counts.shape != (5,) or len(shape) != 4 or source.quantisation != result.quantisation:
        return False
    return any(
        counts.tolist() == [1] * (axis + 1) + [count] + [1] * (3 - axis)
        and apart.shape == (*shape[: axis + 1], 1, *shape[axis + 1 :])
        and result.shape == (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
        for axis, count in ((1, int(counts[2])), (2, int(counts[3])))
    )
