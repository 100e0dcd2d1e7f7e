"""A Graph as a .tflite file, byte for byte the same for the same graph.

Constants start at multiples of 16 bytes, so that kernels may load words from flash. With `offsets` the file carries the
metadata `OfflineMemoryAllocation`, by which TensorFlow Lite Micro places every activation exactly there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    Graph,
    Op,
    PoolOptions,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.tflite.reader import ACTIVATIONS, PADDINGS
from stages.graph.tflite.structure import MARK, OFFLINE_PLAN

_PLAN_VERSION = 1
_CONSTANT_ALIGNMENT = 16
_SCHEMA_VERSION = 3

# The version of each operator that takes int8; 1 where int8 needs no later one.
_OP_VERSIONS = {
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "ADD": 2,
    "MUL": 2,
    "AVERAGE_POOL_2D": 2,
    "MAX_POOL_2D": 2,
    "SOFTMAX": 2,
    "MEAN": 2,
    "PAD": 2,
    "RELU": 2,
    "RELU6": 2,
    "RESHAPE": 1,
    "LOGISTIC": 2,
    "HARD_SWISH": 1,
    "CONCATENATION": 2,
    "QUANTIZE": 2,
    "DEQUANTIZE": 2,
}
_ACTIVATIONS = {name: number for number, name in ACTIVATIONS.items()}
_PADDINGS = {name: number for number, name in PADDINGS.items()}


class AlignedBuffer(schema.BufferT):
    """A constant whose bytes start at a multiple of 16 in the file."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content

    def Pack(self, builder: flatbuffers.Builder) -> int:
        # Padding first: the vector that follows then ends up aligned by itself.
        builder.Prep(_CONSTANT_ALIGNMENT, len(self._content))
        content = builder.CreateByteVector(self._content)
        schema.BufferStart(builder)
        schema.BufferAddData(builder, content)
        schema.BufferAddOffset(builder, self.offset)
        schema.BufferAddSize(builder, self.size)
        return schema.BufferEnd(builder)


def write_tflite(graph: Graph, description: str, offsets: Sequence[int] | None = None) -> bytes:
    """The flatbuffer; `offsets` gives the arena offset of every tensor, -1 for constants."""
    kinds = sorted({op.kind for op in graph.ops})
    buffers: list[Any] = [schema.BufferT()]  # buffer 0 is the empty one, by convention
    subgraph = schema.SubGraphT()
    subgraph.name = "main"
    subgraph.tensors = [_tensor(tensor, buffers) for tensor in graph.tensors]
    subgraph.inputs = list(graph.inputs)
    subgraph.outputs = list(graph.outputs)
    subgraph.operators = [_operator(graph, op, kinds) for op in graph.ops]
    model = schema.ModelT()
    model.version = _SCHEMA_VERSION
    model.description = description
    model.operatorCodes = [_operator_code(kind) for kind in kinds]
    model.subgraphs = [subgraph]
    model.buffers = buffers
    if offsets is not None:
        model.metadata = [_offline_plan(graph, offsets, buffers)]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=MARK)
    return bytes(builder.Output())


def _offline_plan(graph: Graph, offsets: Sequence[int], buffers: list[Any]) -> Any:
    if len(offsets) != len(graph.tensors):
        raise StageError(f"{len(offsets)} arena offsets for {len(graph.tensors)} tensors, needed one each")
    entry = schema.MetadataT()
    entry.name = OFFLINE_PLAN
    entry.buffer = len(buffers)
    buffers.append(AlignedBuffer(plan_words(offsets)))
    return entry


def plan_words(offsets: Sequence[int]) -> bytes:
    """The content of the metadata `OfflineMemoryAllocation`."""
    return np.array([_PLAN_VERSION, 0, len(offsets), *offsets], dtype="<i4").tobytes()


