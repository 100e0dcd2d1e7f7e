"""ADD from tables: what each of the 256 values of an operand is on the common scale, computed here instead of there."""

from __future__ import annotations

import numpy as np

from stages.firmware.c_text import c_array, c_struct
from stages.firmware.kernel_calls import ADD_HEADROOM_BITS, KernelCall, add_multipliers
from stages.firmware.kernel_parameters import PARAMETER_BYTES, output_range, zero_point_of
from stages.graph.fixed_point import rescale
from stages.graph.graph import ActivationOptions, Graph, Op

_MOST_RIGHT_SHIFT = 22


def add_call(graph: Graph, op: Op, name: str) -> KernelCall | None:
    """None where the output's scaling is not a shift to the right."""
    assert isinstance(op.options, ActivationOptions)
    lifts, to_output = add_multipliers(graph, op)
    right = -to_output.shift
    if not 1 <= right <= _MOST_RIGHT_SHIFT:
        return None
    values = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)  # in the order of their bytes
    tables = []
    for index, lift in zip(op.inputs, lifts, strict=True):
        wide = (values - zero_point_of(graph.tensors[index])) << ADD_HEADROOM_BITS
        tables.append(2 * rescale(wide, lift.mantissa, lift.shift))
    ends = output_range(graph.tensors[op.outputs[0]], op.options.activation)
    params = {
        "lifted": [f"{name}_first", f"{name}_second"],
        "multiplier": to_output.mantissa,
        "addend": (1 << right >> 1) + (ends["zero_point"] << right),
        "right": right,
        "lowest": ends["lowest"],
        "highest": ends["highest"],
        "elements": graph.tensors[op.outputs[0]].elements,
    }
    arrays = "".join(
        c_array("int32_t", f"{name}_{which}", table, f"the {which} operand by its byte, on the common scale, twice")
        for which, table in zip(("first", "second"), tables, strict=True)
    )
    return KernelCall(
        kernel="fast_add",
        call=f"fast_add(&{name}, {{0}}, {{1}}, {{2}});",
        constants=arrays + c_struct("fast_add", name, params),
        constant_bytes=sum(table.size * 4 for table in tables) + PARAMETER_BYTES,
        header="kernels/add.h",
        activations=(*op.inputs, op.outputs[0]),
    )
