"""A .tflite file as a Graph of the operators that we know.

The bytes are checked first (see `structure`), then read through flatbuffers' own accessors; indices are checked
here, before they are used, lengths before lists become Python values, and whatever still goes wrong inside an accessor
means a damaged file. What comes back has consistent shapes (see op_check). Constants are views into the file's bytes;
what operators compute from constants and shapes alone is a constant, too, and variables are states (see folding).
Refuses, with one sentence: damaged and huge files, control flow, unknown operators, sparse tensors.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.checks.op_check import check_graph
from stages.graph.checks.shape_rules import SHAPE_RULES
from stages.graph.graph import (
    FLOAT_KINDS,
    ITEM_BYTES,
    Activation,
    ActivationOptions,
    ConcatOptions,
    ConvOptions,
    DType,
    Graph,
    NoOptions,
    Op,
    Options,
    Padding,
    PlainOptions,
    PoolOptions,
    Quantisation,
    SoftmaxOptions,
    Tensor,
)
from stages.graph.tflite.float_functions import FLOAT_ONLY, with_byte_functions
from stages.graph.tflite.folding import FOLDED_RULES, WITHOUT_RESULT, folded, with_padding, with_states
from stages.graph.tflite.repeated import with_enlarging
from stages.graph.tflite.structure import OFFLINE_PLAN, check_structure

_Known = dict[str, tuple[str, Callable[[Any], Options]]]  # kind -> options table, and how it is read
_TYPES: dict[int, DType] = {
    schema.TensorType.FLOAT32: "float32",
    schema.TensorType.INT32: "int32",
    schema.TensorType.UINT8: "uint8",
    schema.TensorType.INT64: "int64",
    schema.TensorType.BOOL: "bool",
    schema.TensorType.INT16: "int16",
    schema.TensorType.INT8: "int8",
    schema.TensorType.RESOURCE: "resource",
}
_TYPE_NAMES = {number: name.lower() for name, number in vars(schema.TensorType).items() if isinstance(number, int)}
ACTIVATIONS: dict[int, Activation] = {
    schema.ActivationFunctionType.NONE: "none",
    schema.ActivationFunctionType.RELU: "relu",
    schema.ActivationFunctionType.RELU6: "relu6",
    schema.ActivationFunctionType.RELU_N1_TO_1: "relu_n1_to_1",
}
PADDINGS: dict[int, Padding] = {schema.Padding.SAME: "same", schema.Padding.VALID: "valid"}

# What a damaged offset makes the accessors raise; AttributeError and TypeError come from an absent table.
DAMAGE = (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, KeyError)
_LONGEST_SENTENCE = 600  # a damaged length may make a name of megabytes
_MOST_DIMENSIONS = 6
_MOST_ELEMENTS = 2**31 - 1  # TensorFlow Lite's own index type
_LARGEST_SCALE = 2.0**60  # so that a product of two is still a number in single precision
_MOST_FILE_BYTES = 64 << 20  # no microcontroller has such a flash
_SHARED_CONSTANTS = 4  # converters let equal constants share a buffer
_MOST_OPS = 1024  # some 200 in large networks for microcontrollers
_MOST_TENSORS = 8192
_MOST_SUBGRAPHS = 16  # one that computes, and one that sets variables at the start
_MOST_STATE_ELEMENTS = 1 << 22  # a state is filled when it is read
# Lists that become Python values, and cost some 50 bytes and 0.1 us an entry then:
_MOST_ENDS = 64  # inputs, or outputs, of a network
_MOST_OPERANDS = 24  # of an operator: an LSTM has these; the widest CONCATENATION of the runtime ten
_MOST_SCALES = 1 << 20  # with zero points, of all tensors; EfficientNet-B0 has 116,000 at weights and biases
_MOST_NAME_BYTES = 4 << 20  # of all tensors; converters join names to some hundred bytes


def read_tflite(source: Path | bytes, *, as_stored: bool = False, name: str | None = None) -> Graph:
    """The graph in a .tflite file, or in its bytes; `name` is what messages call it.

    `as_stored`: operator for operator as in the file, which then can have no variables and no computed constants.
    """
    where, data = load_named(source)
    where = name or where
    try:
        graph = _graph(_model(data), len(data), as_stored)
        check_graph(graph)
    except (StageError, *DAMAGE) as error:
        raise _refusal(where, error) from error
    return graph


def read_offline_offsets(source: Path | bytes) -> tuple[int, ...] | None:
    """The arena offset of every tensor as planned in the file (-1: left to the runtime), or None without a plan."""
    content = read_note(source, OFFLINE_PLAN)
    if content is None:
        return None
    words = np.frombuffer(content[: len(content) // 4 * 4], dtype="<i4")
    if not 3 <= len(words) <= 3 + _MOST_TENSORS or len(words) != 3 + words[2]:
        found = f"{OFFLINE_PLAN} holds {len(words)} words"
        raise _refusal(load_named(source)[0], StageError(f"{found}, needed 3 and one for each tensor"))
    return _integers(words[3:])


def read_note(source: Path | bytes, name: str) -> bytes | None:
    """What the metadata of the file hold under a name, or None."""
    where, data = load_named(source)
    try:
        model = _model(data)
        for entry in _each(model.Metadata, model.MetadataLength()):
            if entry.Name() == name.encode():
                buffers = _each(model.Buffers, model.BuffersLength())
                return bytes(buffers[entry.Buffer()].DataAsNumpy().tobytes())
    except (StageError, *DAMAGE) as error:
        raise _refusal(where, error) from error
    return None


def _refusal(where: str, error: Exception) -> StageError:
    if isinstance(error, StageError):
        sentence = f"{where}: {error}"
        half = _LONGEST_SENTENCE // 2  # what was needed stands at the end
        cut = len(sentence) > _LONGEST_SENTENCE
        return StageError(f"{sentence[:half]} ... {sentence[-half:]}" if cut else sentence)
    return StageError(f"{where}: damaged .tflite ({error}), needed a whole file; fetch or export it again")


def load_named(source: Path | bytes) -> tuple[str, bytes]:
    """How to call the file in a sentence, and its bytes; refuses what cannot be a network."""
    if isinstance(source, bytes):
        return "model", source
    where = printable(str(source))
    try:
        if source.exists() and not source.is_file():
            raise StageError(f"{where}: not a file, needed a .tflite file")
        if source.stat().st_size > _MOST_FILE_BYTES:
            found = f"{source.stat().st_size} B"
            raise StageError(f"{where}: {found}, needed a .tflite file of at most {_MOST_FILE_BYTES} B")
        return where, source.read_bytes()
    except OSError as error:
        raise StageError(f"{where}: cannot be read ({error.strerror}), needed a .tflite file") from error


def _model(data: bytes) -> Any:
    check_structure(data)
    return schema.Model.GetRootAs(data, 0)


def _each(item: Callable[[int], Any], count: int) -> list[Any]:
    """All entries of a vector of tables."""
    return [item(index) for index in range(count)]


def _integers(vector: np.ndarray | int) -> tuple[int, ...]:
    """A vector of numbers; flatbuffers gives the integer 0 for an absent one."""
    return () if isinstance(vector, int) else tuple(vector.tolist())


def _graph(model: Any, file_bytes: int, as_stored: bool) -> Graph:
    if not 1 <= model.SubgraphsLength() <= _MOST_SUBGRAPHS:
        raise StageError(f"found {model.SubgraphsLength()} subgraphs, needed 1 to {_MOST_SUBGRAPHS}")
    graph, open_shapes = _subgraph(model, 0, file_bytes)
    if as_stored:
        return graph
    numbers = {int(op.options.values[0]) for op in graph.ops if op.kind == "CALL_ONCE"}  # type: ignore[union-attr]
    if not all(0 < number < model.SubgraphsLength() for number in numbers):
        raise StageError(f"CALL_ONCE of subgraphs {sorted(numbers)}, needed 1 to {model.SubgraphsLength() - 1}")
    first = [folded(*_subgraph(model, number, file_bytes)) for number in sorted(numbers)]
    found = with_states(folded(graph, open_shapes), first)
    return with_byte_functions(with_enlarging(with_padding(found)))


def _subgraph(model: Any, number: int, file_bytes: int) -> tuple[Graph, frozenset[int]]:
    """And the tensors whose shapes are placeholders."""
    subgraph = model.Subgraphs(number)
    if subgraph.OperatorsLength() > _MOST_OPS or subgraph.TensorsLength() > _MOST_TENSORS:
        found = f"{subgraph.OperatorsLength()} operators and {subgraph.TensorsLength()} tensors"
        raise StageError(f"found {found}, needed at most {_MOST_OPS} and {_MOST_TENSORS}")
    stored = _each(subgraph.Tensors, subgraph.TensorsLength())
    _check_lengths(subgraph, stored)
    buffers = _each(model.Buffers, model.BuffersLength())
    codes = _each(model.OperatorCodes, model.OperatorCodesLength())
    tensors = [_tensor(tensor, index, buffers) for index, tensor in enumerate(stored)]
    if sum(tensor.nbytes for tensor in tensors if tensor.data is not None) > _SHARED_CONSTANTS * file_bytes:
        raise StageError("the constants unfold to far more than the file holds, needed buffers of their own")
    ops = [_op(each, codes, tensors) for each in _each(subgraph.Operators, subgraph.OperatorsLength())]
    inputs, outputs = _integers(subgraph.InputsAsNumpy()), _integers(subgraph.OutputsAsNumpy())
    is_open = (index for index, tensor in enumerate(stored) if _is_open(tensor))
    return Graph(tuple(tensors), tuple(ops), inputs, outputs), frozenset(is_open).difference(inputs)


def _is_open(tensor: Any) -> bool:
    count = tensor.ShapeSignatureLength()
    return 0 < count <= _MOST_DIMENSIONS and bool((tensor.ShapeSignatureAsNumpy() == -1).any())


def _check_lengths(subgraph: Any, tensors: list[Any]) -> None:
    grids = [grid for tensor in tensors if (grid := tensor.Quantization()) is not None]
    for found, most, what in (
        (subgraph.InputsLength(), _MOST_ENDS, "inputs"),
        (subgraph.OutputsLength(), _MOST_ENDS, "outputs"),
        (sum(grid.ScaleLength() + grid.ZeroPointLength() for grid in grids), _MOST_SCALES, "scales and zero points"),
        (sum(len(tensor.Name() or b"") for tensor in tensors), _MOST_NAME_BYTES, "B of tensor names"),
    ):
        if found > most:
            raise StageError(f"found {found} {what}, needed at most {most}")


def _tensor(tensor: Any, index: int, buffers: list[Any]) -> Tensor:
    name = printable((tensor.Name() or f"tensor_{index}".encode()).decode("utf-8", "replace"))
    is_packed = tensor.Type() == schema.TensorType.INT4
    if tensor.Type() not in _TYPES and not is_packed:
        found = _TYPE_NAMES.get(tensor.Type(), f"type number {tensor.Type()}")
        raise StageError(
            f"tensor {name}: {found} is not supported, needed int8 or int16, or int32 for biases and shapes"
        )
    if tensor.Sparsity() is not None or tensor.ExternalBuffer() != 0:
        raise StageError(f"tensor {name}: sparse and external tensors are not supported")
    dtype = "int8" if is_packed else _TYPES[tensor.Type()]
    shape, grid = _shape(tensor, name), _quantisation(tensor, name)
    stored = buffers[tensor.Buffer()]
    constant = _unpacked(stored, name, shape) if is_packed else _constant(stored, name, shape, dtype)
    if tensor.IsVariable():
        start = grid.zero_point[0] if grid and dtype == "int8" else 0  # the runtime's own choice
        if constant is not None or math.prod(shape) > _MOST_STATE_ELEMENTS:
            raise StageError(f"tensor {name}: a variable of shape {shape} with or without data, needed a small one")
        constant = np.full(shape, start, dtype)
    return Tensor(name, shape, dtype, grid, constant, is_state=bool(tensor.IsVariable()))


def _shape(tensor: Any, name: str) -> tuple[int, ...]:
    needed = f"needed at most {_MOST_DIMENSIONS} dimensions of 1 or more"
    if tensor.ShapeLength() > _MOST_DIMENSIONS:
        raise StageError(f"tensor {name}: {tensor.ShapeLength()} dimensions, {needed}")
    shape = _integers(tensor.ShapeAsNumpy())
    if shape == (0,) and tensor.Type() in (schema.TensorType.INT32, schema.TensorType.INT64):
        return shape  # the shape of a number, which has no axes
    if any(side < 1 for side in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise StageError(f"tensor {name}: shape {shape}, {needed} and {_MOST_ELEMENTS} elements")
    return shape


def printable(name: str) -> str:
    """A damaged name must not break the sentence that quotes it, nor the picture that shows it."""
    return name if name.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in name)


def _quantisation(tensor: Any, name: str) -> Quantisation | None:
    table = tensor.Quantization()
    if table is None or table.ScaleLength() == 0:
        return None
    scale = tuple(table.ScaleAsNumpy().tolist())
    zero_point = _integers(table.ZeroPointAsNumpy()) or (0,) * len(scale)
    if len(zero_point) != len(scale):
        found = f"{len(scale)} scales and {len(zero_point)} zero points"
        raise StageError(f"tensor {name}: {found}, needed pairs")
    for value in scale:
        if not 0 <= value < _LARGEST_SCALE:  # 0 is legal for weights that are all zero: see quantisation_check
            raise StageError(f"tensor {name}: a scale of {value:g}, needed 0 or more and below {_LARGEST_SCALE:g}")
    return Quantisation(scale, zero_point, table.QuantizedDimension())


def _constant(buffer: Any, name: str, shape: tuple[int, ...], dtype: DType) -> np.ndarray | None:
    if buffer.DataLength() == 0:
        if buffer.Offset() > 1 or buffer.Size() > 1:
            raise StageError(f"tensor {name}: its data lie outside the flatbuffer, which is not supported")
        return np.zeros(shape, dtype) if shape == (0,) else None
    raw = buffer.DataAsNumpy()
    if len(raw) != math.prod(shape) * ITEM_BYTES[dtype]:
        raise StageError(f"tensor {name}: {len(raw)} B of data, needed {math.prod(shape) * ITEM_BYTES[dtype]} B")
    return raw.view(np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _unpacked(buffer: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """int4 weights as int8: two of them in a byte, the lower half first."""
    count = math.prod(shape)
    if buffer.DataLength() != (count + 1) // 2:
        raise StageError(f"tensor {name}: {buffer.DataLength()} B of int4, needed {(count + 1) // 2} B of constants")
    raw = buffer.DataAsNumpy().view(np.int8)
    return np.stack([raw << 4 >> 4, raw >> 4], axis=1).reshape(-1)[:count].reshape(shape)


def _op(operator: Any, codes: list[Any], tensors: list[Tensor]) -> Op:
    code = codes[operator.OpcodeIndex()]
    # Files older than 2020 keep the number in the 8-bit field; newer ones in both while it fits.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    kind = _KIND_OF_NUMBER.get(number, f"number {number}")
    if kind not in _KNOWN:
        named = f" {printable(code.CustomCode().decode('utf-8', 'replace'))}" if code.CustomCode() else ""
        reason = _WHY_NOT.get(kind, f"needed one of {', '.join(sorted(_KNOWN))}")
        raise StageError(f"operator {kind}{named} is not supported, {reason}")
    lengths = operator.InputsLength(), operator.IntermediatesLength(), operator.OutputsLength()
    if max(lengths) > _MOST_OPERANDS:
        found = "{} inputs, {} intermediates and {} outputs".format(*lengths)
        raise StageError(f"{kind}: {found}, needed at most {_MOST_OPERANDS} of each")
    inputs, outputs = _integers(operator.InputsAsNumpy()), _integers(operator.OutputsAsNumpy())
    is_complete = bool(outputs) or kind in WITHOUT_RESULT
    if not is_complete or not all(-1 <= index < len(tensors) for index in inputs + outputs) or -1 in outputs:
        raise StageError(f"{kind}: operands {inputs} -> {outputs}, needed tensors 0 to {len(tensors) - 1}")
    name = tensors[outputs[0]].name if outputs else kind.lower()
    if kind == "TRANSPOSE_CONV" and len(inputs) in (3, 4):  # here the shape of the result comes last, not first
        inputs = (inputs[2], inputs[1], inputs[3] if len(inputs) == 4 else -1, inputs[0])
    return Op(kind, name, inputs, outputs, _options(operator, kind))


def _options(operator: Any, kind: str) -> Options:
    table_name, read = _KNOWN[kind]
    if operator.BuiltinOptions2Type() != 0:
        raise StageError(f"{kind}: options of StableHLO, type {operator.BuiltinOptions2Type()}, needed {table_name}")
    found = operator.BuiltinOptionsType()
    union = operator.BuiltinOptions()
    if (found == schema.BuiltinOptions.NONE or union is None) and kind in _OPTIONS_MAY_BE_ABSENT:
        return PlainOptions() if kind in _PLAIN else NoOptions()
    if found != getattr(schema.BuiltinOptions, table_name):
        raise StageError(f"{kind}: options of type {found}, needed {table_name}")
    table = getattr(schema, table_name)()
    table.Init(union.Bytes, union.Pos)
    return read(table)


def _no_options(table: Any) -> NoOptions:
    return NoOptions()


def _reshape_options(table: Any) -> NoOptions:
    """The output's shape says everything; but a list that is kept when the file is written again must be short."""
    if table.NewShapeLength() > _MOST_DIMENSIONS:
        raise StageError(f"RESHAPE: to {table.NewShapeLength()} dimensions, needed at most {_MOST_DIMENSIONS}")
    return NoOptions()


