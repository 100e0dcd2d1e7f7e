"""A graph survives torch.save and torch.load(weights_only=True)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.errors import StageError
from stages.graph.record import graph_from_record, graph_to_record
from tests.stages.graph.int8_graphs import residual_network


def test_a_stored_graph_is_the_same_graph(tmp_path: Path) -> None:
    graph = residual_network(4)
    torch.save(graph_to_record(graph), tmp_path / "graph.pt")
    back = graph_from_record(torch.load(tmp_path / "graph.pt", weights_only=True))
    assert (back.ops, back.inputs, back.outputs) == (graph.ops, graph.inputs, graph.outputs)
    for found, expected in zip(back.tensors, graph.tensors, strict=True):
        assert (found.name, found.shape, found.dtype, found.quantisation) == (
            (expected.name, expected.shape, expected.dtype, expected.quantisation)
        )
        assert (found.data is None) == (expected.data is None)
        if expected.data is not None:
            assert found.data is not None and found.data.dtype == expected.data.dtype
            np.testing.assert_array_equal(found.data, expected.data)


@pytest.mark.parametrize("record", [{}, {"tensors": 3}, {"tensors": [{"name": "x"}]}])
def test_something_else_is_refused(record: dict) -> None:
    with pytest.raises(StageError, match=r"not a stored graph \(\w+: .*\); run the step that wrote it again"):
        graph_from_record(record)
