"""memory.json: every activation at its place and time, against what a hand-made graph needs."""

from __future__ import annotations

from stages.graph.memory.arena_layout import ArenaLayout, arena_layout
from stages.graph.memory.memory_record import memory_record
from tests.stages.graph.int8_graphs import Int8Builder


def chain() -> tuple[Int8Builder, int, int, int]:
    builder = Int8Builder(0)
    x = builder.input(4, 4, 8)
    y = builder.unary("RELU6", x)
    return builder, x, y, builder.unary("RELU6", y)


def test_blocks_that_are_alive_during_an_op_are_what_it_needs() -> None:
    builder, *_, last = chain()
    graph = builder.graph(last)
    record = memory_record(graph, arena_layout(graph))
    assert [(op.kind, op.live_bytes) for op in record.ops] == [
        (op.kind, live) for op, live in zip(graph.ops, arena_layout(graph).live_bytes, strict=True)
    ]
    for now, op in enumerate(record.ops):
        spans = [(t.offset, t.offset + t.size_bytes) for t in record.tensors if t.start < now + 1 and t.end > now]
        assert len({byte for start, end in spans for byte in range(start, end)}) == op.live_bytes
    assert [tensor.kind for tensor in record.tensors] == ["input", "RELU6", "RELU6"]
    assert record.tensors[-1].end == len(graph.ops)


def test_an_output_over_a_part_of_its_input_shares_the_column() -> None:
    builder, x, y, z = chain()
    graph = builder.graph(z)
    offsets = [-1] * len(graph.tensors)
    offsets[x], offsets[y], offsets[z] = 16, 0, 512
    record = memory_record(graph, ArenaLayout(tuple(offsets), 640, 640, False, (144, 256)))
    assert [(tensor.start, tensor.end) for tensor in record.tensors] == [(0.0, 0.5), (0.5, 2.0), (1.0, 2.0)]
