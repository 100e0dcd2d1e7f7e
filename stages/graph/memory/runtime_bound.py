"""How much RAM TensorFlow Lite Micro takes at least for a network, on a device of 32 bits, without running it."""

from __future__ import annotations

from stages.graph.graph import WEIGHTED, Graph
from stages.graph.memory.arena_layout import aligned

# Of the runtime's own structures: TfLiteEvalTensor; a node with its registration; multiplier and shift of a channel. A
# dense network of 10 layers, measured on a Cortex-M7, keeps 1,300 B beside its activations, of which these are 772.
_TENSOR_BYTES, _OP_BYTES, _CHANNEL_BYTES = 12, 32, 8


def runtime_bytes(graph: Graph) -> int:
    """Every tensor that is alive, none of them over another, and what the runtime keeps beside them.

    A bound from below: kernels ask for more, and so does a layout with gaps.
    """
    first, last = dict.fromkeys(graph.inputs, 0), dict.fromkeys(graph.inputs, 0)
    for now, op in enumerate(graph.ops):
        for tensor in op.outputs:
            first[tensor] = last[tensor] = now
        last.update({tensor: now for tensor in graph.activations_of(op) if tensor in first})
    last.update({tensor: len(graph.ops) - 1 for tensor in graph.outputs if tensor in first})
    sizes = {tensor: aligned(graph.tensors[tensor].nbytes) for tensor in first}
    live = [sum(sizes[t] for t in first if first[t] <= now <= last[t]) for now in range(len(graph.ops))]
    scales = (graph.tensors[op.inputs[1]].quantisation for op in graph.ops if op.kind in WEIGHTED)
    channels = sum(len(grid.scale) for grid in scales if grid)
    states = sum(aligned(graph.tensors[index].nbytes) for index in graph.states)
    kept = _TENSOR_BYTES * len(graph.tensors) + _OP_BYTES * len(graph.ops) + _CHANNEL_BYTES * channels
    return max(live) + states + kept
