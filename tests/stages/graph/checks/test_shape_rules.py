"""Ops of files of others: inspect and optimize plan them, TensorFlow Lite Micro runs them, all believe their shapes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from pipeline.errors import StageError
from stages.graph.checks.shape_rules import SHAPE_RULES
from stages.graph.graph import FLOAT_KINDS, ConvOptions, Graph, Op, PlainOptions, Tensor
from stages.graph.judge.tflm_process import run_isolated
from stages.graph.memory.op_order import OrderProblem
from stages.graph.memory.resources import op_macs
from stages.graph.tflite import planned_file
from stages.graph.tflite.reader import read_tflite
from stages.tools.inspection import inspect, inspected
from stages.tools.optimisation import optimised, optimize
from tests.stages.graph.checks.plain_graphs import PlainBuilder, one_plain
from tests.stages.graph.int8_graphs import random_inputs
from tests.stages.graph.tflite.test_planned_file import plain
from tests.stages.graph.tflite.test_reader import edited


def branching() -> bytes:
    """Both halves of a SPLIT are kept while the wide map is made; the other way round needs less."""
    make = PlainBuilder(3)
    x = make.input(8, 8, 4)
    halves = make.add_op(
        "SPLIT", (make.integers([3]), make.conv(x, 16, (1, 1), ConvOptions())), *[(1, 8, 8, 8)] * 2, numSplits=2
    )
    (left,) = make.add_op("TANH", (halves[0],), (1, 8, 8, 8))
    (right,) = make.add_op("LEAKY_RELU", (halves[1],), (1, 8, 8, 8), alpha=0.2)
    wide = make.conv(x, 48, (3, 3), ConvOptions(activation="relu"))
    bounds = (make.integers([0, 0, 0, 0]), make.integers([1, 8, 8, 48]), make.integers([1, 1, 1, 6]))
    (thin,) = make.add_op("STRIDED_SLICE", (wide, *bounds), (1, 8, 8, 8), endMask=15)
    (most,) = make.add_op("MAXIMUM", (left, right), (1, 8, 8, 8))
    (rest,) = make.add_op("SUB", (most, thin), (1, 8, 8, 8))
    return make.content(*make.add_op("TRANSPOSE", (rest, make.integers([0, 3, 1, 2])), (1, 8, 8, 8)))


def least_peak(graph: Graph) -> int:
    """By trying every order, without working in place; ops may have several results."""
    readers = {
        index: {n for n, op in enumerate(graph.ops) if index in op.inputs} for index in range(len(graph.tensors))
    }
    maker = {index: n for n, op in enumerate(graph.ops) for index in op.outputs}

    def alive(index: int, done: frozenset[int]) -> bool:
        is_made = index in graph.inputs or maker.get(index) in done
        return is_made and (index in graph.outputs or not readers[index] <= done)

    def best(done: frozenset[int], peak: int) -> int:
        if len(done) == len(graph.ops):
            return peak
        before = {index for index in range(len(graph.tensors)) if alive(index, done)}
        ready = [
            n
            for n, op in enumerate(graph.ops)
            if n not in done and all(maker.get(index, -1) in done | {-1} for index in op.inputs)
        ]
        used = {n: sum(graph.tensors[index].nbytes for index in before.union(graph.ops[n].outputs)) for n in ready}
        return min(best(done | {n}, max(peak, used[n])) for n in ready)

    return best(frozenset(), 0)


def test_a_branching_network_of_shape_rules_is_inspected(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(branching())
    answer, graph = inspect(path, tmp_path / "memory.svg"), read_tflite(path)
    record = answer.record
    assert record["peak_bytes"] <= least_peak(graph) and record["peak_bytes"] < record["peak_bytes_stored"]
    assert record["order_proven_optimal"] and record["layout_proven_optimal"]
    assert record["ops_without_macs"] == 6
    convolutions = [op for op in graph.ops if op.kind == "CONV_2D"]
    assert record["macs"] == sum(op_macs(graph, op) for op in convolutions) == 64 * 4 * (16 + 9 * 48)
    kinds = "LEAKY_RELU, MAXIMUM, SPLIT, STRIDED_SLICE, TANH, TRANSPOSE"
    assert answer.text.splitlines()[-1].split()[:6] == ["8", "TRANSPOSE", "TRANSPOSE19", "1x8x8x8", "-", "0"]
    assert f"without 6 ops that have none in this count: {kinds}" in answer.text


def test_it_is_optimised_with_the_same_bits_and_keeps_its_options(tmp_path: Path) -> None:
    path, out = tmp_path / "model.tflite", tmp_path / "out.tflite"
    path.write_bytes(branching())
    record = optimize(path, out).record
    assert record["reordered"] and record["arena_bytes"] < record["arena_bytes_before"]
    graph, better = (read_tflite(each) for each in (path, out))
    inputs = [random_inputs(graph, 200)[:, np.newaxis]]
    before, after = run_isolated(path.read_bytes(), graph, inputs), run_isolated(out.read_bytes(), better, inputs)
    np.testing.assert_array_equal(before.outputs[0], after.outputs[0])
    assert len(np.unique(before.outputs[0])) > 50
    assert after.head_bytes == record["arena_bytes"]
    old, new = (planned_file.unpack(each.read_bytes()).subgraphs[0] for each in (path, out))
    assert plain([old.operators[number] for number in record["order"]]) == plain(new.operators)


WITH_SCRATCH = {"MIRROR_PAD", "REDUCE_MAX", "REDUCE_MIN", "SUM"}  # some bytes more than a plan knows
# Not in the runtime, or not as one operator; or see coverage.
NOT_HERE = {"TILE", "BATCH_MATMUL", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", *FLOAT_KINDS}


@pytest.mark.parametrize("kind", sorted(set(SHAPE_RULES) - NOT_HERE))
def test_the_runtime_has_every_kind_and_its_arena_is_as_planned(kind: str) -> None:
    found = optimised(one_plain(kind), 5)
    assert kind in [op.kind for op in found.graph.ops]
    assert found.arena_bytes <= found.arena_bytes_before
    if kind not in WITH_SCRATCH:
        assert found.arena_bytes == found.plan.head_bytes and not found.keeps_own_plan


def test_constant_values_of_an_op_count_as_size_and_axes_do_not() -> None:
    sizes = {kind: inspected(read_tflite(one_plain(kind))).size_bytes for kind in ("PRELU", "TRANSPOSE")}
    assert sizes == {"PRELU": 8, "TRANSPOSE": 0}


@pytest.mark.parametrize("kind", ["WHILE", "CUSTOM", "HASHTABLE"])
def test_control_flow_and_custom_ops_stay_refused(kind: str, tmp_path: Path) -> None:
    def change(model: Any) -> None:
        code = model.operatorCodes[-1]
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)

    path = tmp_path / "model.tflite"
    path.write_bytes(edited(branching(), change))
    for command in (inspect, optimize):
        with pytest.raises(StageError, match=rf"model\.tflite: operator {kind} is not supported, needed "):
            command(path, tmp_path / "out")


def of_table(table: str, **fields: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for operator in model.subgraphs[0].operators:
            if operator.builtinOptionsType == getattr(schema.BuiltinOptions, table):
                vars(operator.builtinOptions).update(fields)

    return change


def first_integers(values: list[int]) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        tensor = next(each for each in model.subgraphs[0].tensors if each.name.startswith(b"integers"))
        model.buffers[tensor.buffer].data = np.array(values, np.int32).view(np.uint8)

    return change


def computed_integers(model: Any) -> None:
    tensors = model.subgraphs[0].tensors
    place = next(number for number, each in enumerate(tensors) if each.name.startswith(b"integers"))
    tensors[place].buffer = 0
    model.subgraphs[0].inputs = [*model.subgraphs[0].inputs, place]


def without_scale(model: Any) -> None:
    next(each for each in model.subgraphs[0].tensors if each.name.startswith(b"TANH")).quantization = None


def without_table(model: Any) -> None:
    operator = model.subgraphs[0].operators[1]
    operator.builtinOptions, operator.builtinOptionsType = None, 0


@pytest.mark.parametrize(
    "kind, spoil, sentence",
    [
        ("UNPACK", of_table("UnpackOptions", num=2**31 - 1), "UNPACK UNPACK2: operands of shapes .* fit together"),
        ("UNPACK", of_table("UnpackOptions", axis=4), "UNPACK UNPACK2: operands of shapes .* fit together"),
        ("PACK", of_table("PackOptions", valuesCount=4), "PACK PACK5: operands of shapes .* fit together"),
        ("SPLIT", of_table("SplitOptions", numSplits=3), "SPLIT SPLIT3: operands of shapes .* fit together"),
        ("SPLIT", first_integers([1]), r"SPLIT SPLIT3: outputs of shapes .*, needed \[\(1, 3, 4, 8\), "),
        ("SPLIT", without_table, "SPLIT: options of type 0, needed SplitOptions"),
        ("TRANSPOSE", first_integers([0, 1, 1, 3]), "TRANSPOSE TRANSPOSE3: .* do not fit together"),
        (
            "TRANSPOSE",
            computed_integers,
            "TRANSPOSE TRANSPOSE3: tensor integers2 is int32, needed int8 or int16 with one",
        ),
        ("SLICE", first_integers([0, 2, 2, 5]), r"SLICE SLICE4: .* do not fit together"),
        ("STRIDED_SLICE", of_table("StridedSliceOptions", ellipsisMask=1), "STRIDED_SLICE .* do not fit together"),
        ("MIRROR_PAD", first_integers([0, 0, 6, 1, 3, 0, 0, 0]), "MIRROR_PAD .* do not fit together"),
        ("RESIZE_BILINEAR", first_integers([10, 8]), r"outputs of shapes \[\(1, 9, 8, 8\)\], needed \[\(1, 10, 8, 8\)"),
        ("SQUEEZE", of_table("SqueezeOptions", squeezeDims=np.zeros(3_000_000, np.int32)), "SQUEEZE SQUEEZE2: "),
        ("TANH", without_scale, "TANH TANH2: tensor TANH2 is int8, needed int8 or int16 with one scale"),
    ],
)
def test_what_a_kernel_would_believe_is_checked(kind: str, spoil: Callable[[Any], None], sentence: str) -> None:
    content = edited(one_plain(kind), spoil)
    started = time.process_time()
    with pytest.raises(StageError, match=rf"^model: .*{sentence}"):
        read_tflite(content)
    assert time.process_time() - started < 0.3


def test_mutated_files_are_inspected_or_refused_in_a_sentence() -> None:
    content, draw, refused = branching(), np.random.default_rng(0), 0
    for _ in range(300):
        mutated = bytearray(content)
        for _ in range(int(draw.integers(1, 6))):
            mutated[int(draw.integers(len(content)))] = int(draw.integers(256))
        try:
            assert inspected(read_tflite(bytes(mutated))).ops
        except StageError as error:
            assert "\n" not in str(error)
            refused += 1
    assert 50 < refused < 295


def random_graph(seed: int) -> Graph:
    """Seven ops with one to three results each, some of which nobody reads."""
    draw = random.Random(seed)
    tensors, ops = [Tensor("x", (draw.randint(1, 6),), "int8")], []
    for number in range(7):
        sources = tuple({draw.randrange(len(tensors)) for _ in range(draw.randint(1, 2))})
        results = tuple(range(len(tensors), len(tensors) + draw.choice((1, 1, 2, 3))))
        tensors += [Tensor(f"t{index}", (draw.randint(1, 9),), "int8") for index in results]
        ops.append(Op("SPLIT", f"op{number}", sources, results, PlainOptions()))
    return Graph(tuple(tensors), tuple(ops), (0,), (len(tensors) - 1,))


@pytest.mark.parametrize("seed", range(0, 200, 50))
def test_no_order_of_ops_with_several_results_beats_the_one_found(seed: int) -> None:
    for graph in map(random_graph, range(seed, seed + 50)):
        found = OrderProblem(graph).solve()
        assert found.proven_optimal and found.peak_bytes == least_peak(graph)
