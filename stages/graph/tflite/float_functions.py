"""Functions of one value, computed in float between a DEQUANTIZE and a QUANTIZE: one operator here, three in a file.

Converters leave an operator in float where they know no int8 one (NEG and SQUARE of a layer normalisation, ELU). From a
byte to a byte it is a table of 256 entries, so the network is an int8 one all the same. EXP and its like also stand in
files as int8 operators, which TensorFlow Lite Micro does not have: they are written as the three that it has.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.errors import StageError
from stages.graph.graph import FLOAT_KINDS, Graph, NoOptions, Op, PlainOptions

_BYTE_KINDS = {kind: ours for ours, kind in FLOAT_KINDS.items()}
# Options of those that are nothing else; in float all of them are without any.
FLOAT_ONLY = dict.fromkeys(_BYTE_KINDS.keys() - {"ABS", "ELU", "RSQRT"}, "NONE") | {
    "COS": "CosOptions",
    "EXP": "ExpOptions",
    "NEG": "NegOptions",
    "SQUARE": "SquareOptions",
}


def with_byte_functions(graph: Graph) -> Graph:
    """The very same object where there is nothing to do; a function that stays in float is refused."""
    makers = {index: op for op in graph.ops for index in op.outputs}
    readers: dict[int, list[Op]] = {}
    for op in graph.ops:
        for index in op.inputs:
            readers.setdefault(index, []).append(op)
    replaced: dict[int, Op] = {}  # by the result of the QUANTIZE
    gone: set[int] = set()
    for op in graph.ops:
        if op.kind not in _BYTE_KINDS or len(op.inputs) != 1 or len(op.outputs) != 1 or op.inputs[0] < 0:
            continue
        if op.kind in FLOAT_ONLY and _are_bytes(graph, *op.inputs, *op.outputs):
            replaced[op.outputs[0]] = replace(op, kind=_BYTE_KINDS[op.kind])
            continue
        first, last = makers.get(op.inputs[0]), readers.get(op.outputs[0], [])
        if first and len(last) == 1 and op.outputs[0] not in graph.outputs and _is_table(graph, first, last[0]):
            result = last[0].outputs[0]
            replaced[result] = Op(_BYTE_KINDS[op.kind], op.name, first.inputs, (result,), PlainOptions())
            gone.update(op.outputs)
        elif op.kind in FLOAT_ONLY:
            needed = f"needed int8 operators, or {op.kind} between a DEQUANTIZE and a QUANTIZE of int8"
            raise StageError(f"operator {op.kind} is not supported, {needed}")
    if not replaced:
        return graph
    ops = [replaced.get(op.outputs[0], op) for op in graph.ops if not gone.intersection(op.outputs)]
    used = {*graph.outputs, *(index for op in ops for index in op.inputs)}
    return replace(graph, ops=tuple(op for op in ops if op.kind != "DEQUANTIZE" or used.intersection(op.outputs)))


def _is_table(graph: Graph, first: Op, last: Op) -> bool:
    ends = *first.inputs, *last.outputs
    return (first.kind, last.kind) == ("DEQUANTIZE", "QUANTIZE") and len(ends) == 2 and _are_bytes(graph, *ends)


def _are_bytes(graph: Graph, *tensors: int) -> bool:
    return all(index >= 0 and graph.tensors[index].dtype == "int8" for index in tensors)


def with_float_functions(graph: Graph) -> Graph:
    """As a file has them; tensors that are added come behind the others."""
    if not any(op.kind in FLOAT_KINDS for op in graph.ops):
        return graph
    tensors, ops = list(graph.tensors), []
    for op in graph.ops:
        if op.kind not in FLOAT_KINDS:
            ops.append(op)
            continue
        source, names = tensors[op.inputs[0]], (f"{op.name} in", f"{op.name} out")
        tensors += [replace(source, name=name, dtype="float32", quantisation=None) for name in names]
        real, found = len(tensors) - 2, len(tensors) - 1
        ops.append(Op("DEQUANTIZE", names[0], op.inputs, (real,), NoOptions()))
        ops.append(Op(FLOAT_KINDS[op.kind], names[1], (real,), (found,), PlainOptions()))
        ops.append(Op("QUANTIZE", op.name, (found,), op.outputs, NoOptions()))
    return replace(graph, tensors=tuple(tensors), ops=tuple(ops))
