"""A network that takes and gives floats, but computes in int8 between a QUANTIZE and a DEQUANTIZE: without those two.

On a microcontroller the caller quantises, or has int8 data to begin with; the float edges would only cost memory
(4 bytes per value) and time. The scales that they applied are reported, so that nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.errors import StageError
from stages.graph.graph import Graph

_BYTES = ("int8", "uint8", "int16")
HOW_TO_QUANTISE = "quantise a float network with: pipeline import FLOAT.tflite --data X.npy -o INT8.tflite"


@dataclass(frozen=True)
class FloatEdge:
    """A float input or output of the file and the grid of the int8 tensor that takes its place."""

    name: str
    scale: float
    zero_point: int


@dataclass(frozen=True)
class StrippedGraph:
    """The int8 network, and what of the file is left in it."""

    graph: Graph
    inputs: tuple[FloatEdge | None, ...]  # per input of the network; None: it was int8 already
    outputs: tuple[FloatEdge | None, ...]
    kept_ops: tuple[int, ...]  # op of the whole graph at each position
    kept_tensors: tuple[int, ...]  # likewise

    @property
    def has_edges(self) -> bool:
        return any(self.inputs) or any(self.outputs)


def strip_float_edges(graph: Graph) -> StrippedGraph:
    """Replace float inputs and outputs by the int8 tensors behind them; without such edges the graph stays as it is."""
    readers: dict[int, list[int]] = {}
    for number, op in enumerate(graph.ops):
        for tensor in dict.fromkeys(op.inputs):
            readers.setdefault(tensor, []).append(number)
    replaced: dict[int, int] = {}  # float tensor -> int8 tensor
    dropped: set[int] = set()
    for number, op in enumerate(graph.ops):
        source, result = op.inputs[0], op.outputs[0]
        if op.kind == "QUANTIZE" and source in graph.inputs and graph.tensors[source].dtype == "float32":
            if readers[source] == [number] and source not in graph.outputs:
                replaced[source] = result
                dropped.add(number)
        elif op.kind == "DEQUANTIZE" and result in graph.outputs and result not in readers:
            replaced[result] = source
            dropped.add(number)
    kept_ops = tuple(number for number in range(len(graph.ops)) if number not in dropped)
    kept_tensors = tuple(index for index in range(len(graph.tensors)) if index not in replaced)
    return StrippedGraph(
        graph=_cut(graph, replaced, kept_ops, kept_tensors) if replaced else graph,
        inputs=tuple(_edge(graph, tensor, replaced.get(tensor)) for tensor in graph.inputs),
        outputs=tuple(_edge(graph, tensor, replaced.get(tensor)) for tensor in graph.outputs),
        kept_ops=kept_ops,
        kept_tensors=kept_tensors,
    )


def require_int8(graph: Graph, name: str | None = None) -> None:
    """Raise StageError unless every activation is int8; float at the edges has to be stripped before.

    At the edges uint8 may stand before or behind a QUANTIZE, and int32 as the result of an ARG_MAX.
    """
    touched = {*graph.inputs, *graph.outputs}
    for op in graph.ops:
        touched.update((*graph.activations_of(op), *op.outputs))
    for index in sorted(touched):
        tensor = graph.tensors[index]
        if tensor.dtype not in _BYTES and not (tensor.dtype == "int32" and index in graph.outputs):
            needed = "a full int8 network, with float32 only outside of a QUANTIZE or DEQUANTIZE at its edges"
            advice = f"; {HOW_TO_QUANTISE}" if tensor.dtype == "float32" else ""
            found = f"{f'{name}: ' if name else ''}tensor {tensor.name} is {tensor.dtype}"
            raise StageError(f"{found}, needed {needed}{advice}")


def _cut(graph: Graph, replaced: dict[int, int], kept_ops: tuple[int, ...], kept_tensors: tuple[int, ...]) -> Graph:
    if not kept_ops:
        raise StageError("nothing is left without the float edges, needed a network between them")
    inputs, outputs = (tuple(replaced.get(index, index) for index in side) for side in (graph.inputs, graph.outputs))
    return replace(graph.in_order(kept_ops), inputs=inputs, outputs=outputs).with_tensors(kept_tensors)


def _edge(graph: Graph, outer: int, inner: int | None) -> FloatEdge | None:
    if inner is None:
        return None
    grid = graph.tensors[inner].quantisation
    assert grid, "op_check wants a grid on every int8 operand"
    return FloatEdge(graph.tensors[outer].name, grid.scale[0], grid.zero_point[0])
