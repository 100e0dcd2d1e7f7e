"""Run an int8 Graph on many inputs at once, fast, with the very bits of TensorFlow Lite Micro's reference kernels.

The engine of int8 accuracy on whole data sets. Values travel as float32 tensors that hold whole numbers, less their
zero point, so torch's float convolutions compute the exact sums: every partial sum stays below 2^24, which is proven
per layer from its weights. The runtime's two roundings are one floor in double precision, exactly. An operator without
a fast form here runs as in `int8_reference`, the slow and obvious oracle of this module; so does a whole network that
has a state or an operator that takes one sample at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor as Values

from pipeline.errors import StageError
from stages.graph.arithmetic import fixed_point as fp
from stages.graph.arithmetic.int8_pointwise import activation_range, zero_point_of
from stages.graph.arithmetic.int8_reference import rescaling_factors, run_graph, run_op, takes_batches
from stages.graph.arithmetic.torch_kernels import max_pooled, to_torch_layout, weighted
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Op, PoolOptions

BATCH = 32  # inputs at a time: intermediates stay within the cache
_EXACT = 2**24  # whole numbers below it are exact in float32
_LARGEST_INPUT = 255  # |int8 - zero point|
_LARGEST_SHIFT = 13  # to the right, up to which double precision is exact (see _Scaling)

_WITH_WEIGHTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_BY_VALUE = ("RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "QUANTIZE")
_BY_PAIR = ("ADD", "MUL")

_Kernel = Callable[[dict[int, Values]], Values]


class Rows(Protocol):
    """Inputs (N, ...) of a network, of which some are asked for at a time: an array, or what is read when needed."""

    def __len__(self) -> int: ...

    def __getitem__(self, chosen: slice) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class BatchNetwork:
    """A Graph of one input and one output made ready: weights as float tensors, factors per channel."""

    graph: Graph
    kernels: tuple[_Kernel, ...]  # none: the reference runs all of it
    last_reads: Mapping[int, Sequence[int]]  # op -> values that nobody needs behind it

    def __call__(self, inputs: Rows) -> np.ndarray:
        """The output (N, ...) of every input (N, ...), both as the file stores them."""
        if not self.kernels:
            return run_graph(self.graph, inputs[: len(inputs)], keep_all=False)[self.graph.outputs[0]]
        parts = [self._batch(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)]
        return np.concatenate(parts)

    def _batch(self, inputs: np.ndarray) -> np.ndarray:
        graph = self.graph
        (source,), (result,) = graph.inputs, graph.outputs
        with torch.inference_mode():
            values = {source: _centred(graph, source, inputs)}
            for number, (op, kernel) in enumerate(zip(graph.ops, self.kernels, strict=True)):
                values[op.outputs[0]] = kernel(values)
                for index in self.last_reads.get(number, ()):
                    del values[index]  # its memory is in the cache still, for what comes next
            return _stored(graph, result, values[result])


def batch_network(graph: Graph) -> BatchNetwork:
    """The network with its constants laid out for torch."""
    ends = (len(graph.inputs), len(graph.outputs))
    if ends != (1, 1):
        raise StageError(f"the network has {ends[0]} inputs and {ends[1]} outputs, needed one of each")
    if not takes_batches(graph) or any(graph.tensors[op.outputs[0]].quantisation is None for op in graph.ops):
        return BatchNetwork(graph, (), {})
    last = {index: number for number, op in enumerate(graph.ops) for index in graph.activations_of(op)}
    last_reads: dict[int, list[int]] = {}
    for index, number in last.items():
        if index not in graph.outputs:
            last_reads.setdefault(number, []).append(index)
    return BatchNetwork(graph, tuple(_kernel(graph, op) for op in graph.ops), last_reads)


def _kernel(graph: Graph, op: Op) -> _Kernel:
    is_computed = [index >= 0 and graph.tensors[index].data is None for index in op.inputs]
    touched = (*graph.activations_of(op), *op.outputs)
    if any(graph.tensors[index].dtype != "int8" for index in touched):
        return _reference_kernel(graph, op)
    is_map_of_rows = op.kind == "FULLY_CONNECTED" and any(len(graph.tensors[index].shape) == 4 for index in touched)
    if op.kind in _WITH_WEIGHTS and not any(is_computed[1:]) and not is_map_of_rows:
        return _weighted_kernel(graph, op) or _reference_kernel(graph, op)
    if op.kind in _BY_VALUE and is_computed == [True]:
        return _table_kernel(graph, op)
    if op.kind in _BY_PAIR and is_computed == [True, True] and _shapes(graph, *op.inputs).count(_shape(graph, op)) == 2:
        return _table_kernel(graph, op)
    if op.kind == "MAX_POOL_2D":
        return _max_pool_kernel(graph, op)
    return _reference_kernel(graph, op)


def _shapes(graph: Graph, *indices: int) -> list[tuple[int, ...]]:
    return [graph.tensors[index].shape for index in indices]


def _shape(graph: Graph, op: Op) -> tuple[int, ...]:
    return graph.tensors[op.outputs[0]].shape


def _table_kernel(graph: Graph, op: Op) -> _Kernel:
    """What depends on the value of one or two int8 elements alone, by a table that the reference fills."""
    every = np.arange(-128, 128, dtype=np.int8)
    grid = np.meshgrid(*[every] * len(op.inputs), indexing="ij")
    shape = (-1, *[1] * (len(_shape(graph, op)) - 1))
    table = torch.from_numpy(run_op(graph, op, *(part.reshape(shape) for part in grid)).reshape(-1).astype(np.float32))
    table -= zero_point_of(graph.tensors[op.outputs[0]])
    zero_points = [zero_point_of(graph.tensors[index]) for index in op.inputs]

    def kernel(values: dict[int, Values]) -> Values:
        number = torch.zeros((), dtype=torch.int32)
        for index, zero_point in zip(op.inputs, zero_points, strict=True):
            number = number * 256 + (values[index].to(torch.int32) + (zero_point + 128))
        return table[number]

    return kernel


def _max_pool_kernel(graph: Graph, op: Op) -> _Kernel:
    """The largest of a window; grids of input and output are the same."""
    assert isinstance(op.options, PoolOptions)
    result = graph.tensors[op.outputs[0]]
    low, high = (limit - zero_point_of(result) for limit in activation_range(result, op.options.activation))
    return lambda values: max_pooled(op, values[op.inputs[0]]).clamp_(low, high)


def _reference_kernel(graph: Graph, op: Op) -> _Kernel:
    """As the slow engine does it."""

    def kernel(values: dict[int, Values]) -> Values:
        operands = [
            _stored(graph, index, values[index])
            if index in values
            else None
            if index < 0
            else graph.tensors[index].data
            for index in op.inputs
        ]
        return _centred(graph, op.outputs[0], run_op(graph, op, *operands))

    return kernel


def _centred(graph: Graph, index: int, stored: np.ndarray) -> Values:
    """int8 or uint8 of the Graph -> float32 less the zero point, maps as NCHW in channels_last."""
    values = torch.from_numpy(stored.astype(np.float32))
    values -= zero_point_of(graph.tensors[index])
    return values.permute(0, 3, 1, 2) if values.dim() == 4 else values


def _stored(graph: Graph, index: int, values: Values) -> np.ndarray:
    """The way back."""
    ordered = values.permute(0, 2, 3, 1) if values.dim() == 4 else values
    dtype = torch.uint8 if graph.tensors[index].dtype == "uint8" else torch.int8
    return (ordered + zero_point_of(graph.tensors[index])).to(dtype).numpy()


def _weighted_kernel(graph: Graph, op: Op) -> _Kernel | None:
    """A convolution or fully connected layer; None where float32 could not be exact."""
    source, filters, result = (graph.tensors[index] for index in (*op.inputs[:2], op.outputs[0]))
    data = filters.data
    assert data is not None
    bias = graph.tensors[op.inputs[2]].data if len(op.inputs) > 2 and op.inputs[2] >= 0 else None
    axis = 3 if op.kind == "DEPTHWISE_CONV_2D" else 0
    channels = data.shape[axis]
    largest = np.abs(data.astype(np.int64)).sum(axis=tuple(i for i in range(data.ndim) if i != axis)) * _LARGEST_INPUT
    if bias is not None:
        largest = largest + np.abs(bias.astype(np.int64).reshape(-1))
    if largest.max(initial=0) >= _EXACT:
        return None
    weights = torch.from_numpy(to_torch_layout(op.kind, data.astype(np.float32)))
    if weights.dim() == 4:
        weights = weights.contiguous(memory_format=torch.channels_last)
    offsets = None if bias is None else torch.from_numpy(bias.astype(np.float32).reshape(-1))
    scaling = _Scaling.of(graph, op, channels, [*rescaling_factors(source, filters, result)])
    shape = result.shape[1:]

    def kernel(values: dict[int, Values]) -> Values:
        scaled = scaling(weighted(op, values[op.inputs[0]], weights, offsets))
        return scaled if scaled.dim() == 4 else scaled.reshape(-1, *shape)

    return kernel


@dataclass(frozen=True, eq=False)
class _Scaling:
    """Exact sums -> int8 values less their zero point, as the runtime rounds twice and clamps.

    The runtime computes h = floor((s m + 2^30) / 2^31), then floor((h + 2^(r-1) - [h < 0]) / 2^r). Floors of quotients
    nest, so that is floor(s m / 2^(31+r) + 1/2 + 2^-(r+1)), less 2^-r inside where s < 0: without a first rounding. In
    double precision it is exact as long as s m stays below 2^53, which it does where the result is within int8 and r at
    most 13; what lies beyond is clamped anyway. Other shifts are computed in integers.
    """

    mantissa: np.ndarray  # per channel
    shift: np.ndarray
    factors: Values  # mantissa * 2^(shift - 31); none of the following where integers are needed
    offsets: Values
    below_zero: Values | None  # to add where the sum is negative; None: nothing negative is left by the activation
    lowest: int
    highest: int

    @classmethod
    def of(cls, graph: Graph, op: Op, channels: int, factors: list[float]) -> _Scaling:
        assert isinstance(op.options, ConvOptions | ActivationOptions)
        result = graph.tensors[op.outputs[0]]
        low, high = (limit - zero_point_of(result) for limit in activation_range(result, op.options.activation))
        multipliers = [fp.quantised_multiplier(factor) for factor in factors] * (channels // len(factors))
        mantissa, shift = (
            np.array([getattr(multiplier, name) for multiplier in multipliers], np.int64)
            for name in ("mantissa", "shift")
        )
        step = np.where(shift < 0, 2.0**shift, 0.0)  # 2^-r; without a shift there is no second rounding
        below = torch.from_numpy(-step) if low < 0 else None
        real = mantissa * 2.0 ** (shift - 31)
        return cls(mantissa, shift, torch.from_numpy(real), torch.from_numpy(0.5 + step / 2), below, low, high)

    def __call__(self, sums: Values) -> Values:
        """Sums as maps or rows; a map in channels_last is walked through as it lies in memory."""
        rows = sums.permute(0, 2, 3, 1).reshape(-1, len(self.mantissa)) if sums.dim() == 4 else sums
        if self.shift.min(initial=0) < -_LARGEST_SHIFT or self.shift.max(initial=0) > 0:
            exact = fp.rescale(rows.numpy().astype(np.int64), self.mantissa, self.shift)
            scaled = torch.from_numpy(np.clip(exact, self.lowest, self.highest).astype(np.float32))
        else:
            precise = torch.addcmul(self.offsets, rows.double(), self.factors)
            if self.below_zero is not None:
                precise += torch.where(rows < 0, self.below_zero, 0.0)
            scaled = precise.floor_().clamp_(self.lowest, self.highest).float()
        if sums.dim() == 2:
            return scaled
        count, channels, height, width = sums.shape
        return scaled.reshape(count, height, width, channels).permute(0, 3, 1, 2)
