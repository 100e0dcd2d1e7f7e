"""A .tflite file as a Graph: one subgraph of the operators that our kernels know.

Everything is read through flatbuffers' own accessors. Those check that a read stays inside the file, but neither that a
length is sensible nor that an index exists, so lengths and indices are checked here, before they are used; whatever
still goes wrong inside an accessor means a damaged file. What comes back has consistent shapes (see op_check).
Refuses, with one sentence: damaged files, several subgraphs, unknown operators, sparse or variable tensors.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.graph import (
    ITEM_BYTES,
    Activation,
    ActivationOptions,
    ConvOptions,
    DType,
    Graph,
    NoOptions,
    Op,
    Options,
    Padding,
    PoolOptions,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.op_check import check_graph

OFFLINE_PLAN = "OfflineMemoryAllocation"  # the metadata entry that TensorFlow Lite Micro looks for

_TYPES: dict[int, DType] = {
    schema.TensorType.FLOAT32: "float32",
    schema.TensorType.INT32: "int32",
    schema.TensorType.UINT8: "uint8",
    schema.TensorType.INT64: "int64",
    schema.TensorType.BOOL: "bool",
    schema.TensorType.INT16: "int16",
    schema.TensorType.INT8: "int8",
}
_ACTIVATIONS: dict[int, Activation] = {
    schema.ActivationFunctionType.NONE: "none",
    schema.ActivationFunctionType.RELU: "relu",
    schema.ActivationFunctionType.RELU6: "relu6",
}
_PADDINGS: dict[int, Padding] = {schema.Padding.SAME: "same", schema.Padding.VALID: "valid"}

# What a damaged offset makes the accessors raise; AttributeError and TypeError come from an absent table.
_DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, KeyError)
_LONGEST_SENTENCE = 600  # a damaged length may make a name of megabytes
_MOST_DIMENSIONS = 6
_MOST_ELEMENTS = 2**31 - 1  # TensorFlow Lite's own index type


def read_tflite(source: Path | bytes) -> Graph:
    """The graph in a .tflite file, or in its bytes."""
    where, data = _load(source)
    try:
        graph = _graph(_model(data), len(data))
        check_graph(graph)
    except (StageError, *_DAMAGE) as error:
        raise _refusal(where, error) from error
    return graph


def read_offline_offsets(source: Path | bytes) -> tuple[int, ...] | None:
    """The arena offset of every tensor as planned in the file (-1: left to the runtime), or None without a plan."""
    where, data = _load(source)
    try:
        model = _model(data)
        for entry in _each(model.Metadata, model.MetadataLength(), len(data)):
            if entry.Name() == OFFLINE_PLAN.encode():
                return _offsets(model, entry, len(data))
    except (StageError, *_DAMAGE) as error:
        raise _refusal(where, error) from error
    return None


def _refusal(where: str, error: Exception) -> StageError:
    if isinstance(error, StageError):
        return StageError(f"{where}: {error}"[:_LONGEST_SENTENCE])
    return StageError(f"{where}: damaged .tflite ({error}), needed a whole file; fetch or export it again")


def _load(source: Path | bytes) -> tuple[str, bytes]:
    if isinstance(source, bytes):
        return "model", source
    try:
        return str(source), source.read_bytes()
    except OSError as error:
        raise StageError(f"{source}: cannot be read ({error.strerror}), needed a .tflite file") from error


def _model(data: bytes) -> Any:
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise StageError(f"not a .tflite file ({len(data)} B, no mark 'TFL3'), needed a flatbuffer of version 3")
    return schema.Model.GetRootAs(data, 0)


def _each(item: Callable[[int], Any], count: int, file_bytes: int) -> list[Any]:
    """All entries of a vector of tables, after a check of its length: each takes 4 bytes at least."""
    if count * 4 > file_bytes:
        raise ValueError(f"a list of {count} entries")
    return [item(index) for index in range(count)]


def _integers(vector: np.ndarray | int) -> tuple[int, ...]:
    """A vector of numbers; flatbuffers gives the integer 0 for an absent one."""
    return () if isinstance(vector, int) else tuple(int(value) for value in vector)


def _offsets(model: Any, entry: Any, file_bytes: int) -> tuple[int, ...]:
    buffers = _each(model.Buffers, model.BuffersLength(), file_bytes)
    words = np.frombuffer(buffers[entry.Buffer()].DataAsNumpy().tobytes(), dtype="<i4")
    if len(words) < 3 or len(words) != 3 + words[2]:
        raise StageError(f"{OFFLINE_PLAN} holds {len(words)} words, needed 3 and one for each tensor")
    return _integers(words[3:])


def _graph(model: Any, file_bytes: int) -> Graph:
    if model.SubgraphsLength() != 1:
        raise StageError(f"found {model.SubgraphsLength()} subgraphs, needed 1")
    subgraph = model.Subgraphs(0)
    buffers = _each(model.Buffers, model.BuffersLength(), file_bytes)
    codes = _each(model.OperatorCodes, model.OperatorCodesLength(), file_bytes)
    tensors = [
        _tensor(tensor, index, buffers)
        for index, tensor in enumerate(_each(subgraph.Tensors, subgraph.TensorsLength(), file_bytes))
    ]
    ops = [
        _op(operator, codes, tensors) for operator in _each(subgraph.Operators, subgraph.OperatorsLength(), file_bytes)
    ]
    inputs, outputs = _integers(subgraph.InputsAsNumpy()), _integers(subgraph.OutputsAsNumpy())
    return Graph(tuple(tensors), tuple(ops), inputs, outputs)


def _tensor(tensor: Any, index: int, buffers: list[Any]) -> Tensor:
    name = _printable(tensor.Name() or f"tensor_{index}".encode())
    if tensor.Type() not in _TYPES:
        raise StageError(f"tensor {name}: type number {tensor.Type()} is not supported, needed int8 or int32")
    if tensor.IsVariable() or tensor.Sparsity() is not None:
        raise StageError(f"tensor {name}: variable and sparse tensors are not supported")
    dtype = _TYPES[tensor.Type()]
    shape = _integers(tensor.ShapeAsNumpy())
    if len(shape) > _MOST_DIMENSIONS or any(side < 1 for side in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise StageError(f"tensor {name}: shape {shape}, needed at most {_MOST_DIMENSIONS} dimensions of 1 or more")
    constant = _constant(buffers[tensor.Buffer()], name, shape, dtype)
    return Tensor(name, shape, dtype, _quantisation(tensor, name), constant)


def _printable(name: bytes) -> str:
    """A damaged name must not break the sentence that quotes it."""
    return "".join(letter if letter.isprintable() else "?" for letter in name.decode("utf-8", "replace"))


def _quantisation(tensor: Any, name: str) -> Quantisation | None:
    table = tensor.Quantization()
    if table is None or table.ScaleLength() == 0:
        return None
    scale = tuple(float(value) for value in table.ScaleAsNumpy())
    zero_point = _integers(table.ZeroPointAsNumpy()) or (0,) * len(scale)
    if len(zero_point) != len(scale) or not all(math.isfinite(value) and value > 0 for value in scale):
        found = f"{len(scale)} scales and {len(zero_point)} zero points"
        raise StageError(f"tensor {name}: {found}, needed pairs, and scales above 0")
    return Quantisation(scale, zero_point, table.QuantizedDimension())


def _constant(buffer: Any, name: str, shape: tuple[int, ...], dtype: DType) -> np.ndarray | None:
    if buffer.DataLength() == 0:
        if buffer.Offset() > 1 or buffer.Size() > 1:
            raise StageError(f"tensor {name}: its data lie outside the flatbuffer, which is not supported")
        return None
    raw = buffer.DataAsNumpy().tobytes()
    if len(raw) != math.prod(shape) * ITEM_BYTES[dtype]:
        raise StageError(f"tensor {name}: {len(raw)} B of data, needed {math.prod(shape) * ITEM_BYTES[dtype]} B")
    return np.frombuffer(raw, dtype=np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _op(operator: Any, codes: list[Any], tensors: list[Tensor]) -> Op:
    code = codes[operator.OpcodeIndex()]
    # Files older than 2020 keep the number in the 8-bit field; newer ones in both while it fits.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    kind = _KIND_OF_NUMBER.get(number, f"number {number}")
    if kind not in _OPTIONS:
        raise StageError(f"operator {kind} is not supported, needed one of {', '.join(sorted(_OPTIONS))}")
    inputs, outputs = _integers(operator.InputsAsNumpy()), _integers(operator.OutputsAsNumpy())
    if not outputs or not all(-1 <= index < len(tensors) for index in inputs + outputs) or -1 in outputs:
        raise StageError(f"{kind}: operands {inputs} -> {outputs}, needed tensors 0 to {len(tensors) - 1}")
    return Op(kind, tensors[outputs[0]].name, inputs, outputs, _options(operator, kind))


def _options(operator: Any, kind: str) -> Options:
    table_name, read = _OPTIONS[kind]
    if read is None:
        return NoOptions()
    if operator.BuiltinOptionsType() != getattr(schema.BuiltinOptions, table_name):
        raise StageError(f"{kind}: options of type {operator.BuiltinOptionsType()}, needed {table_name}")
    union = operator.BuiltinOptions()
    table = getattr(schema, table_name)()
    table.Init(union.Bytes, union.Pos)
    return read(table)


def _conv_options(table: Any) -> ConvOptions:
    return ConvOptions(
        stride=(table.StrideH(), table.StrideW()),
        padding=_PADDINGS[table.Padding()],
        dilation=(table.DilationHFactor(), table.DilationWFactor()),
        activation=_activation(table),
        depth_multiplier=table.DepthMultiplier() if hasattr(table, "DepthMultiplier") else 1,
    )


def _pool_options(table: Any) -> PoolOptions:
    return PoolOptions(
        filter=(table.FilterHeight(), table.FilterWidth()),
        stride=(table.StrideH(), table.StrideW()),
        padding=_PADDINGS[table.Padding()],
        activation=_activation(table),
    )


def _fully_connected_options(table: Any) -> ActivationOptions:
    if table.WeightsFormat() != schema.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise StageError("FULLY_CONNECTED: shuffled weights are not supported, needed the default format")
    return ActivationOptions(_activation(table))


def _activation(table: Any) -> Activation:
    number = table.FusedActivationFunction()
    if number not in _ACTIVATIONS:
        raise StageError(f"fused activation number {number} is not supported, needed none, relu or relu6")
    return _ACTIVATIONS[number]


_KIND_OF_NUMBER = {
    number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int) and name.isupper()
}
_OPTIONS: dict[str, tuple[str, Callable[[Any], Options] | None]] = {
    "CONV_2D": ("Conv2DOptions", _conv_options),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", _conv_options),
    "FULLY_CONNECTED": ("FullyConnectedOptions", _fully_connected_options),
    "AVERAGE_POOL_2D": ("Pool2DOptions", _pool_options),
    "MAX_POOL_2D": ("Pool2DOptions", _pool_options),
    "ADD": ("AddOptions", lambda table: ActivationOptions(_activation(table))),
    "MUL": ("MulOptions", lambda table: ActivationOptions(_activation(table))),
    "SOFTMAX": ("SoftmaxOptions", lambda table: SoftmaxOptions(table.Beta())),
    "MEAN": ("ReducerOptions", None),  # whether the axes are kept shows in the output's shape
    "RESHAPE": ("ReshapeOptions", None),
    "PAD": ("PadOptions", None),
    "RELU": ("", None),
    "RELU6": ("", None),
}