def _tensor(tensor: Tensor, buffers: list[Any]) -> Any:
    made = schema.TensorT()
    made.name = tensor.name
    made.shape = list(tensor.shape)
    made.type = getattr(schema.TensorType, tensor.dtype.upper())
    made.buffer = 0
    if tensor.data is not None:
        made.buffer = len(buffers)
        stored = np.ascontiguousarray(tensor.data, dtype=np.dtype(tensor.dtype).newbyteorder("<"))
        buffers.append(AlignedBuffer(stored.tobytes()))
    if tensor.quantisation is not None:
        grid = schema.QuantizationParametersT()
        grid.scale = list(tensor.quantisation.scale)
        grid.zeroPoint = list(tensor.quantisation.zero_point)
        grid.quantizedDimension = tensor.quantisation.axis
        made.quantization = grid
    return made


def _operator_code(kind: str) -> Any:
    if kind not in _OP_VERSIONS:
        raise StageError(f"{kind}: cannot be written to .tflite, needed one of {', '.join(_OP_VERSIONS)}")
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)  # what readers from before 2020 look at
    code.version = _OP_VERSIONS[kind]
    return code


def _operator(graph: Graph, op: Op, kinds: list[str]) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex = kinds.index(op.kind)
    made.inputs = list(op.inputs)
    made.outputs = list(op.outputs)
    name, options = _options(graph, op)
    if options is not None:
        made.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        made.builtinOptions = options
    return made


def _options(graph: Graph, op: Op) -> tuple[str, Any]:
    options = op.options
    if isinstance(options, ConvOptions):
        name = "Conv2DOptions" if op.kind == "CONV_2D" else "DepthwiseConv2DOptions"
        made = getattr(schema, f"{name}T")()
        made.padding = _PADDINGS[options.padding]
        made.strideH, made.strideW = options.stride
        made.dilationHFactor, made.dilationWFactor = options.dilation
        made.fusedActivationFunction = _ACTIVATIONS[options.activation]
        if op.kind == "DEPTHWISE_CONV_2D":
            made.depthMultiplier = options.depth_multiplier
        return name, made
    if isinstance(options, PoolOptions):
        made = schema.Pool2DOptionsT()
        made.padding = _PADDINGS[options.padding]
        made.strideH, made.strideW = options.stride
        made.filterHeight, made.filterWidth = options.filter
        made.fusedActivationFunction = _ACTIVATIONS[options.activation]
        return "Pool2DOptions", made
    if isinstance(options, ActivationOptions):
        name = {"FULLY_CONNECTED": "FullyConnectedOptions", "ADD": "AddOptions", "MUL": "MulOptions"}[op.kind]
        made = getattr(schema, f"{name}T")()
        made.fusedActivationFunction = _ACTIVATIONS[options.activation]
        if op.kind == "FULLY_CONNECTED":
            made.keepNumDims = len(graph.tensors[op.outputs[0]].shape) > 2
        return name, made
    if isinstance(options, SoftmaxOptions):
        made = schema.SoftmaxOptionsT()
        made.beta = options.beta
        return "SoftmaxOptions", made
    if isinstance(options, ConcatOptions):
        made = schema.ConcatenationOptionsT()
        made.axis = options.axis
        made.fusedActivationFunction = _ACTIVATIONS[options.activation]
        return "ConcatenationOptions", made
    return _plain_options(graph, op)


def _plain_options(graph: Graph, op: Op) -> tuple[str, Any]:
    """Options that follow from the operands' shapes."""
    if op.kind == "RESHAPE":
        made = schema.ReshapeOptionsT()
        made.newShape = list(graph.tensors[op.outputs[0]].shape)
        return "ReshapeOptions", made
    if op.kind == "MEAN":
        made = schema.ReducerOptionsT()
        made.keepDims = len(graph.tensors[op.outputs[0]].shape) == len(graph.tensors[op.inputs[0]].shape)
        return "ReducerOptions", made
    if op.kind == "PAD":
        return "PadOptions", schema.PadOptionsT()
    return "", None
