"""Channels that need not be computed: constant ones, and those that nobody reads.

A filter of zeros gives the same value everywhere, and so does a function of it: such constants are followed forwards. A
convolution or FULLY_CONNECTED takes a constant channel into its bias (bias + w * (value - zero point)); sums, and hence
every rounding and saturation after them, stay the same bit for bit. At a padded border the channel would count as its
zero point, so there it is only taken in where its value is that zero point, or its weights are zeros. A channel whose
readers all do without it is dropped, together with the channels it was made from one by one (depthwise convolutions,
pooling, elementwise operators): backwards, as the largest set that agrees with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from stages.graph.arithmetic.int8_pointwise import KERNELS, zero_point_of
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import ConcatOptions, ConvOptions, Graph, Op, Quantisation, Tensor
from stages.graph.padding import zero_pads

_WEIGHTED = frozenset({"CONV_2D", "FULLY_CONNECTED"})
_PAIRS = frozenset({"ADD", "MUL"})
_ONE_BY_ONE = frozenset(
    {"DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D", "MEAN", "PAD", "RESHAPE"}
    | {"RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "QUANTIZE"}
)


@dataclass(frozen=True, eq=False)
class Constants:
    """Per channel of a tensor: whether it holds one value everywhere, and which."""

    known: np.ndarray
    values: np.ndarray


def without_idle_channels(graph: Graph) -> Graph:
    """The very same object where there is nothing to drop."""
    touched = {index for op in graph.ops for index in (*graph.activations_of(op), *op.outputs)}
    if any(graph.tensors[index].dtype not in ("int8", "uint8") for index in touched):
        return graph
    constants = constant_channels(graph)
    dropped = _droppable(graph, constants)
    return _Cut(graph, constants, dropped).run() if any(mask.any() for mask in dropped.values()) else graph


def constant_channels(graph: Graph) -> dict[int, Constants]:
    """What is constant in each computed tensor, found by running the ops on the constants alone."""
    found: dict[int, Constants] = {}
    for index in graph.inputs:
        found[index] = _nothing_known(graph.tensors[index])
    for op in graph.ops:
        result = graph.tensors[op.outputs[0]]
        if op.kind in _WEIGHTED or op.kind in _ONE_BY_ONE:
            found[op.outputs[0]] = _through_one_input(graph, op, found[op.inputs[0]])
        elif op.kind in _PAIRS:
            found[op.outputs[0]] = _through_two(graph, op, found)
        elif _joins_channels(graph, op):
            parts = [found[i] if i in found else _of_data(graph.tensors[i]) for i in op.inputs]
            joined = [np.concatenate([getattr(part, name) for part in parts]) for name in ("known", "values")]
            found[op.outputs[0]] = Constants(*joined)
        else:
            found[op.outputs[0]] = _nothing_known(result)
    return found


def _nothing_known(tensor: Tensor) -> Constants:
    channels = tensor.shape[-1] if tensor.shape else 1
    return Constants(np.zeros(channels, bool), np.zeros(channels, np.int8))


def _of_data(tensor: Tensor) -> Constants:
    """A stored operand; channels that vary over its pixels are not constant."""
    assert tensor.data is not None
    return _uniform(tensor.data.reshape(-1, tensor.shape[-1] if tensor.shape else 1))


def _uniform(rows: np.ndarray) -> Constants:
    return Constants((rows == rows[0]).all(axis=0), rows[0])


def _through_one_input(graph: Graph, op: Op, given: Constants) -> Constants:
    """Run the op with the unknown channels at their zero point; what depends on them is not known afterwards."""
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if result.shape[:1] != (1,) or not _reads_whole_pixels(graph, op):
        return _nothing_known(result)
    depends = _depends_on_unknown(graph, op, given)
    if depends.all():
        return _nothing_known(result)
    x = np.where(given.known, given.values, zero_point_of(source)).astype(np.int8)
    alone = replace(graph, ops=(op,), inputs=(op.inputs[0],), outputs=op.outputs)
    y = run_graph(alone, np.broadcast_to(x, source.shape).copy())[op.outputs[0]]
    uniform = _uniform(y.reshape(-1, result.shape[-1]))
    return Constants(uniform.known & ~depends, uniform.values)


def _depends_on_unknown(graph: Graph, op: Op, given: Constants) -> np.ndarray:
    """Per channel of the result."""
    channels = graph.tensors[op.outputs[0]].shape[-1]
    unknown = ~given.known
    if op.kind in _WEIGHTED:
        weights = graph.tensors[op.inputs[1]].data
        assert weights is not None
        by_channel = weights.reshape(len(weights), -1, len(unknown))
        return (by_channel[:, :, unknown] != 0).any(axis=(1, 2))
    if op.kind == "DEPTHWISE_CONV_2D":
        weights = graph.tensors[op.inputs[1]].data
        assert weights is not None
        return np.repeat(unknown, channels // len(unknown)) & (weights != 0).any(axis=(0, 1, 2))
    if not _keeps_channels(graph, op):
        return np.ones(channels, bool)
    return np.tile(unknown, channels // len(unknown))


def _through_two(graph: Graph, op: Op, found: dict[int, Constants]) -> Constants:
    result = graph.tensors[op.outputs[0]]
    operands = [found[i] if i in found else _of_data(graph.tensors[i]) for i in op.inputs]
    if any(len(operand.known) not in (1, result.shape[-1]) for operand in operands):
        return _nothing_known(result)
    known = operands[0].known & operands[1].known
    flat = replace(result, shape=(1, result.shape[-1]))
    tensors = list(graph.tensors)
    tensors[op.outputs[0]] = flat
    for index, operand in zip(op.inputs, operands, strict=True):
        tensors[index] = replace(tensors[index], shape=(1, len(operand.known)), data=None)
    values = [operand.values.reshape(1, -1) for operand in operands]
    computed = KERNELS[op.kind](replace(graph, tensors=tuple(tensors)), op, *values)
    return Constants(np.broadcast_to(known, computed.shape[-1:]).copy(), computed.reshape(-1))


def _keeps_channels(graph: Graph, op: Op) -> bool:
    """Whether channel k of the result is made from channel k of the input alone (or k modulo its channels)."""
    source, result = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    if op.kind == "MEAN":
        axes = graph.tensors[op.inputs[1]].data
        assert axes is not None
        return len(source) - 1 not in {int(axis) % len(source) for axis in axes.flat}
    if op.kind == "PAD":
        return source[-1] == result[-1]
    if op.kind == "RESHAPE":
        return bool(source and result) and result[-1] % source[-1] == 0
    return op.kind in _ONE_BY_ONE


def _reads_whole_pixels(graph: Graph, op: Op) -> bool:
    """False for a FULLY_CONNECTED whose rows do not begin where channels do."""
    channels = graph.tensors[op.inputs[0]].shape[-1]
    return op.kind != "FULLY_CONNECTED" or graph.tensors[op.inputs[1]].shape[-1] % channels == 0


def _joins_channels(graph: Graph, op: Op) -> bool:
    rank = len(graph.tensors[op.outputs[0]].shape)
    return isinstance(op.options, ConcatOptions) and op.options.axis % rank == rank - 1


def _pads(graph: Graph, op: Op) -> bool:
    """Whether any window of a convolution sees padding."""
    if not isinstance(op.options, ConvOptions) or op.options.padding == "valid":
        return False
    size, kernel = (graph.tensors[index].shape[1:3] for index in op.inputs[:2])
    return any(zero_pads(size, kernel, op.options.stride, op.options.dilation, "same"))


def _droppable(graph: Graph, constants: dict[int, Constants]) -> dict[int, np.ndarray]:
    """Per computed tensor the channels to drop: the largest choice in which every op agrees."""
    masks = {index: np.ones(len(found.known), bool) for index, found in constants.items()}
    for index in (*graph.inputs, *graph.outputs):
        masks[index][:] = False
    _settle(graph, constants, masks)
    while any(mask.all() for mask in masks.values()):
        for mask in masks.values():
            mask[0] &= not mask.all()  # a tensor without channels is none
        _settle(graph, constants, masks)
    return masks


def _settle(graph: Graph, constants: dict[int, Constants], masks: dict[int, np.ndarray]) -> None:
    """Take back channels until every op agrees."""
    left = -1
    while left != sum(int(mask.sum()) for mask in masks.values()):
        left = sum(int(mask.sum()) for mask in masks.values())
        for op in reversed(graph.ops):
            _agree(graph, op, constants, masks)


def _agree(graph: Graph, op: Op, constants: dict[int, Constants], masks: dict[int, np.ndarray]) -> None:
    """Take back what this op could not do without, on either side."""
    result = masks[op.outputs[0]]
    if op.kind in _WEIGHTED:
        masks[op.inputs[0]] &= _absorbed(graph, op, constants[op.inputs[0]])
    elif op.kind in _ONE_BY_ONE and _keeps_channels(graph, op):
        source = masks[op.inputs[0]]
        axis = 0 if op.kind == "RESHAPE" else 1  # a RESHAPE repeats all channels, a depth multiplier each one
        together = result.reshape(-1, len(source)) if axis == 0 else result.reshape(len(source), -1)
        source &= together.all(axis=axis)
        together &= np.expand_dims(source, axis)
    elif op.kind in _PAIRS:
        sides = [masks[i] for i in graph.activations_of(op)]
        whole = [mask for mask in sides if len(mask) == len(result)]
        shared = np.logical_and.reduce([result, *whole])
        for mask in (result, *sides):
            mask &= shared if len(mask) == len(result) else False
        if any(len(mask) != len(result) for mask in sides) and not whole:
            result[:] = False
    elif _joins_channels(graph, op):
        start = 0
        for index in op.inputs:
            end = start + graph.tensors[index].shape[-1]
            part = masks.get(index, np.zeros(end - start, bool))
            part &= result[start:end]
            result[start:end] &= part
            start = end
    else:
        for index in (*graph.activations_of(op), *op.outputs):
            masks[index][:] = False


def _absorbed(graph: Graph, op: Op, given: Constants) -> np.ndarray:
    """Channels of the input that the op does without: constant ones that go into the bias, and unread ones."""
    source, weights = graph.tensors[op.inputs[0]], graph.tensors[op.inputs[1]].data
    assert weights is not None
    if not _reads_whole_pixels(graph, op):
        return np.zeros(len(given.known), bool)
    unread = (weights.reshape(-1, len(given.known)) == 0).all(axis=0)
    exact = given.known & (given.values == zero_point_of(source)) if _pads(graph, op) else given.known
    return unread | exact


@dataclass
class _Cut:
    """Rewrites every op without the dropped channels."""

    graph: Graph
    constants: dict[int, Constants]
    dropped: dict[int, np.ndarray]
    tensors: list[Tensor] = field(default_factory=list)

    def run(self) -> Graph:
        self.tensors = list(self.graph.tensors)
        for index, mask in self.dropped.items():
            tensor = self.tensors[index]
            if mask.any():
                self.tensors[index] = replace(tensor, shape=(*tensor.shape[:-1], int((~mask).sum())))
        ops = tuple(self._op(op) for op in self.graph.ops)
        return replace(self.graph, tensors=tuple(self.tensors), ops=ops)

    def _op(self, op: Op) -> Op:
        source = self._kept(op.inputs[0])
        result = self._kept(op.outputs[0])
        if op.kind in _WEIGHTED:
            return self._weighted(op, source, result) if not (source.all() and result.all()) else op
        if op.kind == "DEPTHWISE_CONV_2D" and not result.all():
            weights = self._sliced(op.inputs[1], lambda data: data[..., result], result)
            return replace(op, inputs=(op.inputs[0], weights, *self._biases(op, result)))
        if op.kind == "RESHAPE" and not result.all() and len(op.inputs) > 1:
            shape = np.array(self.tensors[op.outputs[0]].shape, np.int32)
            return replace(op, inputs=(op.inputs[0], self._new(self.tensors[op.inputs[1]], shape)))
        if op.kind in _PAIRS and not result.all():
            return replace(op, inputs=tuple(self._operand(index, result) for index in op.inputs))
        return op

    def _kept(self, index: int) -> np.ndarray:
        return ~self.dropped[index] if index in self.dropped else np.ones(1, bool)

    def _weighted(self, op: Op, source: np.ndarray, result: np.ndarray) -> Op:
        data = self.graph.tensors[op.inputs[1]].data
        assert data is not None
        columns = np.tile(source, data.shape[-1] // len(source))  # FULLY_CONNECTED may read a whole map
        weights = self._sliced(op.inputs[1], lambda w: w[result][..., columns], result)
        return replace(op, inputs=(op.inputs[0], weights, *self._biases(op, result, self._folded(op, data, columns))))

    def _folded(self, op: Op, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """What the dropped channels add to every sum."""
        given = self.constants[op.inputs[0]]
        centred = given.values.astype(np.int64) - zero_point_of(self.graph.tensors[op.inputs[0]])
        value = np.tile(np.where(given.known, centred, 0), len(columns) // len(given.known))  # unread: weights are 0
        gone = weights.astype(np.int64).reshape(len(weights), -1, weights.shape[-1])[..., ~columns]
        return (gone * value[~columns]).sum(axis=(1, 2))

    def _biases(self, op: Op, result: np.ndarray, added: np.ndarray | None = None) -> Iterator[int]:
        has_bias = len(op.inputs) > 2 and op.inputs[2] >= 0
        stored = self.graph.tensors[op.inputs[2]].data if has_bias else None
        total = np.zeros(len(result), np.int64) if stored is None else stored.astype(np.int64).reshape(-1)
        if added is not None:
            total = total + added
        if not has_bias and not total.any():
            return
        like = self.graph.tensors[op.inputs[2]] if has_bias else Tensor(f"{op.name} bias", (1,), "int32")
        data = total[result].astype(np.int32)  # wraps, as the kernels' sums do
        yield self._new(replace(like, quantisation=_sliced_grid(like.quantisation, result)), data)

    def _operand(self, index: int, result: np.ndarray) -> int:
        tensor = self.tensors[index]
        if tensor.data is None or not tensor.shape or tensor.shape[-1] != len(result):
            return index
        return self._new(tensor, tensor.data[..., result])

    def _sliced(self, index: int, cut: Callable[[np.ndarray], np.ndarray], result: np.ndarray) -> int:
        tensor = self.graph.tensors[index]
        assert tensor.data is not None
        grid = _sliced_grid(tensor.quantisation, result)
        return self._new(replace(tensor, quantisation=grid), np.ascontiguousarray(cut(tensor.data)))

    def _new(self, like: Tensor, data: np.ndarray) -> int:
        """Constants may be shared by several ops: each gets its own."""
        self.tensors.append(replace(like, data=data, shape=data.shape))
        return len(self.tensors) - 1


def _sliced_grid(grid: Quantisation | None, kept: np.ndarray) -> Quantisation | None:
    if grid is None or len(grid.scale) == 1:
        return grid
    scales, zeros = (
        tuple(v for v, keep in zip(values, kept, strict=True) if keep) for values in (grid.scale, grid.zero_point)
    )
    return Quantisation(scales, zeros, grid.axis)
