"""The network as ops and tensors: what the pruner, the exporter, the scheduler and the firmware compiler all read.

Activations are NHWC with batch 1, as on the device. Ops carry the names and the conventions of TensorFlow Lite: padding
'same' or 'valid', filters OHWI (CONV_2D), 1HWC (DEPTHWISE_CONV_2D), OI (FULLY_CONNECTED), batch normalisation folded,
ReLU fused. A graph made from a torch network holds float32 tensors, one read from a .tflite int8 ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

Activation = Literal["none", "relu", "relu6", "relu_n1_to_1"]
Padding = Literal["same", "valid"]
DType = Literal["int8", "int16", "int32", "int64", "uint8", "float32", "bool", "resource"]

WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})  # have weights, and mostly biases
# What a file computes in float between a DEQUANTIZE and a QUANTIZE: of a byte it is a table, and one operator here.
FLOAT_KINDS = {
    f"FLOAT_{kind}": kind
    for kind in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "LOG", "NEG", "ROUND", "RSQRT", "SIN", "SQRT", "SQUARE")
}
NO_GROUP = -1
ITEM_BYTES: dict[str, int] = {"int8": 1, "uint8": 1, "bool": 1, "int16": 2, "int32": 4, "float32": 4, "int64": 8}
ITEM_BYTES["resource"] = 4  # the name of a variable


@dataclass(frozen=True)
class Quantisation:
    """real = scale * (q - zero_point); one entry, or one per index of `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0


@dataclass(frozen=True, eq=False)
class Tensor:
    """An activation; a constant when it has `data`; or a state, which has its first values as `data`.

    A state keeps what an inference leaves in it until the next one. The operators that change it name it as an input.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    quantisation: Quantisation | None = None
    data: np.ndarray | None = None
    # Of every channel (last axis) its group and its number within it: what is pruned is pruned in all tensors alike.
    # NO_GROUP: it always stays. None: not looked at, as in a .tflite.
    channels: np.ndarray | None = None
    is_state: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class ConvOptions:
    """CONV_2D, and DEPTHWISE_CONV_2D with its depth multiplier."""

    stride: tuple[int, int] = (1, 1)
    padding: Padding = "same"
    dilation: tuple[int, int] = (1, 1)
    activation: Activation = "none"
    depth_multiplier: int = 1


@dataclass(frozen=True)
class PoolOptions:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""

    filter: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding = "valid"
    activation: Activation = "none"


@dataclass(frozen=True)
class ActivationOptions:
    """FULLY_CONNECTED, ADD, SUB, MUL and DIV: only the fused activation."""

    activation: Activation = "none"


@dataclass(frozen=True)
class SoftmaxOptions:
    """SOFTMAX."""

    beta: float = 1.0


@dataclass(frozen=True)
class ConcatOptions:
    """CONCATENATION."""

    axis: int
    activation: Activation = "none"


@dataclass(frozen=True)
class NoOptions:
    """RESHAPE, PAD, MEAN, RELU, RELU6, LOGISTIC, HARD_SWISH, QUANTIZE, DEQUANTIZE: the operands say everything."""


@dataclass(frozen=True)
class PlainOptions:
    """All others: the numbers of the options that its rule names (see shape_rules), in that order."""

    values: tuple[float, ...] = ()


Options = ConvOptions | PoolOptions | ActivationOptions | SoftmaxOptions | ConcatOptions | NoOptions | PlainOptions


@dataclass(frozen=True)
class Op:
    """One operator; `inputs` and `outputs` index the graph's tensors, -1 marks an absent optional input."""

    kind: str  # TensorFlow Lite's name: CONV_2D, ADD, ...
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Options = field(default_factory=NoOptions)

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Graph:
    """Ops in a valid execution order, the tensors they connect, and which of those are the network's own."""

    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def activations_of(self, op: Op) -> Iterator[int]:
        """The inputs of `op` that are computed, not constant."""
        return (index for index in op.inputs if index >= 0 and self.tensors[index].data is None)

    def in_order(self, order: Sequence[int]) -> Graph:
        """The same graph with its ops in another order."""
        return replace(self, ops=tuple(self.ops[number] for number in order))

    def with_tensors(self, kept: Sequence[int]) -> Graph:
        """The same graph with these tensors only, in this order: all that it refers to are among them."""
        place = {-1: -1, **{old: new for new, old in enumerate(kept)}}

        def moved(indices: Sequence[int]) -> tuple[int, ...]:
            return tuple(place[index] for index in indices)

        ops = tuple(replace(op, inputs=moved(op.inputs), outputs=moved(op.outputs)) for op in self.ops)
        return Graph(tuple(self.tensors[index] for index in kept), ops, moved(self.inputs), moved(self.outputs))

    @property
    def states(self) -> tuple[int, ...]:
        """What lasts from one inference to the next."""
        return tuple(index for index, tensor in enumerate(self.tensors) if tensor.is_state)

    def constants_of(self, op: Op) -> Iterator[int]:
        """The inputs of `op` that are stored: weights, biases, shapes."""
        return (index for index in op.inputs if index >= 0 and self.tensors[index].data is not None)
