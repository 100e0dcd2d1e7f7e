"""Operators that look at one element at a time as calls of portable kernels: ADD, MUL, and all functions of one int8.

A function of one int8 has 256 values, computed here with the reference's arithmetic; the device looks them up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipeline.errors import StageError
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import PARAMETER_BYTES, multiplier_for, output_range, scaling_members
from stages.graph.arithmetic.fixed_point import Multiplier
from stages.graph.arithmetic.int8_curves import CURVES, PAIRS, SQUARE_HEADROOM_BITS
from stages.graph.arithmetic.int8_pointwise import KERNELS, scale_of, zero_point_of
from stages.graph.graph import ActivationOptions, Graph, Op

ADD_HEADROOM_BITS = 20
_BROADCAST_AXES = 4  # of boards/firmware/kernels/inner/broadcast.h
_PAIRS_HEADER = "kernels/more/pairs.h"
_OF_TWO = {"ADD": KERNELS["ADD"], "MUL": KERNELS["MUL"], **PAIRS}
EVERY_INT8 = np.arange(256, dtype=np.uint8).view(np.int8)  # in the order of their bytes


def lookup_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """RELU, LOGISTIC, TANH and all others of one operand, QUANTIZE also from and to uint8."""
    every = EVERY_INT8.view(graph.tensors[op.inputs[0]].dtype)
    return _from_table(graph, op, name, {**KERNELS, **CURVES}[op.kind](graph, op, every).view(np.int8))


def constant_pair_call(graph: Graph, op: Op, name: str) -> KernelCall | None:
    """A function of one operand, too: an operator of two, of which the other is one number, or many equal ones."""
    sources, result = list(graph.activations_of(op)), graph.tensors[op.outputs[0]]
    if op.kind not in _OF_TWO or len(sources) != 1 or graph.tensors[sources[0]].elements != result.elements:
        return None
    numbers = {index: np.unique(data) for index in op.inputs if (data := graph.tensors[index].data) is not None}
    if any(number.size != 1 for number in numbers.values()):
        return None
    every = EVERY_INT8.reshape(-1, *(1,) * (len(result.shape) - 1))
    operands = (numbers.get(index, every) for index in op.inputs)
    return _from_table(graph, op, name, _OF_TWO[op.kind](graph, op, *operands).reshape(-1))


def _from_table(graph: Graph, op: Op, name: str, table: np.ndarray) -> KernelCall:
    return KernelCall(
        kernel="lookup",
        call=f"lookup({name}_table, {{0}}, {graph.tensors[op.outputs[0]].elements}, {{1}});",
        constants=c_array("int8_t", f"{name}_table", table, f"{op.kind} by the byte of the input"),
        constant_bytes=table.size,
        header="kernels/lookup.h",
        activations=(*graph.activations_of(op), op.outputs[0]),
    )


def add_call(graph: Graph, op: Op, name: str) -> KernelCall:
    _, to_output = add_multipliers(graph, op)
    return _binary(graph, op, name, {"operands": add_operands(graph, op)}, to_output)


def mul_call(graph: Graph, op: Op, name: str) -> KernelCall:
    operands, result = [graph.tensors[i] for i in op.inputs], graph.tensors[op.outputs[0]]
    factor = scale_of(operands[0]) * scale_of(operands[1]) / scale_of(result)
    zero_points = [zero_point_of(tensor) for tensor in operands]
    return _binary(graph, op, name, {"zero_points": zero_points}, multiplier_for(factor, op))


def sub_call(graph: Graph, op: Op, name: str) -> KernelCall:
    _, to_output = add_multipliers(graph, op)
    return _binary(graph, op, name, {"operands": add_operands(graph, op)}, to_output, ("sub", "add"))


def squared_difference_call(graph: Graph, op: Op, name: str) -> KernelCall:
    twice_largest = 2 * max(scale_of(graph.tensors[i]) for i in op.inputs)
    factor = twice_largest**2 / ((1 << 2 * SQUARE_HEADROOM_BITS) * scale_of(graph.tensors[op.outputs[0]]))
    operands: dict[str, object] = {"operands": add_operands(graph, op)}
    return _binary(graph, op, name, operands, multiplier_for(factor, op), ("squared_difference", "add"))


def quotient_call(graph: Graph, op: Op, name: str) -> KernelCall:
    first, second, result = (graph.tensors[i] for i in (*op.inputs, op.outputs[0]))
    factor = scale_of(first) / (scale_of(second) * scale_of(result))
    operands: dict[str, object] = {"zero_points": [zero_point_of(first), zero_point_of(second)]}
    return _binary(graph, op, name, operands, multiplier_for(factor, op), ("quotient", "mul"))


def prelu_call(graph: Graph, op: Op, name: str) -> KernelCall:
    first, second, result = (graph.tensors[i] for i in (*op.inputs, op.outputs[0]))
    scales = [np.float32(scale_of(tensor)) for tensor in (first, second, result)]
    slope = multiplier_for(float(scales[0] * scales[1] / scales[2]), op)
    operands: dict[str, object] = {"zero_points": [zero_point_of(first), zero_point_of(second)]}
    operands |= {f"slope_{key}": value for key, value in scaling_members(slope).items()}
    return _binary(graph, op, name, operands, multiplier_for(float(scales[0] / scales[2]), op), ("prelu", "prelu"))


def extreme_call(graph: Graph, op: Op, name: str) -> KernelCall:
    """MAXIMUM and MINIMUM."""
    constants = c_struct("extreme", name, {"broadcast": broadcast_members(graph, op)})
    return elementwise_call(graph, op, name, kernel=op.kind.lower(), header=_PAIRS_HEADER, constants=constants)


def _binary(
    graph: Graph,
    op: Op,
    name: str,
    operands: dict[str, object],
    to_output: Multiplier,
    names: tuple[str, str] | None = None,
) -> KernelCall:
    """Operands that may be broadcast; `names` of kernel and structure where they are not those of ADD or MUL."""
    activation = op.options.activation if isinstance(op.options, ActivationOptions) else "none"
    params = {
        **operands,
        **scaling_members(to_output),
        "range": output_range(graph.tensors[op.outputs[0]], activation),
        "broadcast": broadcast_members(graph, op),
    }
    kernel, struct = names or (op.kind.lower(), op.kind.lower())
    constants = c_struct(struct, name, params)
    header = _PAIRS_HEADER if names else f"kernels/{kernel}.h"
    return elementwise_call(graph, op, name, kernel=kernel, header=header, constants=constants)


def elementwise_call(graph: Graph, op: Op, name: str, *, kernel: str, header: str, constants: str) -> KernelCall:
    """kernel(&parameters, first, second, output), where an operand may be a constant."""
    places, arrays, stored = operand_places(graph, op, name)
    activations = tuple(graph.activations_of(op))
    return KernelCall(
        kernel=kernel,
        call=f"{kernel}(&{name}, {', '.join(places)}, {{{len(activations)}}});",
        constants=arrays + constants,
        constant_bytes=stored + PARAMETER_BYTES,
        header=header,
        activations=(*activations, op.outputs[0]),
    )


def operand_places(graph: Graph, op: Op, name: str) -> tuple[list[str], str, int]:
    """Each operand in a call, the arrays of those that are constants, and the bytes of these."""
    places, arrays, stored, activations = [], "", 0, 0
    for number, index in enumerate(op.inputs):
        data = graph.tensors[index].data
        if data is None:
            places.append(f"{{{activations}}}")
            activations += 1
            continue
        places.append(f"{name}_operand_{number}")
        arrays += c_array(f"{data.dtype}_t", places[-1], data, f"operand {number}, a constant")
        stored += data.nbytes
    return places, arrays, stored


def add_multipliers(graph: Graph, op: Op) -> tuple[list[Multiplier], Multiplier]:
    """Of each operand to the common scale, and from there to the output's."""
    scales = [scale_of(graph.tensors[i]) for i in op.inputs]
    twice_largest = 2 * max(scales)
    result = scale_of(graph.tensors[op.outputs[0]])
    to_output = multiplier_for(twice_largest / ((1 << ADD_HEADROOM_BITS) * result), op)
    return [multiplier_for(scale / twice_largest, op) for scale in scales], to_output