def _conv_options(table: Any) -> ConvOptions:
    return ConvOptions(
        stride=(table.StrideH(), table.StrideW()),
        padding=PADDINGS[table.Padding()],
        dilation=(table.DilationHFactor(), table.DilationWFactor()),
        activation=_activation(table),
        depth_multiplier=table.DepthMultiplier() if hasattr(table, "DepthMultiplier") else 1,
    )


def _transpose_conv_options(table: Any) -> ConvOptions:
    return ConvOptions((table.StrideH(), table.StrideW()), PADDINGS[table.Padding()], (1, 1), _activation(table))


def _pool_options(table: Any) -> PoolOptions:
    return PoolOptions(
        filter=(table.FilterHeight(), table.FilterWidth()),
        stride=(table.StrideH(), table.StrideW()),
        padding=PADDINGS[table.Padding()],
        activation=_activation(table),
    )


def _fully_connected_options(table: Any) -> ActivationOptions:
    if table.WeightsFormat() != schema.FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise StageError("FULLY_CONNECTED: shuffled weights are not supported, needed the default format")
    return ActivationOptions(_activation(table))


def _activation(table: Any) -> Activation:
    number = table.FusedActivationFunction()
    if number not in ACTIVATIONS:
        raise StageError(f"fused activation number {number} is not supported, needed none, relu, relu6 or relu_n1_to_1")
    return ACTIVATIONS[number]


