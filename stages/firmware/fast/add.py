"""ADD from tables: what each of the 256 values of an operand is on the common scale.

The tables are computed here, or, where flash is short, by the device before each use: 2 KB of flash against some 10,000
instructions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stages.firmware.assembly.elementwise import add_function, add_name
from stages.firmware.fast.dot import Weights
from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.elementwise import (
    ADD_HEADROOM_BITS,
    EVERY_INT8,
    add_multipliers,
    add_operands,
    broadcast_members,
    elementwise_call,
)
from stages.firmware.kernels.parameters import output_range
from stages.graph.arithmetic.fixed_point import rescale
from stages.graph.arithmetic.int8_pointwise import zero_point_of
from stages.graph.graph import ActivationOptions, Graph, Op

_MOST_RIGHT_SHIFT = 22
_TABLE_BYTES = 2 * 256 * 4


def add_call(graph: Graph, op: Op, name: str, stored: Weights) -> KernelCall | None:
    """None where the output's scaling is not a shift to the right, or an operand is repeated within its rows."""
    assert isinstance(op.options, ActivationOptions)
    result = graph.tensors[op.outputs[0]]
    repeats = any(graph.tensors[index].elements != result.elements for index in op.inputs)
    broadcast = broadcast_members(graph, op)
    if repeats and (stored == "small" or any(steps[-1] != 1 for steps in broadcast["steps"])):
        return None
    _, to_output = add_multipliers(graph, op)
    right = -to_output.shift
    if not 1 <= right <= _MOST_RIGHT_SHIFT:
        return None
    ends = output_range(result, op.options.activation)
    limits = (ends["lowest"], ends["highest"])
    loop = add_name(right, limits)
    params = {
        "multiplier": to_output.mantissa,
        "addend": (1 << right >> 1) + (ends["zero_point"] << right),
        "loop": loop,
        "right": right,
        "lowest": ends["lowest"],
        "highest": ends["highest"],
        "elements": broadcast["sizes"][-1] if repeats else result.elements,
    }
    declaration = f"fast_add_function {loop};\n"
    if stored == "small":
        constants = declaration + c_struct(
            "fast_add_filled", name, {"params": params, "operands": add_operands(graph, op)}
        )
        call = elementwise_call(
            graph, op, name, kernel="fast_add_filled", header="kernels/add.h", constants=constants, scratch=True
        )
        scratch = f"int32_t {name}[2][{len(EVERY_INT8)}];"
        call = replace(call, scratch=scratch, scratch_bytes=_TABLE_BYTES)
    else:
        kernel = "fast_add_rows" if repeats else "fast_add"
        members: dict[str, object] = {"lifted": [f"{name}_first", f"{name}_second"], **params}
        members = {"row": members, "broadcast": broadcast} if repeats else members
        constants = declaration + _tables(graph, op, name) + c_struct(kernel, name, members)
        call = elementwise_call(graph, op, name, kernel=kernel, header="kernels/add.h", constants=constants)
        call = replace(call, constant_bytes=call.constant_bytes + _TABLE_BYTES)
    return replace(call, assembly=((loop, add_function(right, limits)),))


def _tables(graph: Graph, op: Op, name: str) -> str:
    lifts, _ = add_multipliers(graph, op)
    arrays = ""
    for which, index, lift in zip(("first", "second"), op.inputs, lifts, strict=True):
        wide = (EVERY_INT8.astype(np.int64) - zero_point_of(graph.tensors[index])) << ADD_HEADROOM_BITS
        table = 2 * rescale(wide, lift.mantissa, lift.shift)
        title = f"the {which} operand by its byte, on the common scale, twice"
        arrays += c_array("int32_t", f"{name}_{which}", table, title)
    return arrays
