"""Each operator of an int8 Graph as a call of a portable firmware kernel; refuses, by name, what has none."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.errors import StageError
from stages.firmware.kernels.calls import (
    KernelCall,
    convolution_call,
    depthwise_call,
    pool_call,
    product_call,
    reshape_call,
    softmax_call,
)
from stages.firmware.kernels.elementwise import (
    add_call,
    extreme_call,
    lookup_call,
    mul_call,
    prelu_call,
    quotient_call,
    squared_difference_call,
    sub_call,
)
from stages.firmware.kernels.movement import move_call
from stages.firmware.kernels.shape import concatenation_call, mean_call, pad_call
from stages.firmware.kernels.state import assign_call, read_call
from stages.graph.arithmetic.int8_curves import CURVES
from stages.graph.arithmetic.movement import MOVES
from stages.graph.graph import Graph, Op

_COMPILERS: dict[str, Callable[[Graph, Op, str], KernelCall]] = {
    "CONV_2D": convolution_call,
    "DEPTHWISE_CONV_2D": depthwise_call,
    "FULLY_CONNECTED": product_call,
    "AVERAGE_POOL_2D": pool_call,
    "MAX_POOL_2D": pool_call,
    "MEAN": mean_call,
    "ADD": add_call,
    "MUL": mul_call,
    "CONCATENATION": concatenation_call,
    "PAD": pad_call,
    "RESHAPE": reshape_call,
    "SOFTMAX": softmax_call,
    "LOGISTIC": lookup_call,
    "HARD_SWISH": lookup_call,
    "RELU": lookup_call,
    "RELU6": lookup_call,
    "QUANTIZE": lookup_call,
    **dict.fromkeys(CURVES, lookup_call),
    "SUB": sub_call,
    "MAXIMUM": extreme_call,
    "MINIMUM": extreme_call,
    "SQUARED_DIFFERENCE": squared_difference_call,
    "DIV": quotient_call,
    "PRELU": prelu_call,
    **dict.fromkeys(MOVES, move_call),
    "READ_VARIABLE": read_call,
    "ASSIGN_VARIABLE": assign_call,
}
_BYTES = {"QUANTIZE": ("int8", "uint8")}

_ONE_PICTURE = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"})


def kernel_call(graph: Graph, index: int) -> KernelCall:
    """Operator `index` of the graph."""
    op = graph.ops[index]
    compile_op = _COMPILERS.get(op.kind)
    if compile_op is None:
        raise StageError(
            f"firmware: {op.kind} ({op.name}) has no kernel, needed one of {', '.join(sorted(_COMPILERS))}"
        )
    for tensor in (graph.tensors[i] for i in (*graph.activations_of(op), *op.outputs)):
        is_batch = tensor.shape and tensor.shape[0] != 1 and len(tensor.shape) == 4 and op.kind in _ONE_PICTURE
        if tensor.dtype not in _BYTES.get(op.kind, ("int8",)) or is_batch:
            found = f"{tensor.dtype} of shape {tensor.shape}"
            raise StageError(
                f"firmware: {op.kind} ({op.name}): tensor {tensor.name} is {found}, needed int8 with batch 1"
            )
    return compile_op(graph, op, f"op_{index}")
