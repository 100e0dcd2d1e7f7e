"""A Graph as a .tflite file, byte for byte the same for the same graph.

Constants start at multiples of 16 bytes, so that kernels may load words from flash. With `offsets` the file carries the
metadata `OfflineMemoryAllocation`, by which TensorFlow Lite Micro places every activation exactly there. States become
variables: a VAR_HANDLE each in front of everything, and a second subgraph that gives them their first values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.checks.shape_rules import SHAPE_RULES, STATEFUL
from stages.graph.graph import (
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    Graph,
    Op,
    PlainOptions,
    PoolOptions,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.tflite.float_functions import FLOAT_ONLY, with_float_functions
from stages.graph.tflite.folding import FOLDED_RULES
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
    "TRANSPOSE_CONV": 3,
    "ADD": 2,
    "MUL": 2,
    "SUB": 2,
    "DIV": 2,
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
_OF_VARIABLES = {"VAR_HANDLE", "ASSIGN_VARIABLE", "CALL_ONCE"}
_WITH_ACTIVATION = {
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "ADD": "AddOptions",
    "SUB": "SubOptions",
    "MUL": "MulOptions",
    "DIV": "DivOptions",
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


def write_tflite(
    graph: Graph, description: str, offsets: Sequence[int] | None = None, notes: Mapping[str, bytes] | None = None
) -> bytes:
    """The flatbuffer; `offsets` gives the arena offset of every tensor, -1 for constants; `notes` are metadata."""
    plan = {} if offsets is None else {OFFLINE_PLAN: _offline_plan(graph, offsets)}
    graph = with_float_functions(graph)
    variables = {op.inputs[op.kind == "ASSIGN_VARIABLE"] for op in graph.ops if op.kind in STATEFUL}
    kinds = sorted({op.kind for op in graph.ops} | (_OF_VARIABLES if variables else set()))
    buffers: list[Any] = [schema.BufferT()]  # buffer 0 is the empty one, by convention
    subgraph = schema.SubGraphT()
    subgraph.name = "main"
    subgraph.tensors = [_tensor(tensor, buffers, index in variables) for index, tensor in enumerate(graph.tensors)]
    subgraph.inputs = list(graph.inputs)
    subgraph.outputs = list(graph.outputs)
    subgraph.operators = [_operator(graph, op, kinds) for op in graph.ops]
    model = schema.ModelT()
    model.version = _SCHEMA_VERSION
    model.description = description
    model.operatorCodes = [_operator_code(kind) for kind in kinds]
    model.subgraphs = [subgraph]
    if variables:
        first = _first_values(graph, sorted(variables), kinds, buffers)
        subgraph.operators = [_call_once(kinds), *first.operators[::2], *subgraph.operators]
        for handle, state in zip(first.operators[::2], sorted(variables), strict=True):
            handle.outputs = [state]
        first = _first_values(graph, sorted(variables), kinds, buffers)  # a tree of its own
        model.subgraphs.append(first)
    model.buffers = buffers
    model.metadata = [_metadata(name, content, buffers) for name, content in {**plan, **(notes or {})}.items()] or None
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=MARK)
    return bytes(builder.Output())


def _call_once(kinds: list[str]) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex = kinds.index("CALL_ONCE")
    made.inputs, made.outputs = [], []
    made.builtinOptionsType = schema.BuiltinOptions.CallOnceOptions
    made.builtinOptions = schema.CallOnceOptionsT()
    made.builtinOptions.initSubgraphIndex = 1
    return made


def _first_values(graph: Graph, states: Sequence[int], kinds: list[str], buffers: list[Any]) -> Any:
    """The subgraph that CALL_ONCE runs: a handle and an assignment for each state."""
    made = schema.SubGraphT()
    made.name = "first values"
    made.inputs, made.outputs, made.tensors, made.operators = [], [], [], []
    for index in states:
        state = graph.tensors[index]
        made.tensors += [_tensor(state, buffers, True), _tensor(replace(state, is_state=False), buffers)]
        handle = schema.OperatorT()
        handle.opcodeIndex = kinds.index("VAR_HANDLE")
        handle.inputs, handle.outputs = [], [len(made.tensors) - 2]
        handle.builtinOptionsType = schema.BuiltinOptions.VarHandleOptions
        handle.builtinOptions = schema.VarHandleOptionsT()
        handle.builtinOptions.container, handle.builtinOptions.sharedName = "", f"state{index}"
        assign = schema.OperatorT()
        assign.opcodeIndex = kinds.index("ASSIGN_VARIABLE")
        assign.inputs, assign.outputs = [len(made.tensors) - 2, len(made.tensors) - 1], []
        made.operators += [handle, assign]
    return made


def _metadata(name: str, content: bytes, buffers: list[Any]) -> Any:
    entry = schema.MetadataT()
    entry.name = name
    entry.buffer = len(buffers)
    buffers.append(AlignedBuffer(content))
    return entry


def _offline_plan(graph: Graph, offsets: Sequence[int]) -> bytes:
    if len(offsets) != len(graph.tensors):
        raise StageError(f"{len(offsets)} arena offsets for {len(graph.tensors)} tensors, needed one each")
    return plan_words((*offsets, *(-1,) * (len(with_float_functions(graph).tensors) - len(offsets))))


def plan_words(offsets: Sequence[int]) -> bytes:
    """The content of the metadata `OfflineMemoryAllocation`."""
    return np.array([_PLAN_VERSION, 0, len(offsets), *offsets], dtype="<i4").tobytes()


def _tensor(tensor: Tensor, buffers: list[Any], is_handle: bool = False) -> Any:
    made = schema.TensorT()
    made.name = tensor.name
    made.buffer = 0
    if is_handle:
        made.shape, made.type = [], schema.TensorType.RESOURCE
        return made
    made.shape = list(tensor.shape)
    made.type = getattr(schema.TensorType, tensor.dtype.upper())
    made.isVariable = tensor.is_state
    if tensor.data is not None and not tensor.is_state:
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
    if not any(kind in known for known in (_OP_VERSIONS, SHAPE_RULES, FOLDED_RULES, FLOAT_ONLY)):
        raise StageError(f"{kind}: cannot be written to .tflite, needed one of {', '.join(_OP_VERSIONS)}")
    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, kind)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)  # what readers from before 2020 look at
    code.version = _OP_VERSIONS.get(kind, 2)
    return code


def _operator(graph: Graph, op: Op, kinds: list[str]) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex = kinds.index(op.kind)
    made.inputs = list(op.inputs)
    made.outputs = list(op.outputs)
    if op.kind == "TRANSPOSE_CONV":  # in a file the shape of the result comes first
        made.inputs = [op.inputs[3], op.inputs[1], op.inputs[0], *(i for i in op.inputs[2:3] if i >= 0)]
    if op.kind == "ASSIGN_VARIABLE":  # in a file the variable comes first, and there is no result
        made.inputs, made.outputs = [op.inputs[1], op.inputs[0]], []
    name, options = _options(graph, op)
    if options is not None:
        made.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        made.builtinOptions = options
    return made


def _options(graph: Graph, op: Op) -> tuple[str, Any]:
    options = op.options
    if op.kind == "TRANSPOSE_CONV":
        made = schema.TransposeConvOptionsT()
        assert isinstance(options, ConvOptions)
        made.padding, (made.strideH, made.strideW) = _PADDINGS[options.padding], options.stride
        made.fusedActivationFunction = _ACTIVATIONS[options.activation]
        return "TransposeConvOptions", made
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
        name = _WITH_ACTIVATION[op.kind]
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
    rule = SHAPE_RULES.get(op.kind) or FOLDED_RULES.get(op.kind)
    if isinstance(options, PlainOptions) and rule is not None and op.kind not in STATEFUL:
        if rule.table == "NONE":
            return "", None
        made = getattr(schema, f"{rule.table}T")()
        for field, value in zip(rule.fields, options.values, strict=True):
            setattr(made, field[0].lower() + field[1:], value)
        if op.kind == "SQUEEZE":
            made.squeezeDims = _squeezed_axes(graph, op)
        return rule.table, made
    return _plain_options(graph, op)


def _squeezed_axes(graph: Graph, op: Op) -> list[int]:
    """Axes of one element, from the front, until the result has as few axes as it should."""
    source, result = (graph.tensors[index].shape for index in (op.inputs[0], op.outputs[0]))
    ones = [axis for axis, side in enumerate(source) if side == 1]
    kept = [axis for axis, side in enumerate(result) if side == 1]
    return ones[len(kept) :] if kept and kept[0] == 0 else ones[: len(source) - len(result)]


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
