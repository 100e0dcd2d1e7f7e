"""Whether SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM are of the kind that TensorFlow Lite Micro computes in int8."""

from __future__ import annotations

from pipeline.errors import StageError
from stages.graph.graph import Graph, Op, PlainOptions, Tensor

_TANH = 4  # number of the fused activation
_ABSENT = (9, 10, 11, 16, 17, 20, 21, 22, 23)  # peepholes, projection, normalisation
_GATE_OPERANDS = (*range(1, 9), *range(12, 16))
_OUTPUT_STATE, _CELL_STATE = 18, 19


def check_recurrent(graph: Graph, op: Op) -> None:
    """Raise StageError with one sentence on the first thing that does not fit."""
    if op.kind == "SVDF":
        _check_svdf(graph, op)
    else:
        _check_lstm(graph, op)


def _require(op: Op, fits: bool, needed: str) -> None:
    if not fits:
        raise StageError(f"{op.title}: operands or options that do not fit, needed {needed}")


def _has(tensor: Tensor, dtype: str, *shape: int) -> bool:
    return tensor.dtype == dtype and (not shape or tensor.shape == shape)


def _one_grid(tensor: Tensor) -> bool:
    grid = tensor.quantisation
    return grid is not None and len(grid.scale) == 1 and grid.scale[0] > 0


def _stored(graph: Graph, indices: tuple[int, ...]) -> bool:
    return all(graph.tensors[i].data is not None and not graph.tensors[i].is_state for i in indices)


def _check_svdf(graph: Graph, op: Op) -> None:
    assert isinstance(op.options, PlainOptions)
    _require(op, len(op.inputs) == 5 and len(op.outputs) == 1 and min(op.inputs[:3] + op.inputs[4:]) >= 0, "5 inputs")
    source, feature, time = (graph.tensors[i] for i in op.inputs[:3])
    state, result = graph.tensors[op.inputs[4]], graph.tensors[op.outputs[0]]
    rank, activation = map(int, op.options.values)
    _require(op, _stored(graph, op.inputs[1:3]) and source.data is None, "constant weights")
    _require(op, len(feature.shape) == len(time.shape) == 2 and len(source.shape) == 2, "two axes each")
    filters, memory = feature.shape[0], time.shape[1]
    _require(op, rank > 0 and filters % rank == 0 and activation in (0, 1), "whole units, and no activation or ReLU")
    fits = _has(source, "int8", 1, feature.shape[1]) and _has(feature, "int8") and _has(time, "int16", filters, memory)
    fits = fits and state.is_state and _has(state, "int16") and state.elements == filters * memory
    fits = fits and _has(result, "int8", 1, filters // rank)
    _require(op, fits, "int8 with a batch of 1, weights of time and a state of int16")
    if op.inputs[3] >= 0:
        bias = graph.tensors[op.inputs[3]]
        _require(op, bias.data is not None and _has(bias, "int32") and bias.elements == filters // rank, "int32 biases")
    _require(op, all(map(_one_grid, (source, feature, time, state, result))), "one scale each")


def _check_lstm(graph: Graph, op: Op) -> None:
    assert isinstance(op.options, PlainOptions)
    _require(op, len(op.inputs) == 24 and len(op.outputs) == 1, "24 inputs")
    absent = all(op.inputs[place] < 0 for place in _ABSENT)
    needed = (0, *_GATE_OPERANDS, _OUTPUT_STATE, _CELL_STATE)
    whole = all(op.inputs[place] >= 0 for place in needed)
    _require(
        op, absent and whole and int(op.options.values[0]) == _TANH, "four gates, tanh, no peepholes or projection"
    )
    source, hidden, cell = (graph.tensors[op.inputs[i]] for i in (0, _OUTPUT_STATE, _CELL_STATE))
    result = graph.tensors[op.outputs[0]]
    _require(
        op, source.data is None and _stored(graph, tuple(op.inputs[i] for i in _GATE_OPERANDS)), "constant weights"
    )
    _require(op, len(source.shape) == 3 and 1 in source.shape[:2] and source.dtype == "int8", "int8, a batch of 1")
    inputs, units = source.shape[2], hidden.elements
    for place in _GATE_OPERANDS:
        tensor = graph.tensors[op.inputs[place]]
        if place >= 12:
            fits = _has(tensor, "int32", units)
        else:
            fits = _has(tensor, "int8", units, inputs if place < 5 else units) and _one_grid(tensor)
            fits = fits and tensor.quantisation is not None and tensor.quantisation.zero_point[0] == 0
        _require(op, fits, f"weights of {units} x {inputs} and {units} x {units} in int8, and {units} biases in int32")
    fits = hidden.is_state and cell.is_state and _has(hidden, "int8") and _has(cell, "int16") and cell.elements == units
    fits = fits and _has(result, "int8", *source.shape[:2], units)
    _require(op, fits, "states of int8 and int16, and an output for each step")
    _require(op, all(map(_one_grid, (source, hidden, cell, result))), "one scale each")
