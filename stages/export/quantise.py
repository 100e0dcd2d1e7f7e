"""The float graph of qat.pt becomes the int8 graph: weights and biases rounded to their grids, activations typed int8.

Weights: int8, -127 ... 127, on the grid that fine-tuning used. Biases: int32 on the grid s_in * s_w, zero point 0, as
the kernels add them to their sums. Refuses a graph with a tensor that has no grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch

from pipeline.errors import StageError
from stages.graph.checks.op_check import check_graph
from stages.graph.graph import WEIGHTED, Graph, Op, Quantisation, Tensor
from stages.graph.record import graph_from_record

_WEIGHT_LIMIT = 127
_INT32_LIMIT = 2**31 - 1


@dataclass(frozen=True, eq=False)
class QatResult:
    """What qat.pt holds."""

    graph: Graph  # float weights, a grid on every tensor
    float_classes: np.ndarray  # of each test sample
    fake_quant_classes: np.ndarray


def load_qat(path: Path) -> QatResult:
    """Read qat.pt."""
    try:
        record = torch.load(path, weights_only=True)
        classes = record["test_classes"]
        graph = graph_from_record(record["graph"])
        return QatResult(graph, classes["float"].numpy(), classes["fake_quant"].numpy())
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StageError(f"{path}: cannot be read ({reason}); run qat again") from error


def int8_graph(graph: Graph) -> Graph:
    """The graph as the device runs it."""
    tensors = [_activation(tensor) for tensor in graph.tensors]
    for op in graph.ops:
        if op.kind in WEIGHTED:
            weights, bias = (graph.tensors[index] for index in op.inputs[1:3])
            tensors[op.inputs[1]] = _weights(weights)
            tensors[op.inputs[2]] = _bias(op, bias, weights, graph.tensors[op.inputs[0]])
    made = replace(graph, tensors=tuple(tensors))
    check_graph(made)
    return made


def _activation(tensor: Tensor) -> Tensor:
    is_float = tensor.dtype == "float32" and tensor.data is None
    if is_float and tensor.quantisation is None:
        raise StageError(f"tensor {tensor.name}: has no int8 grid; run qat again")
    return replace(tensor, dtype="int8") if is_float else tensor


def _grid(tensor: Tensor) -> Quantisation:
    if tensor.quantisation is None:
        raise StageError(f"tensor {tensor.name}: has no int8 grid; run qat again")
    return tensor.quantisation


def _weights(tensor: Tensor) -> Tensor:
    grid = _grid(tensor)
    assert tensor.data is not None
    along = [1] * tensor.data.ndim
    along[grid.axis] = -1
    # In single precision, as fine-tuning divided: a weight on a half goes to the same side.
    scale = np.array(grid.scale, np.float32).reshape(along)
    rounded = np.clip(np.round(tensor.data.astype(np.float32) / scale), -_WEIGHT_LIMIT, _WEIGHT_LIMIT)
    return replace(tensor, dtype="int8", data=rounded.astype(np.int8))


def _bias(op: Op, bias: Tensor, weights: Tensor, source: Tensor) -> Tensor:
    assert bias.data is not None
    steps = np.array(_grid(weights).scale, np.float64) * np.float64(np.float32(_grid(source).scale[0]))
    rounded = np.round(bias.data.astype(np.float64) / steps)
    if np.abs(rounded).max() > _INT32_LIMIT:
        raise StageError(f"{op.title}: a bias of {np.abs(rounded).max():.3g} steps does not fit int32")
    grid = Quantisation(tuple(float(np.float32(step)) for step in steps), (0,) * len(steps))
    return replace(bias, dtype="int32", quantisation=grid, data=rounded.astype(np.int32))
