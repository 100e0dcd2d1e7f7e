"""layers.csv: what each op of the network needs before and after pruning (paper, appendix 'Post-pruning architecture').

Memory is the bytes alive while the op runs, in the best order of that network and in the budget's runtime, so the
largest one is the peak.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from stages.graph.graph import Graph
from stages.graph.memory.overlap import Runtime
from stages.graph.memory.resources import op_macs, op_size_bytes, order_problem


@dataclass(frozen=True)
class LayerRow:
    """One op; both networks have the same ops, only narrower."""

    index: int
    op: str
    name: str
    channels_before: int
    channels_after: int
    memory_bytes_before: int
    memory_bytes_after: int
    macs_before: int
    macs_after: int
    size_bytes_before: int
    size_bytes_after: int


def layer_rows(before: Graph, after: Graph, runtime: Runtime) -> Iterator[LayerRow]:
    """The ops in the order of the layers."""
    memory_before, memory_after = _memory_bytes(before, runtime), _memory_bytes(after, runtime)
    for index, (old, new) in enumerate(zip(before.ops, after.ops, strict=True)):
        assert old.name == new.name  # the kind may differ: a depthwise convolution of one channel is a plain one
        yield LayerRow(
            index=index,
            op=old.kind,
            name=old.name,
            channels_before=before.tensors[old.outputs[0]].shape[-1],
            channels_after=after.tensors[new.outputs[0]].shape[-1],
            memory_bytes_before=memory_before[index],
            memory_bytes_after=memory_after[index],
            macs_before=op_macs(before, old),
            macs_after=op_macs(after, new),
            size_bytes_before=op_size_bytes(before, old),
            size_bytes_after=op_size_bytes(after, new),
        )


def write_layers(path: Path, before: Graph, after: Graph, runtime: Runtime) -> Path:
    with path.open("w", newline="") as stream:
        names = [field.name for field in fields(LayerRow)]
        writer = csv.DictWriter(stream, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in layer_rows(before, after, runtime))
    return path


def _memory_bytes(graph: Graph, runtime: Runtime) -> dict[int, int]:
    """Bytes alive while each op runs."""
    problem = order_problem(graph, runtime)
    order = problem.solve().order
    return {op: round(alive) for op, alive in zip(order, problem.live_bytes(order), strict=True)}
