"""Which layer hurts: for every op, how far its int8 result is from what the float network computes.

SQNR = 10 log10(sum of squares of the float values / sum of squares of the differences), in dB: 6 dB more is one bit
more. The error of an op includes what its inputs already bring along; where it drops most, look first. `own_sqnr_db`
leaves that out: the float op is applied to the int8 inputs, so that only its weights and its output grid are to blame.
"""

from __future__ import annotations

import csv
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from stages.graph.arithmetic.float_reference import float_op, float_values
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import Graph, Op, Quantisation, Tensor


@dataclass(frozen=True)
class LayerError:
    """A row of layer_error.csv."""

    index: int  # position in model.tflite
    op: str
    name: str
    sqnr_db: float | None  # None: no error at all, or nothing but zeros
    own_sqnr_db: float | None
    max_error_lsb: float  # in steps of the op's output grid
    mean_error_lsb: float  # signed: far from 0 is a bias
    saturated_share: float  # of the values, at either end of the grid where the float value lies beyond
    scale: float
    zero_point: int


def layer_errors(float_graph: Graph, graph: Graph, inputs: np.ndarray) -> list[LayerError]:
    """One row per op of `graph`; both graphs have the same tensors, `inputs` are int8 (N, H, W, C)."""
    grid = _grid(graph.tensors[graph.inputs[0]])
    computed = {graph.inputs[0]: inputs, **run_graph(graph, inputs)}
    ordered = Graph(float_graph.tensors, graph.ops, graph.inputs, graph.outputs)
    rows = []
    position = {op.outputs[0]: number for number, op in enumerate(graph.ops)}
    for tensor, wanted in float_values(ordered, _real(inputs, grid)):
        if tensor in position:
            number = position[tensor]
            rows.append(_row(number, graph, ordered, computed, wanted))
    return rows


def write_layer_errors(path: Path, rows: list[LayerError]) -> Path:
    """Write layer_error.csv; an absent number is empty."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(LayerError)], lineterminator="\n")
        table.writeheader()
        for row in rows:
            table.writerow({key: _text(value) for key, value in asdict(row).items()})
    return path


def _row(
    number: int, graph: Graph, float_graph: Graph, computed: dict[int, np.ndarray], wanted: np.ndarray
) -> LayerError:
    op = graph.ops[number]
    tensor = graph.tensors[op.outputs[0]]
    grid, steps = _grid(tensor), computed[op.outputs[0]]
    found = _real(steps, grid).reshape(wanted.shape)
    apart = (found.astype(np.float64) - wanted) / grid.scale[0]
    lowest, highest = (grid.scale[0] * (end - grid.zero_point[0]) for end in (-128.5, 127.5))
    alone = _applied_alone(float_graph, op, graph, computed)
    return LayerError(
        index=number,
        op=op.kind,
        name=op.name,
        sqnr_db=_sqnr_db(wanted, found),
        own_sqnr_db=_sqnr_db(alone.reshape(found.shape), found),
        max_error_lsb=float(np.abs(apart).max()),
        mean_error_lsb=float(apart.mean()),
        saturated_share=float(((wanted < lowest) | (wanted > highest)).mean()),
        scale=grid.scale[0],
        zero_point=grid.zero_point[0],
    )


def _applied_alone(float_graph: Graph, op: Op, graph: Graph, computed: dict[int, np.ndarray]) -> np.ndarray:
    """The float op on the int8 results before it."""
    sources = dict.fromkeys(graph.activations_of(op))
    values = {index: _real(computed[index], _grid(graph.tensors[index])) for index in sources}
    return float_op(float_graph, op, values)


def _sqnr_db(wanted: np.ndarray, found: np.ndarray) -> float | None:
    signal = float(np.square(wanted, dtype=np.float64).sum())
    noise = float(np.square(found.astype(np.float64) - wanted).sum())
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else None


def _grid(tensor: Tensor) -> Quantisation:
    assert tensor.quantisation is not None, tensor.name
    return tensor.quantisation


def _real(steps: np.ndarray, grid: Quantisation) -> np.ndarray:
    return (steps.astype(np.float32) - grid.zero_point[0]) * np.float32(grid.scale[0])


def _text(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value