def _plain_options(fields: tuple[str, ...], table: Any) -> PlainOptions:
    return PlainOptions(tuple(_number(getattr(table, field)()) for field in fields))


def _number(value: Any) -> float:
    if isinstance(value, bytes) or value is None:  # the name of a variable, as a number that stands for it
        return zlib.crc32(value or b"")
    return float(value) if isinstance(value, float) else int(value)


_KIND_OF_NUMBER = {
    number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int) and name.isupper()
}
_OPTIONS: _Known = {
    "CONV_2D": ("Conv2DOptions", _conv_options),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", _conv_options),
    "FULLY_CONNECTED": ("FullyConnectedOptions", _fully_connected_options),
    "TRANSPOSE_CONV": ("TransposeConvOptions", _transpose_conv_options),
    "AVERAGE_POOL_2D": ("Pool2DOptions", _pool_options),
    "MAX_POOL_2D": ("Pool2DOptions", _pool_options),
    "ADD": ("AddOptions", lambda table: ActivationOptions(_activation(table))),
    "SUB": ("SubOptions", lambda table: ActivationOptions(_activation(table))),
    "MUL": ("MulOptions", lambda table: ActivationOptions(_activation(table))),
    "DIV": ("DivOptions", lambda table: ActivationOptions(_activation(table))),
    "SOFTMAX": ("SoftmaxOptions", lambda table: SoftmaxOptions(table.Beta())),
    "CONCATENATION": ("ConcatenationOptions", lambda table: ConcatOptions(table.Axis(), _activation(table))),
    "MEAN": ("ReducerOptions", _no_options),  # whether the axes are kept shows in the output's shape
    "RESHAPE": ("ReshapeOptions", _reshape_options),
    "PAD": ("PadOptions", _no_options),
    "RELU": ("NONE", _no_options),
    "RELU6": ("NONE", _no_options),
    "LOGISTIC": ("NONE", _no_options),
    "HARD_SWISH": ("HardSwishOptions", _no_options),
    "QUANTIZE": ("QuantizeOptions", _no_options),
    "DEQUANTIZE": ("DequantizeOptions", _no_options),
}
_PLAIN: _Known = {
    kind: (each.table, partial(_plain_options, each.fields))
    for kind, each in (SHAPE_RULES | FOLDED_RULES).items()
    if kind not in FLOAT_KINDS
} | {kind: (table, partial(_plain_options, ())) for kind, table in FLOAT_ONLY.items()}
_KNOWN = _OPTIONS | _PLAIN
_OPTIONS_MAY_BE_ABSENT = frozenset(
    kind for kind, (_, read) in _OPTIONS.items() if read in (_no_options, _reshape_options)
).union(FLOAT_ONLY, (kind for kind, each in (SHAPE_RULES | FOLDED_RULES).items() if each.may_lack_table))
_WHY_NOT = {
    "CUSTOM": "needed TensorFlow Lite's own operators; a network with a custom one runs only where that is linked in",
    **dict.fromkeys(
        ("L2_POOL_2D", "GELU", "POW"),
        "TensorFlow Lite Micro computes it in float at most, needed operators with an int8 kernel",
    ),
    **dict.fromkeys(("WHILE", "IF"), "needed a network without control flow; unroll loops before converting"),
}
