"""Each operator of an int8 Graph as a call of a portable firmware kernel; refuses, by name, what has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
    constant_pair_call,
    extreme_call,
    lookup_call,
    mul_call,
    prelu_call,
    quotient_call,
    squared_difference_call,
    sub_call,
)
from stages.firmware.kernels.movement import move_call
from stages.firmware.kernels.rare import (
    batch_matmul_call,
    best_index_call,
    l2_normalise_call,
    lstm_call,
    reduce_call,
    resize_bilinear_call,
    sum_call,
    svdf_call,
    transpose_conv_call,
)
from stages.firmware.kernels.shape import concatenation_call, mean_call, pad_call
from stages.firmware.kernels.state import assign_call, read_call
from stages.firmware.kernels.wide import WIDE_COMPILERS
from stages.graph.arithmetic.int8_curves import CURVES
from stages.graph.arithmetic.int16_reference import is_wide
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
    "RESIZE_BILINEAR": resize_bilinear_call,
    "SUM": sum_call,
    "REDUCE_MAX": reduce_call,
    "REDUCE_MIN": reduce_call,
    "ARG_MAX": best_index_call,
    "ARG_MIN": best_index_call,
    "L2_NORMALIZATION": l2_normalise_call,
    "TRANSPOSE_CONV": transpose_conv_call,
    "BATCH_MATMUL": batch_matmul_call,
    "SVDF": svdf_call,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm_call,
    "READ_VARIABLE": read_call,
    "ASSIGN_VARIABLE": assign_call,
}
_BYTES = {"QUANTIZE": ("int8", "uint8"), "ARG_MAX": ("int8", "int32"), "ARG_MIN": ("int8", "int32")}

_ONE_PICTURE = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D", "TRANSPOSE_CONV"}) | {
    "RESIZE_BILINEAR"
}


def kernel_call(graph: Graph, index: int) -> KernelCall:
    """Operator `index` of the graph."""
    op = graph.ops[index]
    wide = is_wide(graph, op)
    compile_op = (WIDE_COMPILERS if wide else _COMPILERS).get(op.kind)
    if compile_op is None:
        raise StageError(
            f"firmware: {op.kind} ({op.name}) has no kernel{' for int16' if wide else ''}, "
            f"needed one of {', '.join(sorted(WIDE_COMPILERS if wide else _COMPILERS))}"
        )
    for tensor in (graph.tensors[i] for i in (*graph.activations_of(op), *op.outputs)):
        if tensor.dtype not in (("int8", "int16") if wide else _BYTES.get(op.kind, ("int8",))):
            found = f"{tensor.dtype} of shape {tensor.shape}"
            raise StageError(f"firmware: {op.kind} ({op.name}): tensor {tensor.name} is {found}, needed int8")
    name = f"op_{index}"
    if batch_of(graph, op) > 1:
        return _one_by_one(graph, op, compile_op, name)
    return (None if wide else constant_pair_call(graph, op, name)) or compile_op(graph, op, name)


def batch_of(graph: Graph, op: Op) -> int:
    """How many pictures an op goes over whose kernel takes one."""
    shape = graph.tensors[op.outputs[0]].shape
    return shape[0] if op.kind in _ONE_PICTURE and len(shape) == 4 else 1


def _one_by_one(graph: Graph, op: Op, compile_op: Callable[[Graph, Op, str], KernelCall], name: str) -> KernelCall:
    """A call for each picture of a batch; its name says so, since no overlap is known for all of them together."""
    tensors = list(graph.tensors)
    for index in (op.inputs[0], op.outputs[0]):
        tensors[index] = replace(tensors[index], shape=(1, *tensors[index].shape[1:]))
    one = compile_op(replace(graph, tensors=tuple(tensors)), op, name)
    sizes = [tensors[index].nbytes for index in (op.inputs[0], op.outputs[0])]
    calls = [
        one.call.replace("{0}", f"{{0}} + {n * sizes[0]}").replace("{1}", f"{{1}} + {n * sizes[1]}")
        for n in range(batch_of(graph, op))
    ]
    return replace(one, kernel=f"{one.kernel} of each picture", call="\n    ".join(calls))
