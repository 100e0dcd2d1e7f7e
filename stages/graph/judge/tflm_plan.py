"""The arena as TensorFlow Lite Micro sees it: beside the activations, the scratch buffers that its kernels ask for.

The runtime puts every tensor where the plan in the file says. Then it adds what the plan does not know, largest first,
each in the lowest gap that is free while it is needed: scratch buffers (of the kernels here only MEAN asks for one, an
int32 sum for each of its results), and tensors that no operator touches, which it places as if they lived before
the first one. The arena's head is the end of the highest of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stages.graph.graph import Graph, Tensor
from stages.graph.memory.arena_layout import ArenaLayout, aligned, arena_layout


@dataclass(frozen=True)
class RuntimePlan:
    """Offsets for the file, and the head that follows from them."""

    offsets: tuple[int, ...]  # per tensor of the graph; -1: left to the runtime, or no need
    head_bytes: int
    layout: ArenaLayout  # of activations and scratch buffers together


def runtime_plan(graph: Graph) -> RuntimePlan:
    """The best layout for the runtime, for the ops in the order in which they stand."""
    layout = arena_layout(with_scratch(graph))
    offsets = layout.offsets[: len(graph.tensors)]
    return RuntimePlan(offsets, runtime_head_bytes(graph, offsets), layout)


def scratch_bytes(graph: Graph) -> list[int]:
    """What each op's kernel asks for beside its operands."""
    return [4 * graph.tensors[op.outputs[0]].elements if op.kind == "MEAN" else 0 for op in graph.ops]


def with_scratch(graph: Graph) -> Graph:
    """The graph with scratch buffers as further outputs that nobody reads."""
    tensors, ops = list(graph.tensors), []
    for op, size in zip(graph.ops, scratch_bytes(graph), strict=True):
        if size:
            tensors.append(Tensor(f"scratch of {op.name}", (size,), "int8"))
            op = replace(op, outputs=(*op.outputs, len(tensors) - 1))
        ops.append(op)
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def runtime_head_bytes(graph: Graph, offsets: tuple[int, ...]) -> int:
    """Where the runtime's own first fit ends up."""
    first, last = _lives(graph)
    head = 0
    for index, tensor in enumerate(graph.tensors):
        if tensor.data is None:
            head = max(head, max(offsets[index], 0) + aligned(tensor.nbytes))
    for now, size in enumerate(scratch_bytes(graph)):
        alive = [t for t in first if first[t] <= now <= last[t] and offsets[t] >= 0]
        offset = 0
        for other in sorted(alive, key=lambda t: offsets[t]):
            if offset + aligned(size) <= offsets[other]:
                break
            offset = max(offset, offsets[other] + aligned(graph.tensors[other].nbytes))
        head = max(head, offset + aligned(size) if size else 0)
    return head


def _lives(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """First and last op of each activation, by the runtime's rules: every tensor for itself."""
    first = dict.fromkeys(graph.inputs, -1)
    last = dict.fromkeys(graph.inputs, -1)
    for now, op in enumerate(graph.ops):
        for tensor in op.outputs:
            first[tensor] = last[tensor] = now
        last.update(dict.fromkeys(graph.activations_of(op), now))
    last.update(dict.fromkeys(graph.outputs, len(graph.ops)))
    return first, last
