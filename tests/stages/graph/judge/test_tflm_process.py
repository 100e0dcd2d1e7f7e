"""TensorFlow Lite Micro in a process of its own: what it costs to ask it, how it ends, and how it counts its arena."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.judge.tflm import arena_limit_bytes, first_difference
from stages.graph.judge.tflm_plan import runtime_head_bytes, runtime_plan, scratch_bytes
from stages.graph.judge.tflm_process import _steps, check_affordable, run_isolated
from stages.graph.memory.resources import op_macs
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network


def squeeze_and_excite(seed: int) -> Graph:
    """Means ask the runtime for scratch buffers."""
    builder = Int8Builder(seed)
    x = builder.conv(builder.input(6, 6, 3), 24, (3, 3), ConvOptions(activation="relu"))
    pooled = builder.mean(x, (1, 2), keep=True)
    gate = builder.unary("LOGISTIC", builder.conv(pooled, 24, (1, 1), ConvOptions()))
    scaled = builder.elementwise("MUL", x, gate, ActivationOptions())
    joined = builder.concatenate(3, builder.unary("HARD_SWISH", scaled), builder.conv(x, 8, (1, 1), ConvOptions()))
    return builder.graph(builder.mean(joined, (1, 2), keep=False))


def test_the_head_that_is_foreseen_is_that_of_the_runtime_even_for_odd_plans() -> None:
    """Scratch buffers go into gaps, tensors that nobody touches count as well."""
    for seed in (0, 2, 5):
        graph = squeeze_and_excite(seed)
        unused = replace(graph.tensors[graph.inputs[0]], name="unused", shape=(1, 40, 40, 1 + seed))
        graph = replace(graph, tensors=(*graph.tensors, unused))
        plan = runtime_plan(graph)
        content = write_tflite(graph, "test", plan.offsets)
        inputs = [random_inputs(graph, 1)[:, np.newaxis]]
        assert run_isolated(content, graph, inputs).head_bytes == plan.head_bytes


def test_a_network_of_half_a_billion_multiplications_may_be_tried_on_200_samples() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(224, 224, 3), 64, (3, 3), ConvOptions(stride=(2, 2)))
    x = builder.conv(x, 64, (3, 3), ConvOptions())
    graph = builder.graph(builder.mean(x, (1, 2), keep=False))
    assert sum(op_macs(graph, op) for op in graph.ops) > 480e6
    check_affordable(graph, 200)


def test_an_op_is_estimated_by_its_inner_loop_and_its_values() -> None:
    builder = Int8Builder(0)
    x = builder.input(6, 5, 4)
    wide = builder.conv(x, 8, (3, 3), ConvOptions())
    deep = builder.depthwise(wide, (3, 3), ConvOptions(stride=(2, 2)))
    curve = builder.unary("LOGISTIC", deep)
    pooled = builder.pool("MAX_POOL_2D", curve, PoolOptions((9, 2), (1, 1), "same"))
    graph = builder.graph(builder.fully_connected(builder.flatten(pooled), 2, ActivationOptions()))
    assert [_steps(graph, op) for op in graph.ops] == [
        30 * 9 * 4 * 8 + 20 * 30 * 8,
        9 * 9 * 8 * 5 + 20 * 30 * 8,  # five steps for each of its multiply-accumulates; its input is the larger
        80 * 9 * 8,
        9 * 8 * 3 * 2 + 20 * 9 * 8,  # windows end at the border
        20 * 9 * 8,
        9 * 8 * 2 + 20 * 9 * 8,
    ]


def input_of(values: int) -> Graph:
    builder = Int8Builder(0)
    return builder.graph(builder.unary("RELU", builder.input(values)))


def test_memory_and_samples_are_limited_before_anything_is_made() -> None:
    graph = input_of(1 << 20)
    assert arena_limit_bytes(graph) == 2 * (1 << 20) + 2 * 256 + (1 << 20)
    check_affordable(graph, 64)  # 64 * 2 MB is all there may be
    with pytest.raises(
        StageError, match="inputs and outputs of 65 samples take 136314880 B, needed at most 134217728 B"
    ):
        check_affordable(graph, 65)
    with pytest.raises(StageError, match="the tensors take 537919800 B, needed at most 536870912 B"):
        check_affordable(input_of(268435356), 1)
    with pytest.raises(StageError, match=r"one inference takes about 2\.4e\+09 steps, needed at most 2e\+09"):
        check_affordable(input_of(120_000_000), 0)


def test_how_the_runtime_ended_is_said_with_its_last_words() -> None:
    graph = residual_network(0)
    inputs = [random_inputs(graph, 1)[:, np.newaxis]]
    damaged = write_tflite(graph, "test")[:-64] + bytes(64)
    words = r"refused the model \([^;]+; Node ADD \(number 4\) failed to prepare with status 1; [^;]+\)"
    with pytest.raises(StageError, match=rf"^TensorFlow Lite Micro {words}$"):
        run_isolated(damaged, graph, inputs)


def test_the_runtime_places_scratch_in_the_lowest_gap() -> None:
    builder = Int8Builder(0)
    x = builder.input(4, 4, 8)
    mean = builder.mean(x, (1, 2), keep=True)
    graph = builder.graph(mean)
    assert scratch_bytes(graph) == [32]
    at = {x: 0, mean: 128}
    offsets = tuple(at.get(index, -1) for index in range(len(graph.tensors)))
    assert runtime_head_bytes(graph, offsets) == 144 + 32  # 32 B more behind input and output
    between = tuple({x: 0, mean: 160}.get(index, -1) for index in range(len(graph.tensors)))
    assert runtime_head_bytes(graph, between) == 176  # or in the gap between
    short = tuple({x: 0, mean: 144}.get(index, -1) for index in range(len(graph.tensors)))
    assert runtime_head_bytes(graph, short) == 160 + 32


def test_the_first_op_that_differs_is_named_with_how_much() -> None:
    graph = residual_network(0)
    ours = {op.outputs[0]: np.zeros((3, 4), np.int8) for op in graph.ops}
    assert first_difference(graph, ours, {index: values.reshape(12) for index, values in ours.items()}) is None
    theirs = ours | {graph.ops[3].outputs[0]: np.array([[0, 0, 5, -7]] * 3), graph.ops[4].outputs[0]: ours[3] + 1}
    found = first_difference(graph, ours, theirs)
    assert found == f"op 3 ({graph.ops[3].title}): 6 of 12 values differ, by up to 7"
