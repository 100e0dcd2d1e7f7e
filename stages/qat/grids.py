"""The int8 grids of activations: which tensors share one, how it is chosen, and what an activation leaves of it.

Pooling, padding, reshape and a ReLU6 of its own stay on their input's grid and a concatenation has one for all its
operands and its result, because their kernels do not rescale; a sigmoid's grid is prescribed. Every other tensor has a
grid of its own.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from torch import Tensor

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_pointwise import activation_range
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.arithmetic.torch_kernels import activated
from stages.graph.graph import Graph, NoOptions, Op, Quantisation
from stages.graph.graph import Tensor as GraphTensor

KEEPS_GRID = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE", "PAD", "RELU6"})
PROBABILITY_GRID = Quantisation((1 / 256,), (-128,))  # prescribed by TensorFlow Lite for SOFTMAX and LOGISTIC
_CLIP_CANDIDATES = np.linspace(0.6, 1.0, 21)  # shares of the observed range that calibration tries
_LARGEST_RANGE = 1e30  # beyond it products of scales leave single precision
_CALIBRATION_VALUES = 1 << 17  # values of a tensor that are looked at, evenly spaced; bounds the time


def grid_owners(graph: Graph) -> dict[int, int]:
    """For every quantised activation the one whose grid it uses: the first of those that share it."""
    owners = {index: index for index in graph.inputs}
    for op in graph.ops:
        if op.kind == "SOFTMAX":
            continue
        result = op.outputs[0]
        owners[result] = owners[op.inputs[0]] if op.kind in KEEPS_GRID else result
        if op.kind == "CONCATENATION":
            merged = {owners[index] for index in (*op.inputs, result)}
            owners = {index: min(merged) if owner in merged else owner for index, owner in owners.items()}
    return owners


def grid_sources(graph: Graph, owners: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """For every owner the tensors whose values decide on the grid: those that are computed, not copied."""
    copied = {op.outputs[0] for op in graph.ops if op.kind in KEEPS_GRID | {"CONCATENATION"}}
    sources: dict[int, tuple[int, ...]] = {owner: () for owner in owners.values()}
    for index, owner in owners.items():
        if index not in copied:
            sources[owner] += (index,)
    for op in graph.ops:
        if op.kind == "LOGISTIC" and len(sources[owners[op.outputs[0]]]) > 1:
            raise StageError(f"{op.kind} {op.name}: a sigmoid is concatenated, needed an op that may choose its grid")
    return sources


def calibrated_grid(x: Tensor, activation: str, percentile: float | None = None) -> tuple[float, int]:
    """The (scale, zero point) with the least squared error on these values; the range may be clipped to get it.

    With a percentile the range is that of the values between it and its mirror image, whatever the error.
    """
    sample = sampled(activated(x, activation))
    lowest, highest = min(0.0, float(sample.min())), max(0.0, float(sample.max()))
    if not highest - lowest < _LARGEST_RANGE:
        raise StageError(
            f"qat: activations from {lowest:.3g} to {highest:.3g} have no int8 grid; lower qat.learning_rate"
        )
    if lowest == highest:
        return 1.0, -128 if activation != "none" else 0
    if percentile is not None:
        ends = np.percentile(sample, [100 - percentile, percentile])
        inner = min(0.0, float(ends[0])), max(0.0, float(ends[1]))
        return _grid(*(inner if inner[0] < inner[1] else (lowest, highest)))
    grids = [_grid(lowest * share, highest * share) for share in _CLIP_CANDIDATES]
    return min(grids, key=lambda grid: _squared_error(sample, *grid))


def sampled(x: Tensor) -> np.ndarray:
    """Evenly spaced values of a tensor, not too many."""
    flat = x.flatten()
    return flat[:: max(1, len(flat) // _CALIBRATION_VALUES)].double().cpu().numpy()


def _grid(lowest: float, highest: float) -> tuple[float, int]:
    scale = float(np.float32((highest - lowest) / 255))
    return scale, int(np.clip(round(-128 - lowest / scale), -128, 127))


def _squared_error(values: np.ndarray, scale: float, zero_point: int) -> float:
    rounded = np.clip(np.round(values / scale), -128 - zero_point, 127 - zero_point) * scale
    return float(np.square(rounded - values).sum())


@lru_cache(maxsize=4096)
def step_range(scale: float, zero_point: int, activation: str) -> tuple[int, int]:
    """The lowest and highest step from zero that a fused activation leaves."""
    tensor = GraphTensor("", (1,), "int8", Quantisation((scale,), (zero_point,)))
    lowest, highest = activation_range(tensor, activation)
    return lowest - zero_point, highest - zero_point


@lru_cache(maxsize=1024)
def step_table(kind: str, source: Quantisation, result: Quantisation) -> np.ndarray:
    """What the device makes of each int8 value -128 ... 127, in steps from zero: a kernel of one operand in full."""
    values = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 1, 256)
    tensors = tuple(GraphTensor(name, values.shape, "int8", grid) for name, grid in (("x", source), ("y", result)))
    graph = Graph(tensors, (Op(kind, "y", (0,), (1,), NoOptions()),), (0,), (1,))
    return run_graph(graph, values)[1].reshape(256).astype(np.float32) - result.zero_point[0]
