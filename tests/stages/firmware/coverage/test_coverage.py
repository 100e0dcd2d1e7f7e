"""Operators and combinations that files of others have: the bytes of TensorFlow Lite Micro, on host and twin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stages.firmware.model_source import compile_model
from stages.graph.arithmetic.int8_reference import run_graph, sample_shape
from stages.graph.graph import Graph
from stages.graph.simplify.simplification import simplify
from stages.graph.tflite.reader import read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.coverage.networks import NETWORKS, coverage_network
from tests.stages.firmware.host_models import build_host_models, tflm_outputs
from tests.stages.firmware.twin_models import twin_outputs

_SAMPLES = 6
_AT_LEAST = 60


def inputs_of(graph: Graph) -> list[np.ndarray]:
    """Random ones, and the two extremes."""
    rng, found = np.random.default_rng(11), []
    for index in graph.inputs:
        tensor = graph.tensors[index]
        limits = np.iinfo(tensor.dtype)
        drawn = rng.integers(limits.min, limits.max + 1, (_SAMPLES, *sample_shape(tensor))).astype(tensor.dtype)
        drawn[-2], drawn[-1] = limits.min, limits.max
        found.append(drawn)
    return found


def as_compiled(name: str) -> Graph:
    """Written, read and simplified, as `pipeline compile` does it."""
    return simplify(read_tflite(write_tflite(coverage_network(name), "test")))


def bytes_of(graph: Graph, found: dict[int, np.ndarray]) -> np.ndarray:
    rows = [np.ascontiguousarray(found[index]).reshape(_SAMPLES, -1).view(np.int8) for index in graph.outputs]
    return np.concatenate(rows, axis=1)


def test_there_are_enough_networks() -> None:
    assert len(NETWORKS) >= _AT_LEAST


@pytest.mark.parametrize("name", NETWORKS)
def test_the_reference_has_the_bytes_of_tflm(name: str) -> None:
    stored, graph = coverage_network(name), as_compiled(name)
    given = inputs_of(stored)
    wanted = tflm_outputs(stored, given)
    found = bytes_of(graph, run_graph(graph, given, keep_all=False))
    assert np.array_equal(found, wanted), f"{np.count_nonzero(found != wanted)} of {wanted.size} bytes"
    assert len(np.unique(wanted)) > 2, "nothing was computed"


def test_compiled_for_the_host_they_have_the_bytes_of_tflm(tmp_path: Path) -> None:
    graphs = {name: as_compiled(name) for name in NETWORKS}
    program = build_host_models(list(graphs.values()), tmp_path)
    wrong = []
    for number, name in enumerate(graphs):
        stored = coverage_network(name)
        given = inputs_of(stored)
        if not np.array_equal(program.run(number, given), tflm_outputs(stored, given)):
            wrong.append(name)
    assert wrong == []


def test_on_the_twin_they_have_the_bytes_of_tflm(tmp_path: Path) -> None:
    names = list(NETWORKS)
    models = [compile_model(as_compiled(name), weights="fast", runtime="overlap", chains=()) for name in names]
    given = [inputs_of(coverage_network(name)) for name in names]
    found = twin_outputs(models, given, tmp_path)
    wanted = [tflm_outputs(coverage_network(name), each) for name, each in zip(names, given, strict=True)]
    assert [n for n, f, w in zip(names, found, wanted, strict=True) if not np.array_equal(f, w)] == []
