"""What files say in several operators, or in one that the runtime does not have, and what is read instead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import StageError
from stages.graph.arithmetic.int8_reference import run_graph
from stages.graph.graph import FLOAT_KINDS, Graph, NoOptions, Op, PlainOptions, Quantisation, Tensor
from stages.graph.judge.tflm import run_tflm
from stages.graph.tflite.float_functions import with_float_functions
from stages.graph.tflite.reader import read_offline_offsets, read_tflite
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.coverage.builder import Builder
from tests.stages.firmware.host_models import tflm_outputs

EVERY_BYTE = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 16, 16)


def function(kind: str, source: Quantisation, result: Quantisation) -> Graph:
    shape = EVERY_BYTE.shape
    tensors = Tensor("x", shape, "int8", source), Tensor("y", shape, "int8", result)
    return Graph(tensors, (Op(kind, "y", (0,), (1,), PlainOptions()),), (0,), (1,))


@pytest.mark.parametrize("kind", FLOAT_KINDS)
def test_a_function_in_float_is_the_table_that_the_runtime_makes_of_three_operators(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for _ in range(5):
        grids = [
            Quantisation((float(np.float32(10 ** rng.uniform(-3, 0))),), (int(rng.integers(-128, 128)),)) for _ in "xy"
        ]
        stored = function(kind, *grids)
        assert [op.kind for op in with_float_functions(stored).ops] == ["DEQUANTIZE", FLOAT_KINDS[kind], "QUANTIZE"]
        graph = read_tflite(write_tflite(stored, "test"))
        assert [op.kind for op in graph.ops] == [kind]
        found = run_graph(graph, EVERY_BYTE)[graph.outputs[0]]
        np.testing.assert_array_equal(found.reshape(1, -1), tflm_outputs(stored, [EVERY_BYTE]))


def test_an_int8_operator_that_the_runtime_lacks_is_read_as_that_table() -> None:
    stored = function("EXP", Quantisation((0.02,), (3,)), Quantisation((0.1,), (-128,)))
    graph = read_tflite(write_tflite(stored, "test"))
    assert [op.kind for op in graph.ops] == ["FLOAT_EXP"]
    found = run_graph(graph, EVERY_BYTE)[graph.outputs[0]].reshape(-1).astype(int)
    exact = np.exp(0.02 * (EVERY_BYTE.reshape(-1).astype(int) - 3)) / 0.1 - 128
    assert np.abs(found - np.clip(exact, -128, 127)).max() <= 0.5 + 1e-4


def test_a_network_with_a_table_keeps_its_plan_and_the_runtime_places_what_is_added() -> None:
    stored = function("FLOAT_NEG", Quantisation((0.02,), (3,)), Quantisation((0.02,), (-3,)))
    planned = write_tflite(stored, "test", [0, 256])
    assert read_offline_offsets(planned) == (0, 256, -1, -1)
    np.testing.assert_array_equal(run_tflm(planned, stored, EVERY_BYTE), run_graph(stored, EVERY_BYTE)[1])


def in_float(*ops: Op, count: int = 4) -> Graph:
    """Bytes at both ends of `count` tensors, float between them."""
    grid = Quantisation((0.02,), (3,))
    ends = [Tensor(name, (1, 4), "int8", grid) for name in "xy"]
    between = [Tensor(f"real{number}", (1, 4), "float32") for number in range(count - 2)]
    return Graph((*ends, *between), ops, (0,), (1,))


def test_a_function_that_stays_in_float_is_refused() -> None:
    graph = in_float(
        Op("DEQUANTIZE", "real0", (0,), (2,), NoOptions()),
        Op("NEG", "real1", (2,), (3,), PlainOptions()),
        Op("SQUARE", "real2", (3,), (4,), PlainOptions()),
        Op("QUANTIZE", "y", (4,), (1,), NoOptions()),
        count=5,
    )
    words = "operator NEG is not supported, needed int8 operators, or NEG between a DEQUANTIZE and a QUANTIZE of int8"
    with pytest.raises(StageError, match=words):
        read_tflite(write_tflite(graph, "test"))


def test_two_functions_may_read_one_dequantised_tensor() -> None:
    whole = in_float(
        Op("DEQUANTIZE", "real0", (0,), (2,), NoOptions()),
        Op("NEG", "real1", (2,), (3,), PlainOptions()),
        Op("ABS", "real2", (2,), (4,), PlainOptions()),
        Op("QUANTIZE", "y", (3,), (1,), NoOptions()),
        Op("QUANTIZE", "z", (4,), (5,), NoOptions()),
        count=5,
    )
    whole = replace(whole, tensors=(*whole.tensors, replace(whole.tensors[1], name="z")), outputs=(1, 5))
    graph = read_tflite(write_tflite(whole, "test"))
    assert [op.kind for op in graph.ops] == ["FLOAT_NEG", "FLOAT_ABS"]
    x = np.array([[-128, -7, 3, 127]], np.int8)
    found = run_graph(graph, x)
    np.testing.assert_array_equal(
        np.concatenate([found[index].reshape(1, -1) for index in graph.outputs], axis=1), tflm_outputs(whole, [x])
    )


@pytest.mark.parametrize("axis", [1, 2])
def test_lines_that_are_repeated_by_a_tile_are_an_image_that_is_enlarged(axis: int) -> None:
    make = Builder(0)
    x = make.input(3, 4, 5)
    wide, apart = [1, 3, 4, 5], [1, 3, 4, 5]
    wide[axis] *= 2
    apart.insert(axis + 1, 1)
    counts = [1, 1, 1, 1, 1]
    counts[axis + 1] = 2
    tiled = [side * count for side, count in zip(apart, counts, strict=True)]
    first = make.plain("EXPAND_DIMS", (x, make.integers([axis + 1])), tuple(apart))
    tile = make.plain("TILE", (first, make.integers(counts)), tuple(tiled))
    result = make.reshape(tile, tuple(wide))
    graph = read_tflite(write_tflite(make.graph(result), "test"))
    assert [op.kind for op in graph.ops] == ["RESIZE_NEAREST_NEIGHBOR"]
    values = np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 5), dtype=np.int8)
    np.testing.assert_array_equal(tflm_outputs(graph, [values]).reshape(2, *wide[1:]), np.repeat(values, 2, axis=axis))
    kept = read_tflite(write_tflite(make.graph(result, tile), "test"))
    assert [op.kind for op in kept.ops] == ["EXPAND_DIMS", "TILE", "RESHAPE"], "somebody reads what lies between"
