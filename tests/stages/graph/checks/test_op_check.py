"""The soundness check: padding and window counts against slow counting, and one sentence per mistake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import Graph, Quantisation
from tests.stages.graph.int8_graphs import residual_network


def with_tensor(graph: Graph, index: int, **changes: object) -> Graph:
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], **changes)
    return replace(graph, tensors=tuple(tensors))


def mistakes() -> list[tuple[str, Graph]]:
    graph = residual_network(0)
    conv, add, dense = graph.ops[0], graph.ops[3], graph.ops[6]
    grid = Quantisation((0.1, 0.2), (0, 0))
    return [
        ("weights of shape .* do not fit", with_tensor(graph, conv.inputs[1], shape=(8, 3, 3, 4))),
        ("bias of shape .*, needed 8 constants", with_tensor(graph, conv.inputs[2], shape=(9,))),
        ("the weights are computed, needed a constant", replace_op_input(graph, 0, 1, 0)),
        ("2 weight scales, needed 1 or 8 on axis 0", with_tensor(graph, conv.inputs[1], quantisation=grid)),
        ("is int8, needed int8 with one scale", with_tensor(graph, add.outputs[0], quantisation=None)),
        ("output of type int16, needed int8", with_tensor(graph, add.outputs[0], dtype="int16")),
        ("do not fit together", replace_op_input(graph, 3, 1, 0)),
        ("do not fit an input of shape", with_tensor(graph, dense.inputs[1], shape=(5, 9))),
        ("is computed twice", replace(graph, ops=(*graph.ops, graph.ops[-1]))),
        ("0 operators", replace(graph, ops=())),
        ("is never computed", replace(graph, ops=graph.ops[:-1])),
        ("input or output 99", replace(graph, outputs=(99,))),
        ("is a constant, needed an activation", with_tensor(graph, 0, data=np.zeros((1, 9, 7, 3), np.int8))),
    ]


def replace_op_input(graph: Graph, number: int, position: int, tensor: int) -> Graph:
    ops = list(graph.ops)
    inputs = list(ops[number].inputs)
    inputs[position] = tensor
    ops[number] = replace(ops[number], inputs=tuple(inputs))
    return replace(graph, ops=tuple(ops))


@pytest.mark.parametrize(("sentence", "graph"), mistakes(), ids=lambda value: value if isinstance(value, str) else "")
def test_each_mistake_has_its_sentence(sentence: str, graph: Graph) -> None:
    with pytest.raises(StageError, match=sentence):
        check_graph(graph)


def test_a_sound_graph_passes() -> None:
    graph = residual_network(0)
    check_graph(graph)
    assert len(graph.ops) == 8
