"""The error report: right figures, and it points at the layer that was made bad."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.export.layer_error import layer_errors, write_layer_errors
from stages.export.quantise import int8_graph
from stages.graph.arithmetic.float_reference import run_float
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph, Quantisation
from stages.qat.fake_quant import FakeQuantNetwork
from tests.stages.export.backbones import quantised_inputs
from tests.stages.qat.float_graphs import squeeze_and_excite


def trained() -> tuple[Graph, torch.Tensor]:
    fake = FakeQuantNetwork(squeeze_and_excite(0))
    x = torch.randn(20, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    fake.calibrate(x)
    return fake.quantised_graph(), x


def with_coarse_grid(graph: Graph, tensor: int) -> Graph:
    tensors = list(graph.tensors)
    grid = tensors[tensor].quantisation
    assert grid is not None
    tensors[tensor] = replace(tensors[tensor], quantisation=Quantisation((grid.scale[0] * 20,), grid.zero_point))
    return replace(graph, tensors=tuple(tensors))


def test_the_figures_are_those_of_the_definition() -> None:
    graph, x = trained()
    exported = int8_graph(graph)
    inputs = quantised_inputs(exported, x)
    rows = layer_errors(graph, exported, inputs)
    source = exported.tensors[exported.inputs[0]].quantisation
    assert source is not None
    wanted = run_float(graph, (inputs.astype(np.float32) - source.zero_point[0]) * np.float32(source.scale[0]))
    found = run_graph(exported, inputs)
    assert [row.name for row in rows] == [op.name for op in exported.ops]
    for row, op in zip(rows, exported.ops, strict=True):
        grid = exported.tensors[op.outputs[0]].quantisation
        assert grid is not None
        real = (found[op.outputs[0]].astype(float) - grid.zero_point[0]) * grid.scale[0]
        noise = real - wanted[op.outputs[0]].reshape(real.shape)
        sqnr_db = 10 * math.log10(np.square(wanted[op.outputs[0]], dtype=float).sum() / np.square(noise).sum())
        assert row.sqnr_db is not None and abs(row.sqnr_db - sqnr_db) < 0.01
        assert abs(row.max_error_lsb - np.abs(noise).max() / grid.scale[0]) < 0.01
        assert abs(row.mean_error_lsb - noise.mean() / grid.scale[0]) < 0.001
        steps = wanted[op.outputs[0]].astype(float) / grid.scale[0] + grid.zero_point[0]
        assert row.saturated_share == pytest.approx(((steps < -128.5) | (steps > 127.5)).mean(), abs=1e-6)
        assert (row.scale, row.zero_point) == (grid.scale[0], grid.zero_point[0])
    assert all(row.sqnr_db is not None and row.sqnr_db > 10 for row in rows)


def test_the_layer_with_a_coarse_grid_is_the_worst() -> None:
    graph, x = trained()
    victim = next(number for number, op in enumerate(graph.ops) if op.kind == "MUL")
    spoilt = with_coarse_grid(graph, graph.ops[victim].outputs[0])
    exported = int8_graph(spoilt)
    rows = layer_errors(spoilt, exported, quantised_inputs(exported, x))
    worst = min((row for row in rows if row.own_sqnr_db is not None), key=lambda row: row.own_sqnr_db)
    assert (worst.index, worst.op) == (victim, "MUL")
    later = rows[victim + 1]
    # The next layer suffers from it, but is not to blame.
    assert later.sqnr_db is not None and later.own_sqnr_db is not None
    assert later.own_sqnr_db > later.sqnr_db + 10


def test_the_table_has_a_row_per_op_and_the_same_bytes_every_time(tmp_path: Path) -> None:
    graph, x = trained()
    exported = int8_graph(graph)
    inputs = quantised_inputs(exported, x)
    paths = [write_layer_errors(tmp_path / name, layer_errors(graph, exported, inputs)) for name in ("a", "b")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with paths[0].open() as file:
        table = list(csv.DictReader(file))
    assert [int(row["index"]) for row in table] == list(range(len(graph.ops)))
    assert [row["op"] for row in table] == [op.kind for op in graph.ops]
    assert float(table[0]["sqnr_db"]) > 20
    assert b"\r" not in paths[0].read_bytes()
