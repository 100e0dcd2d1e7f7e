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
from stages.firmware.kernels.elementwise import add_call, lookup_call, mul_call
from stages.firmware.kernels.shape import concatenation_call, mean_call, pad_call
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
}


def kernel_call(graph: Graph, index: int) -> KernelCall:
    """Operator `index` of the graph."""
    op = graph.ops[index]
    compile_op = _COMPILERS.get(op.kind)
    if compile_op is None:
        raise StageError(
            f"firmware: {op.kind} ({op.name}) has no kernel, needed one of {', '.join(sorted(_COMPILERS))}"
        )
    for tensor in (graph.tensors[i] for i in (*graph.activations_of(op), *op.outputs)):
        if tensor.dtype != "int8" or (tensor.shape and tensor.shape[0] != 1 and len(tensor.shape) == 4):
            found = f"{tensor.dtype} of shape {tensor.shape}"
            raise StageError(
                f"firmware: {op.kind} ({op.name}): tensor {tensor.name} is {found}, needed int8 with batch 1"
            )
    return compile_op(graph, op, f"op_{index}")
