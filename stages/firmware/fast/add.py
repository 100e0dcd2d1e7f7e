"""ADD and SUB as one linear function of their two operands, exact for each of the 65,536 pairs that they may have.

TensorFlow Lite Micro brings both operands to a common scale, adds, and rounds four times on the way. All of that is a
step function of a sum p * a + q * b; two products of 31 bits and one addend have the same steps, once p and q are a few
parts in 2^24 larger than the ratios of the scales, which sends exact halves away from zero. The addend is chosen here
within what all pairs allow; where they allow none, the portable kernel has to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stages.firmware.assembly.elementwise import add_function, add_name
from stages.firmware.kernels.c_text import c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.elementwise import (
    ADD_HEADROOM_BITS,
    add_multipliers,
    broadcast_members,
    elementwise_call,
)
from stages.firmware.kernels.parameters import output_range
from stages.graph.arithmetic.fixed_point import rescale
from stages.graph.arithmetic.int8_pointwise import scale_of, zero_point_of
from stages.graph.graph import ActivationOptions, Graph, Op

_EVERY = np.arange(-128, 128)
_STRETCHES = (0, 8, 16, 32, 64, 128, 256, 512)  # parts in 2^24
_MOST_RIGHT = 31


@dataclass(frozen=True)
class LinearSum:
    """y = (p * a / 2^8 + q * b / 2^8 + addend) >> right, each product rounded down, then limited."""

    multipliers: tuple[int, int]
    addend: int
    right: int


def add_call(graph: Graph, op: Op, name: str) -> KernelCall | None:
    """None where an operand is repeated within its rows, or no such function is exact."""
    activation = op.options.activation if isinstance(op.options, ActivationOptions) else "none"
    result = graph.tensors[op.outputs[0]]
    repeats = any(graph.tensors[index].elements != result.elements for index in op.inputs)
    broadcast = broadcast_members(graph, op)
    if repeats and any(steps[-1] != 1 for steps in broadcast["steps"]):
        return None
    ends = output_range(result, activation)
    limits = (ends["lowest"], ends["highest"])
    found = linear_sum(graph, op, limits)
    if found is None:
        return None
    loop = add_name(found.right, limits)
    params = {
        "multipliers": list(found.multipliers),
        "addend": found.addend,
        "loop": loop,
        "right": found.right,
        "lowest": limits[0],
        "highest": limits[1],
        "elements": broadcast["sizes"][-1] if repeats else result.elements,
    }
    kernel = "fast_add_rows" if repeats else "fast_add"
    members = {"row": params, "broadcast": broadcast} if repeats else params
    constants = f"fast_add_function {loop};\n" + c_struct(kernel, name, members)
    call = elementwise_call(graph, op, name, kernel=kernel, header="kernels/add.h", constants=constants)
    return replace(call, assembly=((loop, add_function(found.right, limits)),))


def linear_sum(graph: Graph, op: Op, limits: tuple[int, int]) -> LinearSum | None:
    """The function that gives what the reference gives, for every pair of operands."""
    first, second = (each.reshape(-1) for each in np.meshgrid(_EVERY, _EVERY, indexing="ij"))
    expected = np.clip(_reference(graph, op, first, second), *limits)
    scale = scale_of(graph.tensors[op.outputs[0]])
    p, q = (scale_of(graph.tensors[index]) / scale for index in op.inputs)
    for right, multipliers in _tries(p, -q if op.kind == "SUB" else q):
        total = (first * multipliers[0] >> 8) + (second * multipliers[1] >> 8)
        least = ((expected << right) - total)[expected > limits[0]].max(initial=-(2**31))
        most = ((expected + 1 << right) - 1 - total)[expected < limits[1]].min(initial=2**31 - 1)
        addend = int(least + most) // 2
        if least <= most and abs(addend) + np.abs(total).max() < 2**31:
            return LinearSum(multipliers, addend, right)
    return None


def _reference(graph: Graph, op: Op, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Not limited."""
    lifts, to_output = add_multipliers(graph, op)
    a, b = (
        rescale(values - zero_point_of(graph.tensors[index]) << ADD_HEADROOM_BITS, lift.mantissa, lift.shift)
        for values, index, lift in zip((first, second), op.inputs, lifts, strict=True)
    )
    total = a - b if op.kind == "SUB" else a + b
    return rescale(total, to_output.mantissa, to_output.shift) + zero_point_of(graph.tensors[op.outputs[0]])


def _tries(p: float, q: float) -> Iterator[tuple[int, tuple[int, int]]]:
    """As fine as 31 bits allow."""
    right = min(math.floor(30 - math.log2(160 * (abs(p) + abs(q)) + 300)), _MOST_RIGHT)
    if right < 1:
        return
    for stretch in _STRETCHES:
        for sign in (1, -1)[: 2 if stretch else 1]:
            factor = (1 + sign * stretch * 2.0**-24) * 2.0 ** (right + 8)
            if max(abs(p), abs(q)) * factor < 2**31 - 1:
                yield right, (round(p * factor), round(q * factor))
