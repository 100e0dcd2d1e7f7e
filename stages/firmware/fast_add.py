"""ADD from tables: what each of the 256 values of an operand is on the common scale, computed here instead of there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stages.firmware.assembly.elementwise import add_function, add_name
from stages.firmware.c_text import c_array, c_struct
from stages.firmware.elementwise_calls import ADD_HEADROOM_BITS, EVERY_INT8, add_multipliers, elementwise_call
from stages.firmware.kernel_calls import KernelCall
from stages.firmware.kernel_parameters import output_range, zero_point_of
from stages.graph.fixed_point import rescale
from stages.graph.graph import ActivationOptions, Graph, Op

_MOST_RIGHT_SHIFT = 22


def add_call(graph: Graph, op: Op, name: str) -> KernelCall | None:
    """None where the output's scaling is not a shift to the right, or an operand has to be repeated."""
    assert isinstance(op.options, ActivationOptions)
    result = graph.tensors[op.outputs[0]]
    if any(graph.tensors[index].elements != result.elements for index in op.inputs):
        return None
    lifts, to_output = add_multipliers(graph, op)
    right = -to_output.shift
    if not 1 <= right <= _MOST_RIGHT_SHIFT:
        return None
    tables = []
    for index, lift in zip(op.inputs, lifts, strict=True):
        wide = (EVERY_INT8.astype(np.int64) - zero_point_of(graph.tensors[index])) << ADD_HEADROOM_BITS
        tables.append(2 * rescale(wide, lift.mantissa, lift.shift))
    ends = output_range(result, op.options.activation)
    limits = (ends["lowest"], ends["highest"])
    loop = add_name(right, limits)
    params = {
        "lifted": [f"{name}_first", f"{name}_second"],
        "multiplier": to_output.mantissa,
        "addend": (1 << right >> 1) + (ends["zero_point"] << right),
        "loop": loop,
        "right": right,
        "lowest": ends["lowest"],
        "highest": ends["highest"],
        "elements": result.elements,
    }
    arrays = "".join(
        c_array("int32_t", f"{name}_{which}", table, f"the {which} operand by its byte, on the common scale, twice")
        for which, table in zip(("first", "second"), tables, strict=True)
    )
    call = elementwise_call(
        graph,
        op,
        name,
        kernel="fast_add",
        header="kernels/add.h",
        constants=f"fast_add_function {loop};\n" + arrays + c_struct("fast_add", name, params),
    )
    stored = call.constant_bytes + sum(table.size * 4 for table in tables)
    return replace(call, constant_bytes=stored, assembly=((loop, add_function(right, limits)),))
