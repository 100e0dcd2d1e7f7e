"""RAM never above TensorFlow Lite Micro's: scratch memory gives way where a small network would notice it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stages.firmware.economy import compile_within
from stages.firmware.model_source import compile_model
from stages.graph.graph import ActivationOptions, ConvOptions, Graph
from stages.graph.memory.runtime_bound import runtime_bytes
from stages.graph.tflite.writer import write_tflite
from tests.benchmarks.firmware.runtime_ram import KERNELS, our_bytes, runtime_total_bytes
from tests.benchmarks.subjects.benchmark_networks import anomaly_detector, dscnn, tiny_conv
from tests.stages.firmware.coverage.networks import coverage_network
from tests.stages.firmware.host_models import tflm_outputs
from tests.stages.firmware.twin_models import twin_outputs
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs


@pytest.mark.parametrize(
    "graph",
    [tiny_conv(), anomaly_detector(), *(coverage_network(name) for name in ("LSTM", "Conv1D", "int16 audio"))],
    ids=["micro_speech-like", "anomaly detector", "LSTM", "Conv1D", "int16"],
)
def test_a_network_takes_no_more_ram_than_on_tflm(graph: Graph) -> None:
    content = write_tflite(graph, "test")
    theirs = runtime_total_bytes(content)
    assert runtime_bytes(graph) <= theirs
    assert max(our_bytes(content, weights) for weights in KERNELS) <= theirs


def test_where_there_is_room_no_kernel_gives_way() -> None:
    graph = dscnn()
    free = compile_model(graph, weights="fast", runtime="overlap")
    assert compile_within(graph, runtime_bytes(graph), weights="fast").calls == free.calls


def test_whole_tensors_to_compare_with_keep_the_fast_kernels() -> None:
    graph = dscnn()
    free = compile_model(graph, weights="fast", runtime="classic")
    assert compile_within(graph, 1, weights="fast", runtime="classic").calls == free.calls


def test_buffers_shrink_first_and_portable_kernels_come_last() -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.conv(builder.input(12, 12, 4), 8, (3, 3), ConvOptions()))
    free = compile_model(graph, weights="fast", runtime="overlap")
    lean = compile_within(graph, free.working_bytes - 1, weights="fast")
    assert lean.calls[0].kernel == free.calls[0].kernel and lean.scratch_bytes < free.scratch_bytes
    leanest = compile_within(graph, lean.working_bytes - 1, weights="fast")
    assert leanest.calls[0].kernel == "conv_2d" and leanest.scratch_bytes < lean.scratch_bytes
    assert compile_within(graph, 1, weights="fast").working_bytes == leanest.working_bytes


def test_a_long_vector_on_the_portable_kernel_has_the_bits_of_tflm(tmp_path: Path) -> None:
    """Four outputs at a time on the Cortex-M7, what is left one by one; depths that are no whole words."""
    graphs = []
    for depth, outputs in ((64, 4), (37, 6), (130, 3), (3, 9)):
        builder = Int8Builder(depth)
        graphs.append(builder.graph(builder.fully_connected(builder.input(depth), outputs, ActivationOptions())))
    inputs = [random_inputs(graph, 3, seed=2) for graph in graphs]
    found = twin_outputs([compile_model(graph) for graph in graphs], inputs, tmp_path)
    for graph, values, ours in zip(graphs, inputs, found, strict=True):
        assert np.array_equal(ours, tflm_outputs(graph, values))