def add_operands(graph: Graph, op: Op) -> list[dict[str, int]]:
    """What brings each operand of an ADD to the common scale."""
    lifts, _ = add_multipliers(graph, op)
    return [
        {"zero_point": zero_point_of(graph.tensors[index]), "multiplier": lift.mantissa, "right": -lift.shift}
        for index, lift in zip(op.inputs, lifts, strict=True)
    ]


def broadcast_members(graph: Graph, op: Op) -> dict[str, object]:
    """Members of struct broadcast: neighbouring axes along which both operands do the same become one."""
    result = graph.tensors[op.outputs[0]].shape
    shapes = [_aligned(graph.tensors[index].shape, len(result)) for index in op.inputs]
    axes: list[tuple[int, tuple[bool, ...]]] = []  # size, and which operands run along it
    for size, *sides in zip(result, *shapes, strict=True):
        runs = tuple(side != 1 for side in sides)
        if size == 1:
            continue
        if axes and axes[-1][1] == runs:
            axes[-1] = (axes[-1][0] * size, runs)
        else:
            axes.append((size, runs))
    if len(axes) > _BROADCAST_AXES:
        raise StageError(
            f"firmware: {op.kind} ({op.name}) of {' and '.join(map(str, shapes))} repeats them along too many axes, "
            f"needed at most {_BROADCAST_AXES} after joining neighbours"
        )
    axes = [(1, (False, False))] * (_BROADCAST_AXES - len(axes)) + axes
    steps = [
        [
            math.prod(size for size, runs in axes[at + 1 :] if runs[operand]) if own[operand] else 0
            for at, (_, own) in enumerate(axes)
        ]
        for operand in (0, 1)
    ]
    return {"sizes": [size for size, _ in axes], "steps": steps}


def _aligned(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)
