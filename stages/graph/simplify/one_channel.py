"""A DEPTHWISE_CONV_2D of one channel with a multiplier is a CONV_2D in disguise: the same sums, scaled alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stages.graph.graph import ConvOptions, Graph, Op, Tensor


def without_disguise(graph: Graph) -> Graph:
    """The very same object where there is nothing to do."""
    found = [number for number, op in enumerate(graph.ops) if _is_disguised(graph, op)]
    if not found:
        return graph
    tensors, ops = list(graph.tensors), list(graph.ops)
    for number in found:
        op = ops[number]
        assert isinstance(op.options, ConvOptions)
        tensors.append(_turned(tensors[op.inputs[1]]))
        inputs = (op.inputs[0], len(tensors) - 1, *op.inputs[2:])
        options = replace(op.options, depth_multiplier=1)
        ops[number] = replace(op, kind="CONV_2D", inputs=inputs, options=options)
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))


def _is_disguised(graph: Graph, op: Op) -> bool:
    if op.kind != "DEPTHWISE_CONV_2D":
        return False
    source, weights = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]]
    return source.shape[3] == 1 and weights.shape[3] > 1 and weights.data is not None


def _turned(weights: Tensor) -> Tensor:
    """From 1HWC to OHWI."""
    assert weights.data is not None
    data = np.ascontiguousarray(weights.data.transpose(3, 1, 2, 0))
    grid = weights.quantisation
    return replace(
        weights,
        name=f"{weights.name} (turned)",
        shape=tuple(map(int, data.shape)),
        data=data,
        quantisation=grid and replace(grid, axis=0),
    )
