"""Run a float Graph op by op, without any rounding: what an int8 graph should have computed.

Values come and go NHWC, many samples at once. Refuses ops that have no float kernel here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import StageError
from stages.graph.arithmetic import torch_kernels as kernels
from stages.graph.graph import WEIGHTED, Graph, Op, SoftmaxOptions

_UNARY = ("LOGISTIC", "HARD_SWISH", "RELU", "RELU6")


def run_float(graph: Graph, inputs: np.ndarray) -> dict[int, np.ndarray]:
    """Every computed tensor for `inputs` (N, H, W, C), and the inputs themselves."""
    return {index: value for index, value in float_values(graph, inputs)}


def float_values(graph: Graph, inputs: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The same one by one, in the order of the ops; what no later op reads is forgotten."""
    last_use = {index: number for number, op in enumerate(graph.ops) for index in op.inputs}
    values = {graph.inputs[0]: _nchw(torch.from_numpy(np.array(inputs, np.float32)))}
    yield graph.inputs[0], np.asarray(inputs, np.float32)
    for number, op in enumerate(graph.ops):
        with torch.no_grad():
            value = _computed(graph, op, [_operand(graph, op, index, values) for index in op.inputs])
        values[op.outputs[0]] = value
        for index in op.inputs:
            if last_use[index] == number:
                values.pop(index, None)
        yield op.outputs[0], (value.permute(0, 2, 3, 1) if value.dim() == 4 else value).numpy()


def float_op(graph: Graph, op: Op, values: dict[int, np.ndarray]) -> np.ndarray:
    """One op on given activations (N first)."""
    operands = {index: _nchw(torch.from_numpy(value)) for index, value in values.items()}
    with torch.no_grad():
        result = _computed(graph, op, [_operand(graph, op, index, operands) for index in op.inputs])
    return (result.permute(0, 2, 3, 1) if result.dim() == 4 else result).numpy()


def _operand(graph: Graph, op: Op, index: int, values: dict[int, Tensor]) -> Tensor | None:
    if index < 0:
        return None
    data = graph.tensors[index].data
    if data is None:
        return values[index]
    if op.kind in WEIGHTED:
        return torch.from_numpy(kernels.to_torch_layout(op.kind, data) if index == op.inputs[1] else data.copy())
    return _nchw(torch.from_numpy(data.copy()))


def _computed(graph: Graph, op: Op, operands: list[Tensor | None]) -> Tensor:
    x = operands[0]
    assert x is not None
    result = _plain(graph, op, x, operands)
    return kernels.activated(result, getattr(op.options, "activation", "none"))


def _plain(graph: Graph, op: Op, x: Tensor, operands: list[Tensor | None]) -> Tensor:
    if op.kind in WEIGHTED:
        weight = operands[1]
        assert weight is not None
        return kernels.weighted(op, x, weight, operands[2] if len(operands) > 2 else None)
    if op.kind == "ADD":
        return x + operands[1]
    if op.kind == "MUL":
        return x * operands[1]
    if op.kind == "AVERAGE_POOL_2D":
        sums, counts = kernels.pooled_sums(op, x)
        return sums / counts
    if op.kind == "MAX_POOL_2D":
        return kernels.max_pooled(op, x)
    if op.kind == "MEAN":
        sums, count = kernels.summed(graph, op, x)
        return sums / count
    if op.kind == "CONCATENATION":
        return kernels.concatenated(op, [part for part in operands if part is not None])
    if op.kind == "PAD":
        return kernels.padded(graph, op, x)
    if op.kind == "RESHAPE":
        return kernels.reshaped(graph, op, x)
    if op.kind == "SOFTMAX":
        assert isinstance(op.options, SoftmaxOptions)
        return (x * op.options.beta).softmax(1 if x.dim() == 4 else -1)
    if op.kind in _UNARY:
        return kernels.unary(op.kind, x)
    raise StageError(f"{op.title}: has no float kernel here")


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x
