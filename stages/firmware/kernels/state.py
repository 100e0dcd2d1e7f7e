"""States, which last from one inference to the next: reading and assigning one as a copy.

The array of a state is called `state_N`, where N is the tensor; `model_source` defines it.
"""

from __future__ import annotations

from stages.firmware.kernels.calls import KernelCall
from stages.graph.graph import Graph, Op


def state_name(tensor: int) -> str:
    """In the generated C."""
    return f"state_{tensor}"


def read_call(graph: Graph, op: Op, _name: str) -> KernelCall:
    """READ_VARIABLE."""
    size = graph.tensors[op.inputs[0]].nbytes
    return KernelCall(
        kernel="copy",
        call=f"copy_rows({state_name(op.inputs[0])}, 1, {size}, {{0}}, {size});",
        header="kernels/copy.h",
        activations=(op.outputs[0],),
    )


def assign_call(graph: Graph, op: Op, _name: str) -> KernelCall:
    """ASSIGN_VARIABLE: its result is its operand under another name."""
    size = graph.tensors[op.inputs[1]].nbytes
    return KernelCall(
        kernel="copy",
        call=f"copy_rows({{0}}, 1, {size}, {state_name(op.inputs[1])}, {size});",
        header="kernels/copy.h",
        activations=(op.inputs[0],),
    )
