"""The graph side of `from_torch`: collects ops and tensors, folds batch normalisation, fuses activations.

Weights stay float64 until the graph is finished, so that folding loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stages.graph.graph import Activation, ConcatOptions, Graph, NoOptions, Op, Options, SoftmaxOptions, Tensor
from stages.graph.groups import channel_groups


@dataclass(frozen=True)
class TracedLayer:
    """Which torch modules became an op that has weights."""

    op: int  # index into the graph's ops
    weight: str | None  # path of the Conv2d or Linear; None: batch normalisation that stands alone
    norm: str | None  # path of the batch normalisation, folded or alone
    positions: int = 1  # pixels of the flattened map that a Linear reads


class GraphBuilder:
    """A graph in the making; tensors are named by their index."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.layers: list[TracedLayer] = []

    def tensor(self, name: str, shape: tuple[int, ...], data: np.ndarray | None = None) -> int:
        dtype = "int32" if data is not None and data.dtype == np.int32 else "float32"
        self.tensors.append(Tensor(name, tuple(shape), dtype, data=data))  # type: ignore[arg-type]
        return len(self.tensors) - 1

    def op(self, kind: str, name: str, inputs: tuple[int, ...], shape: tuple[int, ...], options: Options) -> int:
        """Append an op; the tensor that it computes."""
        output = self.tensor(name, shape)
        self.ops.append(Op(kind, name, inputs, (output,), options))
        return output

    def weighted_op(self, layer: TracedLayer, op: Op, filters: np.ndarray, bias: np.ndarray | None) -> int:
        """Append an op with weights (`op` lacks them still); the tensor that it computes. No bias means zeros."""
        channels = filters.shape[3] if op.kind == "DEPTHWISE_CONV_2D" else filters.shape[0]
        offset = np.zeros(channels) if bias is None else bias
        constants = (
            self.tensor(f"{op.name}.weight", filters.shape, filters),
            self.tensor(f"{op.name}.bias", offset.shape, offset),
        )
        self.layers.append(replace(layer, op=len(self.ops)))
        self.ops.append(replace(op, inputs=(*op.inputs, *constants)))
        return op.outputs[0]

    def reshape(self, name: str, source: int, shape: tuple[int, ...] | None = None) -> int:
        """Another shape; without one everything but the batch is flattened."""
        shape = shape or (1, self.tensors[source].elements)
        target = self.tensor(f"{name}.shape", (len(shape),), np.array(shape, np.int32))
        return self.op("RESHAPE", name, (source, target), shape, NoOptions())

    def layer_of(self, tensor: int) -> TracedLayer | None:
        """The layer with weights that computes a tensor."""
        return next((layer for layer in self.layers if tensor in self.ops[layer.op].outputs), None)

    def fold(self, layer: TracedLayer, scale: np.ndarray, shift: np.ndarray, norm: str) -> None:
        """Multiply the layer's output channels by `scale` and add `shift`."""
        op = self.ops[layer.op]
        filters, bias = self.tensors[op.inputs[1]], self.tensors[op.inputs[2]]
        assert filters.data is not None and bias.data is not None
        per_output = scale if op.kind == "DEPTHWISE_CONV_2D" else scale.reshape(-1, *[1] * (filters.data.ndim - 1))
        self.tensors[op.inputs[1]] = replace(filters, data=filters.data * per_output)
        self.tensors[op.inputs[2]] = replace(bias, data=bias.data * scale + shift)
        self.layers[self.layers.index(layer)] = replace(layer, norm=norm)

    def activation_of(self, tensor: int) -> Activation | None:
        """The activation fused into the op that computes a tensor; None when it cannot take one."""
        op = self._maker(tensor)
        # TensorFlow Lite Micro's kernels refuse an activation behind a concatenation.
        if op is None or isinstance(op.options, NoOptions | SoftmaxOptions | ConcatOptions):
            return None
        return op.options.activation

    def is_rectified(self, tensor: int) -> bool:
        """Whether a tensor cannot hold negative values, because a ReLU made it."""
        op = self._maker(tensor)
        return self.activation_of(tensor) in ("relu", "relu6") or (op is not None and op.kind in ("RELU", "RELU6"))

    def _maker(self, tensor: int) -> Op | None:
        return next((op for op in self.ops if tensor in op.outputs), None)

    def fuse(self, tensor: int, activation: Activation) -> None:
        """Give the op that computes a tensor its activation."""
        index = next(index for index, op in enumerate(self.ops) if tensor in op.outputs)
        options = self.ops[index].options
        assert not isinstance(options, NoOptions | SoftmaxOptions | ConcatOptions)
        self.ops[index] = replace(self.ops[index], options=replace(options, activation=activation))

    def graph(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Graph:
        """The finished graph: float32, with channel groups."""
        groups = channel_groups(self.tensors, self.ops, inputs, outputs)
        tensors = (
            _in_float32(replace(tensor, channels=found)) for tensor, found in zip(self.tensors, groups, strict=True)
        )
        return Graph(tuple(tensors), tuple(self.ops), inputs, outputs)


def _in_float32(tensor: Tensor) -> Tensor:
    if tensor.data is None or tensor.dtype != "float32":
        return tensor
    return replace(tensor, data=np.ascontiguousarray(tensor.data, dtype=np.float32))
