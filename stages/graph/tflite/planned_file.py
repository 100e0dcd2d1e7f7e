"""A .tflite file in another operator order and with an arena plan; everything else in it stays as it was.

Works on the objects that the schema unpacks, not on a Graph, which models only part of a file: metadata, signatures,
shape signatures, operator versions and custom options all survive, and so do files packed behind the network (see
associated_files). Constants start at multiples of 16 bytes afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers.builder import BuilderSizeError

from pipeline.errors import StageError
from stages.graph.graph import Graph
from stages.graph.tflite.associated_files import with_files_of
from stages.graph.tflite.float_edges import StrippedGraph, strip_float_edges
from stages.graph.tflite.reader import DAMAGE, read_tflite
from stages.graph.tflite.structure import MARK, OFFLINE_PLAN, check_structure
from stages.graph.tflite.writer import AlignedBuffer, plan_words, write_tflite

ORDER_DEPENDENT = b"model_control_dependencies"  # metadata that names operators by their position


def unpack(content: bytes) -> Any:
    """The file as a tree of objects (schema.ModelT)."""
    check_structure(content)
    try:
        return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    except DAMAGE as error:
        raise StageError(f"damaged .tflite ({error}), needed a whole file; fetch or export it again") from error


def pack(model: Any) -> bytes:
    """The bytes of a tree of objects."""
    model.buffers = [_aligned(buffer) for buffer in model.buffers]
    builder = flatbuffers.Builder(1024)
    try:
        builder.Finish(model.Pack(builder), file_identifier=MARK)
    except BuilderSizeError as error:
        raise StageError("the new file would take more than 2 GiB, needed a network for a microcontroller") from error
    return bytes(builder.Output())


def may_reorder(model: Any) -> bool:
    """Whether nothing in the file refers to operators by position."""
    return all(entry.name != ORDER_DEPENDENT for entry in model.metadata or ())


def reorder(model: Any, order: Sequence[int]) -> None:
    """Put the operators into another order."""
    operators = model.subgraphs[0].operators
    model.subgraphs[0].operators = [operators[number] for number in order]


def set_plan(model: Any, offsets: Sequence[int]) -> None:
    """Plan the arena: one offset for each tensor, -1 for those that need none."""
    content = np.frombuffer(plan_words(offsets), dtype=np.uint8)
    entries = [entry for entry in model.metadata or () if entry.name == OFFLINE_PLAN.encode()]
    if entries:
        # The buffer may serve something else, too; the plan gets one of its own then.
        if _is_shared(model, entries[0].buffer):
            entries[0].buffer = _add_buffer(model, content)
        else:
            model.buffers[entries[0].buffer].data = content
        kept = [entry for entry in model.metadata if entry is entries[0] or entry.name != OFFLINE_PLAN.encode()]
        model.metadata = kept
        return
    entry = schema.MetadataT()
    entry.name = OFFLINE_PLAN.encode()
    entry.buffer = _add_buffer(model, content)
    model.metadata = [*(model.metadata or ()), entry]


def without_float_edges(content: bytes, *, name: str | None = None) -> bytes:
    """The file of the int8 network between float edges; without edges, and with all shapes in it, the same bytes."""
    whole = read_tflite(content, name=name)
    if _has_open_shapes(content, whole):  # which the runtime would believe
        return write_tflite(strip_float_edges(whole).graph, "with the shapes that it has")
    return stripped_file(content, name=name)[0] if strip_float_edges(whole).has_edges else content


def _has_open_shapes(content: bytes, graph: Graph) -> bool:
    """Whether the file holds other shapes than the graph that was read from it."""
    subgraph = schema.Model.GetRootAs(content, 0).Subgraphs(0)
    stored = (subgraph.Tensors(index) for index in range(subgraph.TensorsLength()))
    return any(
        tensor.data is None and tuple(map(int, found.ShapeAsNumpy() if found.ShapeLength() else ())) != tensor.shape
        for found, tensor in zip(stored, graph.tensors, strict=False)
    )


def stripped_file(content: bytes, *, name: str | None = None) -> tuple[bytes, StrippedGraph]:
    """The same, and what was taken away; operator for operator as it is stored, where the network is that."""
    loose = not_as_stored(content, name=name)
    edges = strip_float_edges(loose or read_tflite(content, as_stored=True, name=name))
    if not edges.has_edges:
        return content, edges
    if loose:
        return with_files_of(content, write_tflite(edges.graph, "without its float edges")), edges
    tree = unpack(content)
    _strip_edges(tree, edges)
    return with_files_of(content, pack(tree)), edges


def not_as_stored(content: bytes, *, name: str | None = None) -> Graph | None:
    """The network, if it is another than the file's operators: variables are states, constants are folded."""
    try:
        read_tflite(content, as_stored=True, name=name)
    except StageError:
        return read_tflite(content, name=name)
    return None


def _strip_edges(model: Any, stripped: StrippedGraph) -> None:
    """Take the float edges out of the file, too; the plan it may hold is for other tensors and goes with them."""
    subgraph = model.subgraphs[0]
    new_index = {old: new for new, old in enumerate(stripped.kept_tensors)}
    inputs, outputs = (list(map(int, side)) for side in (subgraph.inputs, subgraph.outputs))
    for old, new in (
        *zip(inputs, stripped.graph.inputs, strict=True),
        *zip(outputs, stripped.graph.outputs, strict=True),
    ):
        new_index[old] = new
    subgraph.inputs, subgraph.outputs = list(stripped.graph.inputs), list(stripped.graph.outputs)
    subgraph.tensors = [subgraph.tensors[index] for index in stripped.kept_tensors]
    subgraph.operators = [subgraph.operators[number] for number in stripped.kept_ops]
    for operator in subgraph.operators:
        for field in ("inputs", "outputs", "intermediates"):
            indices = getattr(operator, field)
            if indices is not None:
                setattr(operator, field, [new_index.get(int(index), -1) for index in indices])
    for signature in model.signatureDefs or ():
        for entry in (*(signature.inputs or ()), *(signature.outputs or ())):
            entry.tensorIndex = new_index.get(entry.tensorIndex, entry.tensorIndex)
    drop_plan(model)


def drop_plan(model: Any) -> None:
    """Leave the arena to the runtime."""
    if model.metadata is not None:
        model.metadata = [entry for entry in model.metadata if entry.name != OFFLINE_PLAN.encode()]


def _is_shared(model: Any, buffer: int) -> bool:
    users = [entry.buffer for entry in model.metadata]
    users += [tensor.buffer for tensor in model.subgraphs[0].tensors]
    return not 0 < buffer < len(model.buffers) or users.count(buffer) > 1


def _add_buffer(model: Any, content: np.ndarray) -> int:
    buffer = schema.BufferT()
    buffer.data = content
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def _aligned(buffer: Any) -> Any:
    if buffer.data is None:
        return buffer
    made = AlignedBuffer(bytes(np.asarray(buffer.data, dtype=np.uint8)))
    made.offset, made.size = buffer.offset, buffer.size
    return made
