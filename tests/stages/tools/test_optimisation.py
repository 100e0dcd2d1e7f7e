"""optimize: less arena, the same bits, nothing half-written; and how the runtime counts its arena."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.judge.tflm import arena_head_bytes, run_tflm
from stages.graph.judge.tflm_plan import RuntimePlan, runtime_plan
from stages.graph.judge.tflm_process import TflmRun
from stages.graph.tflite import planned_file
from stages.graph.tflite.float_edges import strip_float_edges
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.writer import write_tflite
from stages.tools.optimisation import _text, _verify_arena, _verify_outputs, optimised, optimize
from tests.stages.firmware.coverage.networks import coverage_network
from tests.stages.graph.int8_graphs import NO_MODELS, THIRD_PARTY_MODELS, Int8Builder, random_inputs, residual_network
from tests.stages.graph.judge.test_tflm_process import squeeze_and_excite
from tests.stages.graph.tflite.test_float_edges import float_network


def two_branches(seed: int = 0) -> Graph:
    """The wide branch stands first in the file; the small one first would need less."""
    builder = Int8Builder(seed)
    x = builder.input(8, 8, 4)
    wide = builder.conv(x, 32, (1, 1), ConvOptions(activation="relu"))
    left = builder.pool("MAX_POOL_2D", wide, PoolOptions((8, 8), (8, 8)))
    wider = builder.conv(x, 48, (1, 1), ConvOptions())
    right = builder.pool("MAX_POOL_2D", wider, PoolOptions((8, 8), (8, 8)))
    left, right = (builder.conv(side, 8, (1, 1), ConvOptions()) for side in (left, right))
    return builder.graph(builder.elementwise("ADD", left, right, ActivationOptions()))


def badly_ordered(graph: Graph) -> Graph:
    """Both maps are made before either is pooled."""
    kinds = [graph.ops[number] for number in (0, 2, 1, 3, 4, 5, 6)]
    return replace(graph, ops=tuple(kinds))


def test_a_bad_order_is_mended_and_the_outputs_keep_their_bits(tmp_path: Path) -> None:
    graph = badly_ordered(two_branches())
    model, out = tmp_path / "model.tflite", tmp_path / "better.tflite"
    model.write_bytes(write_tflite(graph, "test"))
    answer = optimize(model, out)
    record = answer.record
    assert record["reordered"] and record["order_proven_optimal"] and not record["keeps_own_plan"]
    assert record["peak_bytes_stored"] == 64 * (4 + 32 + 48)
    assert record["peak_bytes"] == 64 * 48 + 64 * 4 + 8
    assert record["arena_bytes"] < record["arena_bytes_before"]
    better = read_tflite(out)
    assert arena_head_bytes(out.read_bytes(), better) == record["arena_bytes"]
    inputs = random_inputs(graph, 30)
    np.testing.assert_array_equal(
        run_tflm(out.read_bytes(), better, inputs), run_graph(graph, inputs)[graph.outputs[0]]
    )
    assert answer.text.splitlines() == [
        f"{model} -> {out}",
        "arena of TensorFlow Lite Micro   5,376 B -> 3,344 B (37.8 % saved)",
        "peak of the operator order       5,376 B -> 3,336 B, proven minimal; order changed",
        "layout                           proven minimal for this order",
        "outputs                          bit-identical on 20 random inputs",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["better.tflite", "model.tflite"]


@pytest.mark.parametrize("seed", range(4))
def test_scratch_buffers_of_the_runtime_are_part_of_the_plan(seed: int) -> None:
    found = optimised(write_tflite(squeeze_and_excite(seed), "test"), 5)
    assert found.arena_bytes == found.plan.head_bytes <= found.arena_bytes_before
    assert found.plan.layout.arena_bytes >= found.plan.head_bytes


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    model, once, twice = (tmp_path / f"{name}.tflite" for name in ("model", "once", "twice"))
    model.write_bytes(write_tflite(badly_ordered(two_branches()), "test"))
    optimize(model, once)
    record = optimize(once, twice).record
    assert once.read_bytes() == twice.read_bytes()
    assert record["arena_bytes"] == record["arena_bytes_before"] and not record["reordered"]


def test_float_edges_are_taken_out_and_their_scales_told(tmp_path: Path) -> None:
    model, out = tmp_path / "model.tflite", tmp_path / "out.tflite"
    model.write_bytes(write_tflite(float_network(), "test"))
    answer = optimize(model, out)
    graph = read_tflite(out)
    assert [graph.tensors[index].dtype for index in (*graph.inputs, *graph.outputs)] == ["int8", "int8"]
    assert [op.kind for op in graph.ops] == ["CONV_2D", "CONV_2D", "ADD"]
    grid = graph.tensors[graph.inputs[0]].quantisation
    assert grid
    edge = {"name": "input0", "scale": grid.scale[0], "zero_point": grid.zero_point[0]}
    assert answer.record["float_inputs"] == [edge]
    words = f"input0: now int8, scale {grid.scale[0]:.9g}, zero point {grid.zero_point[0]}"
    assert f"\nfloat input stripped             {words}\nfloat output stripped            " in answer.text
    assert answer.record["arena_bytes"] < answer.record["arena_bytes_before"]


def test_networks_with_several_inputs_and_outputs_are_optimised() -> None:
    builder = Int8Builder(3)
    first, second = builder.input(4, 4, 6), builder.input(4, 4, 6)
    total = builder.elementwise("ADD", first, second, ActivationOptions())
    graph = builder.graph(builder.conv(total, 3, (1, 1), ConvOptions()), builder.unary("RELU", total))
    found = optimised(write_tflite(graph, "test"), 8)
    assert found.arena_bytes <= found.arena_bytes_before


def test_the_runtimes_own_plan_is_kept_where_ours_would_be_larger() -> None:
    def wasteful(graph: Graph) -> RuntimePlan:
        plan = runtime_plan(graph)
        moved = tuple(offset + 4096 for offset in plan.offsets)
        return replace(plan, head_bytes=plan.head_bytes + 4096, offsets=moved)

    graph = residual_network(0)
    content = write_tflite(graph, "test")
    before = arena_head_bytes(content, graph)
    found = optimised(content, 3, planner=wasteful)
    assert found.keeps_own_plan and found.arena_bytes == before
    assert f"layout                           the runtime's own is better than the {before + 4096:,} B found" in (
        _text(Path("a"), Path("b"), found)
    )
    assert read_offline_offsets(found.content) is None


def test_a_plan_by_which_tensors_spoil_each_other_is_replaced() -> None:
    graph = two_branches()
    content = write_tflite(graph, "test", [0] * len(graph.tensors))
    found = optimised(content, 5)
    assert found.plan_was_wrong and found.arena_bytes == found.plan.head_bytes
    assert "plan in the old file             wrong, it spoils the outputs" in _text(Path("a"), Path("b"), found)
    layout = replace(found.plan.layout, proven_optimal=False, lower_bound_bytes=1000)
    best = replace(found.best_order, proven_optimal=False, lower_bound_bytes=2000.0)
    unproven = _text(Path("a"), Path("b"), replace(found, plan=replace(found.plan, layout=layout), best_order=best))
    assert "-> 3,336 B, not proven (no order needs less than 2,000 B); order changed" in unproven
    assert "layout                           not proven (no layout needs less than 1,000 B)" in unproven
    inputs = random_inputs(graph, 10)
    np.testing.assert_array_equal(
        run_tflm(found.content, found.graph, inputs), run_graph(graph, inputs)[graph.outputs[0]]
    )


def test_a_model_that_ends_the_runtime_is_refused_in_a_sentence(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    x = builder.input(1, 1, 4000)
    builder.set_grid(x, 1e-4, 0)  # all exponentials are near 1: their sum overflows, and the runtime aborts
    path, out = tmp_path / "softmax.tflite", tmp_path / "out.tflite"
    path.write_bytes(write_tflite(builder.graph(builder.softmax(x)), "test"))
    with pytest.raises(StageError, match=r"softmax\.tflite: TensorFlow Lite Micro was ended by SIGABRT"):
        optimize(path, out)
    assert not out.exists()


def test_a_model_that_the_runtime_refuses_is_refused_in_a_sentence(tmp_path: Path) -> None:
    tree = planned_file.unpack(write_tflite(residual_network(0), "test"))
    planned_file.set_plan(tree, [0, 0, 0])  # for 3 of 18 tensors
    path = tmp_path / "model.tflite"
    path.write_bytes(planned_file.pack(tree))
    with pytest.raises(StageError, match=r"TensorFlow Lite Micro refused the model \(.*offline buffer offsets"):
        optimize(path, tmp_path / "out.tflite")


def relu_of(*shape: int) -> Graph:
    builder = Int8Builder(0)
    return builder.graph(builder.unary("RELU", builder.input(*shape)))


def pooled_padding() -> Graph:
    """One value, padded to a map of 64 MB, and 6,400 times the largest of 16 million of its values."""
    builder = Int8Builder(0)
    wide = builder.pad(builder.input(1, 1, 1), (4000, 3999), (4000, 3999), (0, 0))
    return builder.graph(builder.pool("MAX_POOL_2D", wide, PoolOptions((4000, 4000), (100, 100), "same")))


@pytest.mark.parametrize(
    "graph, sentence",
    [
        (relu_of(40_000, 40_000, 1), r"the tensors take 3201049088 B, needed at most 536870912 B"),
        (relu_of(15_000, 15_000, 1), r"inputs and outputs of 20 samples take 9000000000 B, needed at most 134217728 B"),
        (pooled_padding(), r"one inference takes about 1\.0e\+11 steps, needed at most 2e\+09"),
    ],
    ids=["arena", "samples", "time"],
)
def test_a_small_file_that_asks_for_much_is_refused_before_anything_is_drawn(
    graph: Graph, sentence: str, tmp_path: Path
) -> None:
    path, out = tmp_path / "model.tflite", tmp_path / "out.tflite"
    path.write_bytes(write_tflite(graph, "test"))
    started = time.process_time()
    with pytest.raises(StageError, match=rf"model\.tflite: {sentence} to try the network here"):
        optimize(path, out)
    assert time.process_time() - started < 1
    assert not out.exists()


def test_outputs_that_differ_and_arenas_that_grow_are_never_written() -> None:
    graph = residual_network(0)
    edges = strip_float_edges(graph)
    before = TflmRun((np.array([[1, 2, 3]], np.int8),), 100)
    _verify_outputs(edges, before, before)
    with pytest.raises(StageError, match="output 0: 2 of 3 values differ in the new file, needed equal bits"):
        _verify_outputs(edges, before, TflmRun((np.array([[1, 3, 2]], np.int8),), 100))
    _verify_arena(before, before)
    with pytest.raises(StageError, match="the arena grew from 100 B to 101 B, needed no more than before"):
        _verify_arena(before, TflmRun(before.outputs, 101))


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(residual_network(0), "test"))
    with pytest.raises(StageError, match=r"absent/out\.tflite: cannot be written \(No such file or directory\)"):
        optimize(path, tmp_path / "absent" / "out.tflite")


def test_a_folder_in_place_of_the_new_file_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is a folder, needed a file name"):
        optimize(tmp_path / "absent.tflite", tmp_path)


@pytest.mark.skipif(not THIRD_PARTY_MODELS, reason=NO_MODELS)
@pytest.mark.slow
@pytest.mark.parametrize("path", THIRD_PARTY_MODELS, ids=lambda path: path.stem)
def test_third_party_models_keep_their_bits_on_200_inputs_and_need_no_more_arena(path: Path) -> None:
    found = optimised(path.read_bytes(), 200)
    assert found.arena_bytes == found.plan.head_bytes <= found.arena_bytes_before
    assert found.plan.layout.proven_optimal and found.best_order.proven_optimal


@pytest.mark.parametrize("name", ["two streams", "int16 stream", "static shape"])
def test_a_file_with_variables_or_computed_shapes_keeps_its_order_and_gets_a_plan(name: str) -> None:
    content = write_tflite(coverage_network(name), "test")
    found = optimised(content, 4)  # each sample meets the state that the one before it left
    assert found.arena_bytes < found.arena_bytes_before and not found.is_reordered
    again = read_tflite(found.content)
    assert [op.kind for op in again.ops] == [op.kind for op in read_tflite(content).ops]
