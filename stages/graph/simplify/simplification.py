"""The same function with less work, exactly: what every bit of the output is the same without goes away.

First, operators are written with fewer kinds (`lowering`). Then operators that do nothing (`idle_ops`) and channels
that are constant or that nobody reads (`idle_channels`) go, by turns until nothing changes: an op may become idle once
its channels are gone. What is left of a depthwise convolution with one channel becomes a convolution (`one_channel`),
for which there are faster kernels. Inputs and outputs of the network stay as they are.
"""

from __future__ import annotations

from stages.graph.arithmetic.int16_reference import has_wide
from stages.graph.graph import Graph
from stages.graph.simplify.idle_channels import without_idle_channels
from stages.graph.simplify.idle_ops import without_idle_ops
from stages.graph.simplify.lowering import lowered
from stages.graph.simplify.one_channel import without_disguise

_MOST_ROUNDS = 10  # two are the rule


def simplify(graph: Graph) -> Graph:
    """A graph with the same outputs for every input, bit for bit."""
    found = lowered(graph)
    if has_wide(found):  # what follows knows the arithmetic of int8 only
        return graph if found is graph else _compacted(found)
    for _ in range(_MOST_ROUNDS):
        before = found
        found = without_disguise(without_idle_channels(without_idle_ops(found)))
        if found is before:
            break
    return graph if found is graph else _compacted(found)


def _compacted(graph: Graph) -> Graph:
    """Without tensors that nothing refers to."""
    used = {*graph.inputs, *graph.outputs, *(i for op in graph.ops for i in (*op.inputs, *op.outputs) if i >= 0)}
    return graph.with_tensors(sorted(used))
