"""A Graph as plain values and torch tensors: what torch.save stores and torch.load(weights_only=True) reads.

Without its channel groups: nobody prunes a stored graph.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from pipeline.errors import StageError
from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    Graph,
    NoOptions,
    Op,
    PoolOptions,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)

_OPTIONS = {
    kind.__name__: kind
    for kind in (ConvOptions, PoolOptions, ActivationOptions, SoftmaxOptions, ConcatOptions, NoOptions)
}


def graph_to_record(graph: Graph) -> dict[str, Any]:
    """What `graph_from_record` reads back."""
    return {
        "tensors": [_tensor_to_record(tensor) for tensor in graph.tensors],
        "ops": [_op_to_record(op) for op in graph.ops],
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }


def graph_from_record(record: dict[str, Any]) -> Graph:
    """The graph of a record; StageError when it is none."""
    try:
        tensors = tuple(_tensor_from_record(entry) for entry in record["tensors"])
        ops = tuple(_op_from_record(entry) for entry in record["ops"])
        return Graph(tensors, ops, tuple(record["inputs"]), tuple(record["outputs"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise StageError(
            f"not a stored graph ({type(error).__name__}: {error}); run the step that wrote it again"
        ) from error


def _tensor_to_record(tensor: Tensor) -> dict[str, Any]:
    grid = tensor.quantisation
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "dtype": tensor.dtype,
        "quantisation": None if grid is None else (grid.scale, grid.zero_point, grid.axis),
        "data": None if tensor.data is None else torch.from_numpy(np.ascontiguousarray(tensor.data)),
    }


def _tensor_from_record(record: dict[str, Any]) -> Tensor:
    grid, data = record["quantisation"], record["data"]
    return Tensor(
        name=record["name"],
        shape=tuple(record["shape"]),
        dtype=record["dtype"],
        quantisation=None if grid is None else Quantisation(*grid),
        data=None if data is None else data.numpy(),
    )


def _op_to_record(op: Op) -> dict[str, Any]:
    options = {"type": type(op.options).__name__, **asdict(op.options)}
    return {"kind": op.kind, "name": op.name, "inputs": op.inputs, "outputs": op.outputs, "options": options}


def _op_from_record(record: dict[str, Any]) -> Op:
    options = dict(record["options"])
    made = _OPTIONS[options.pop("type")](**options)
    return Op(record["kind"], record["name"], tuple(record["inputs"]), tuple(record["outputs"]), made)
