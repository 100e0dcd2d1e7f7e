"""The rules of shapes, one by one: what just fits passes, what just does not is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stages.graph.graph import Graph, Op, PlainOptions, Quantisation, Tensor
from tests.stages.graph.checks.test_op_check import fits

GRID = Quantisation((0.1,), (0,))


def plain_op(kind: str, operands: list[tuple[int, ...] | list[int]], options: tuple[int, ...], *results: Any) -> Graph:
    """One op; operands in brackets are constant integers."""
    tensors = [
        Tensor(f"x{n}", (len(each),), "int32", data=np.array(each, np.int32))
        if isinstance(each, list)
        else Tensor(f"x{n}", each, "int8", GRID)
        for n, each in enumerate(operands)
    ]
    inputs = tuple(range(len(tensors)))
    tensors += [Tensor(f"y{n}", each, "int8", GRID) for n, each in enumerate(results)]
    outputs = tuple(range(len(inputs), len(tensors)))
    activations = tuple(n for n in inputs if tensors[n].data is None)
    return Graph(tuple(tensors), (Op(kind, "op", inputs, outputs, PlainOptions(options)),), activations, outputs)


EDGES = [  # kind, operands, options, results; and what just does not fit any more
    (("TANH", [(1, 1, 1, 2, 2)], (), (1, 1, 1, 2, 2)), ("TANH", [(1, 1, 1, 1, 2, 2)], (), (1, 1, 1, 1, 2, 2))),
    (("MAXIMUM", [(1, 2, 2, 3), (3,)], (), (1, 2, 2, 3)), ("MAXIMUM", [(1, 1, 2, 2, 3), (3,)], (), (1, 1, 2, 2, 3))),
    (("MAXIMUM", [(1, 3), (1, 3)], (), (1, 3)), ("MAXIMUM", [(3,), (1, 1, 2, 2, 3)], (), (1, 1, 2, 2, 3))),
    (("MAXIMUM", [(1, 3), (1, 3)], (), (1, 3)), ("MAXIMUM", [(1, 3), (1, 3), (1, 3)], (), (1, 3))),
    (("SQUEEZE", [(1, 2, 1)], (3,), (2,)), ("SQUEEZE", [(1, 2, 1)], (4,), (2,))),
    (("SQUEEZE", [(1, 2, 1)], (1,), (1, 2)), ("SQUEEZE", [(1, 2, 1)], (1,), (1, 3))),
    (("SLICE", [(1, 6), [0, 2], [1, 4]], (), (1, 4)), ("SLICE", [(1, 6), [0, 3], [1, 4]], (), (1, 4))),
    (("SLICE", [(1, 6), [0, 2], [-1, -1]], (), (1, 4)), ("SLICE", [(1, 6), [0, -1], [1, 4]], (), (1, 4))),
    (
        ("STRIDED_SLICE", [(1, 6), [0, 1], [1, 5], [1, 2]], (0, 0, 0, 0, 0, 0), (1, 2)),
        ("STRIDED_SLICE", [(1, 6), [0, 1], [1, 5], [1, 2]], (0, 0, 0, 0, 0, 1), (1, 2)),
    ),
    (
        ("STRIDED_SLICE", [(1, 6), [0, 1], [0, 1], [1, 2]], (2, 3, 0, 0, 0, 0), (1, 3)),
        ("STRIDED_SLICE", [(1, 6), [0, 1], [0, 1], [1, 2]], (2, 1, 0, 0, 0, 0), (1, 3)),
    ),
    (
        ("STRIDED_SLICE", [(1, 6), [0, -6], [1, 0], [1, 1]], (0, 0, 2, 0, 0, 0), (1,)),
        ("STRIDED_SLICE", [(1, 6), [0, -7], [1, 0], [1, 1]], (0, 0, 2, 0, 0, 0), (1,)),
    ),
    (
        ("STRIDED_SLICE", [(1, 6), [0, 5], [1, 0], [1, 1]], (0, 0, 2, 0, 0, 0), (1,)),
        ("STRIDED_SLICE", [(1, 6), [0, 6], [1, 0], [1, 1]], (0, 0, 2, 0, 0, 0), (1,)),
    ),
    (
        ("STRIDED_SLICE", [(1, 6), [0, 5], [1, 0], [1, 1]], (0, 0, 2, 0, 0, 0), (1,)),
        ("STRIDED_SLICE", [(1, 6), [0, 5], [1, 0], [1, 2]], (0, 0, 2, 0, 0, 0), (1,)),
    ),
    (("SPLIT", [[-2], (1, 6)], (1,), (1, 6)), ("SPLIT", [[-3], (1, 6)], (1,), (1, 6))),
    (("SPLIT", [[1], (1, 6)], (2,), (1, 3), (1, 3)), ("SPLIT", [[1], (1, 7)], (2,), (1, 3), (1, 3))),
    (("SPLIT", [[1], (1, 6)], (2,), (1, 3), (1, 3)), ("SPLIT", [[2], (1, 6)], (2,), (1, 3), (1, 3))),
    (("SPLIT", [[1], (1, 6)], (2,), (1, 3), (1, 3)), ("SPLIT", [[1, 1], (1, 6)], (2,), (1, 3), (1, 3))),
    (
        ("SPLIT_V", [(1, 6), [2, 4], [1]], (2,), (1, 2), (1, 4)),
        ("SPLIT_V", [(1, 6), [2, 3], [1]], (2,), (1, 2), (1, 3)),
    ),
    (
        ("SPLIT_V", [(1, 6), [2, 4], [1]], (2,), (1, 2), (1, 4)),
        ("SPLIT_V", [(1, 6), [2, 4], [1]], (3,), (1, 2), (1, 4)),
    ),
    (("PACK", [(1, 3), (1, 3)], (2, 2), (1, 3, 2)), ("PACK", [(1, 3), (1, 3)], (3, 2), (1, 3, 2))),
    (("PACK", [(1, 3), (1, 3)], (1, 2), (1, 2, 3)), ("PACK", [(1, 3), (1, 4)], (1, 2), (1, 2, 3))),
    (("UNPACK", [(1, 2, 3)], (1, 2), (1, 3), (1, 3)), ("UNPACK", [(1, 2, 3)], (1, 2), (1, 3))),
    (("PADV2", [(1, 3), [0, 0, 0, 2], (1,)], (), (1, 5)), ("PADV2", [(1, 3), [0, 0, -1, 2], (1,)], (), (1, 4))),
    (("MIRROR_PAD", [(1, 3), [0, 0, 2, 2]], (0,), (1, 7)), ("MIRROR_PAD", [(1, 3), [0, 0, 2, 3]], (0,), (1, 8))),
    (("MIRROR_PAD", [(1, 3), [0, 0, 3, 0]], (1,), (1, 6)), ("MIRROR_PAD", [(1, 3), [0, 0, 4, 0]], (1,), (1, 7))),
    (("MIRROR_PAD", [(1, 3), [0, 0, 1, 0]], (1,), (1, 4)), ("MIRROR_PAD", [(1, 3), [0, 0, 1, 0]], (2,), (1, 4))),
    (("DEPTH_TO_SPACE", [(1, 2, 3, 8)], (2,), (1, 4, 6, 2)), ("DEPTH_TO_SPACE", [(1, 2, 3, 6)], (2,), (1, 4, 6, 1))),
    (("DEPTH_TO_SPACE", [(1, 2, 3, 8)], (1,), (1, 2, 3, 8)), ("DEPTH_TO_SPACE", [(1, 2, 3, 8)], (-1,), (1, -2, -3, 8))),
    (("SPACE_TO_DEPTH", [(1, 4, 6, 2)], (2,), (1, 2, 3, 8)), ("SPACE_TO_DEPTH", [(1, 5, 6, 2)], (2,), (1, 2, 3, 8))),
    (("SPACE_TO_DEPTH", [(1, 4, 6, 2)], (1,), (1, 4, 6, 2)), ("SPACE_TO_DEPTH", [(1, 4, 7, 2)], (2,), (1, 2, 3, 8))),
    (
        ("SPACE_TO_BATCH_ND", [(1, 3, 4, 2), [2, 2], [0, 1, 0, 0]], (), (4, 2, 2, 2)),
        ("SPACE_TO_BATCH_ND", [(1, 3, 4, 2), [2, 2], [0, 0, 0, 0]], (), (4, 1, 2, 2)),
    ),
    (
        ("SPACE_TO_BATCH_ND", [(1, 3, 2), [1], [0, 0]], (), (1, 3, 2)),
        ("SPACE_TO_BATCH_ND", [(1, 4, 2), [2], [-1, 1]], (), (2, 2, 2)),
    ),
    (
        ("SPACE_TO_BATCH_ND", [(1, 3, 4, 2), [1, 1], [0, 0, 0, 0]], (), (1, 3, 4, 2)),
        ("SPACE_TO_BATCH_ND", [(1, 1, 3, 4, 2), [1, 1, 1], [0, 0, 0, 0, 0, 0]], (), (1, 1, 3, 4, 2)),
    ),
    (
        ("BATCH_TO_SPACE_ND", [(4, 2, 2, 2), [2, 2], [0, 1, 0, 0]], (), (1, 3, 4, 2)),
        ("BATCH_TO_SPACE_ND", [(4, 2, 2, 2), [2, 2], [0, 1, 0, 0]], (), (1, 4, 4, 2)),
    ),
]


@pytest.mark.parametrize("within, beyond", EDGES, ids=lambda case: case[0])
def test_each_rule_holds_up_to_its_edge_and_not_beyond(within: tuple[Any, ...], beyond: tuple[Any, ...]) -> None:
    assert fits(plain_op(*within))
    assert not fits(plain_op(*beyond))


def test_lists_of_integers_are_short() -> None:
    sizes = [1] * 16
    graph = plain_op("SPLIT_V", [(1, 16), sizes, [1]], (16,), *[(1, 1)] * 16)
    assert fits(graph)
    assert not fits(plain_op("SPLIT_V", [(1, 17), [*sizes, 1], [1]], (17,), *[(1, 1)] * 17))
