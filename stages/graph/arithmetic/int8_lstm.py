"""UNIDIRECTIONAL_SEQUENCE_LSTM in int8, with the bits of TensorFlow Lite Micro: gates in int16, the cell in int16.

A gate is the sum of two products (input and last output, each with its weights), brought to 3.12 fixed point, through
a curve that is looked up in a table of 256 values with straight lines between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_pointwise import scale_of, zero_point_of
from stages.graph.graph import Graph, Op

GATES = ("input", "forget", "cell", "output")
_INPUT_WEIGHTS, _RECURRENT_WEIGHTS, _BIASES = 1, 5, 12  # where each four begin among the operands
OUTPUT_STATE, CELL_STATE = 18, 19
OPERANDS = 24
_GATE_SCALE = 2.0**-12
_HALF = 1 << 15


def sigmoid_table() -> np.ndarray:
    """65536 / (1 + exp(-i / 24)) for i = 0 ... 254, and 65535 behind them.

    Raised by half of how far the straight lines lie below the curve: step^2 / 8 times its curvature.
    """
    curve = 1 / (1 + np.exp(-np.arange(256) / 24))
    below = -curve * (1 - curve) * (1 - 2 * curve) / 24**2 / 8
    return np.append(np.round(65536 * (curve + below / 2))[:-1], 65535).astype(np.int64)


_TABLE = sigmoid_table()


def sigmoid_int16(value: np.ndarray, multiplier: int = 3, shift: int = 0) -> np.ndarray:
    """Of 3.12 fixed point, as 0.15."""
    lifted = (value.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift
    size = np.abs(lifted)
    place, rest = np.minimum(size >> 9, 255), size & 0x1FF
    following = _TABLE[np.minimum(place + 1, 255)]
    curve = np.where(place >= 255, 0x7FFF << 10, (_TABLE[place] << 9) + rest * (following - _TABLE[place]))
    return (np.where(lifted >= 0, curve + (1 << 9), (1 << 25) - curve + (1 << 9) - 1) >> 10).astype(np.int64)


def tanh_int16(value: np.ndarray, multiplier: int = 3, shift: int = 0) -> np.ndarray:
    """2 * sigmoid(2 x) - 1."""
    lifted = (value.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift
    size = np.abs(lifted)
    place, rest = np.minimum(size >> 8, 255), size & 0xFF
    following = _TABLE[np.minimum(place + 1, 255)]
    curve = np.where(place >= 255, 0xFFFF << 8, (_TABLE[place] << 8) + rest * (following - _TABLE[place]))
    signed = np.where(lifted >= 0, curve - (1 << 23) + (1 << 7), -curve + (1 << 23) + (1 << 7) - 1)
    return (signed >> 8).astype(np.int64)


@dataclass(frozen=True)
class Gate:
    """The operands of one gate, and what brings its two products to 3.12."""

    input_weights: int
    recurrent_weights: int
    bias: int
    input_factor: fp.Multiplier
    recurrent_factor: fp.Multiplier


@dataclass(frozen=True)
class Cell:
    """Everything about an LSTM that does not change."""

    gates: tuple[Gate, ...]
    forget_factor: fp.Multiplier  # of forget gate * cell
    input_factor: fp.Multiplier  # of input gate * cell gate
    output_factor: fp.Multiplier  # of output gate * tanh(cell)
    tanh_multiplier: int
    tanh_shift: int
    cell_clip: int  # 0: none


def cell_of(graph: Graph, op: Op) -> Cell:
    """From the operands' scales."""
    source, hidden, cell = (graph.tensors[op.inputs[i]] for i in (0, OUTPUT_STATE, CELL_STATE))
    gates = []
    for number in range(len(GATES)):
        inner, recurrent = (op.inputs[start + number] for start in (_INPUT_WEIGHTS, _RECURRENT_WEIGHTS))
        gates.append(
            Gate(
                inner,
                recurrent,
                op.inputs[_BIASES + number],
                fp.quantised_multiplier(scale_of(source) * scale_of(graph.tensors[inner]) / _GATE_SCALE),
                fp.quantised_multiplier(scale_of(hidden) * scale_of(graph.tensors[recurrent]) / _GATE_SCALE),
            )
        )
    power = round(np.log2(scale_of(cell)))
    shift = 15 + power - 3
    clip = float(op.options.values[1])  # type: ignore[union-attr]
    steps = min(round(clip / scale_of(cell)), _HALF - 1) if clip > 0 else 0
    return Cell(
        tuple(gates),
        fp.quantised_multiplier(2.0**-15),
        fp.quantised_multiplier(2.0**-30 / scale_of(cell)),
        fp.quantised_multiplier(2.0**-30 / scale_of(hidden)),
        3 if shift < 0 else 3 << shift,
        max(0, -shift),
        steps,
    )


def lstm(graph: Graph, op: Op, operands: list[np.ndarray | None], states: dict[int, np.ndarray]) -> np.ndarray:
    """One sequence; hidden state and cell stay for the next one."""
    source, hidden, result = (graph.tensors[i] for i in (op.inputs[0], op.inputs[OUTPUT_STATE], op.outputs[0]))
    x, cell = operands[0], cell_of(graph, op)
    assert x is not None
    steps = (x.astype(np.int64) - zero_point_of(source)).reshape(-1, x.shape[-1])
    held = states[op.inputs[OUTPUT_STATE]].astype(np.int64).reshape(-1)
    content = states[op.inputs[CELL_STATE]].astype(np.int64).reshape(-1)
    found = []
    for step in steps:
        values = [_gate(graph, gate, step, held - zero_point_of(hidden)) for gate in cell.gates]
        enters, forgets, gives = (sigmoid_int16(values[number]) for number in (0, 1, 3))
        kept = fp.saturated(_times(forgets, content, cell.forget_factor), 16)
        added = fp.saturated(_times(enters, tanh_int16(values[2]), cell.input_factor), 16)
        content = fp.saturated(kept + added, 16)
        if cell.cell_clip:
            content = np.clip(content, -cell.cell_clip, cell.cell_clip)
        shown = tanh_int16(content, cell.tanh_multiplier, cell.tanh_shift)
        held = np.clip(_times(gives, shown, cell.output_factor) + zero_point_of(hidden), -128, 127)
        found.append(held)
    states[op.inputs[OUTPUT_STATE]] = held.astype(np.int8).reshape(hidden.shape)
    states[op.inputs[CELL_STATE]] = content.astype(np.int16).reshape(states[op.inputs[CELL_STATE]].shape)
    return np.array(found).astype(np.int8).reshape(result.shape)


def _gate(graph: Graph, gate: Gate, step: np.ndarray, held: np.ndarray) -> np.ndarray:
    inner, recurrent, bias = (graph.tensors[i].data for i in (gate.input_weights, gate.recurrent_weights, gate.bias))
    assert inner is not None and recurrent is not None and bias is not None
    first = fp.rescale(inner.astype(np.int64) @ step + bias, gate.input_factor.mantissa, gate.input_factor.shift)
    second = recurrent.astype(np.int64) @ held
    second = fp.rescale(second, gate.recurrent_factor.mantissa, gate.recurrent_factor.shift)
    return fp.saturated(fp.saturated(first, 16) + fp.saturated(second, 16), 16)


def _times(first: np.ndarray, second: np.ndarray, factor: fp.Multiplier) -> np.ndarray:
    return fp.rescale(first * second, factor.mantissa, factor.shift)
