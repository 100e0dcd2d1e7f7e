"""Which region holds what: the whole arena, an arena in two parts, weights in what is left, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards import Board, load_board
from pipeline.errors import StageError
from pipeline.stage import read_json
from stages.firmware.memory.regions import VARIABLE_BYTES, place
from stages.firmware.model_source import CompiledModel, compile_model, model_source
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import ActivationOptions, ConvOptions, Graph
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.host_models import build_host_models, tflm_outputs
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network

BOARD = load_board("nucleo_h743zi2")
DTCM_BYTES = 128 * 1024


def wide_network(side: int = 60) -> Graph:
    """Three tensors, of which two are alive at once: side^2 x 8, x 40 and x 4 bytes."""
    builder = Int8Builder(0)
    x = builder.conv(builder.input(side, side, 8), 40, (1, 1), ConvOptions())
    return builder.graph(builder.conv(x, 4, (1, 1), ConvOptions()))


def compiled(graph: Graph, runtime: str = "classic") -> CompiledModel:
    return compile_model(graph, weights="fast", runtime=runtime)  # type: ignore[arg-type]


def with_dtcm(board: Board, size: int) -> Board:
    memories = {**board.memories, "dtcm": board.memories["dtcm"].model_copy(update={"size": size})}
    return board.model_copy(update={"memories": memories})


def test_an_arena_with_room_to_spare_goes_to_dtcm_with_the_weights() -> None:
    model = compiled(residual_network(0))
    placement = place(model, BOARD)
    assert (placement.region, placement.macro, placement.spill) == ("dtcm", "PLACE_FAST", None)
    assert placement.ram_weights == {i for i, op in enumerate(model.graph.ops) if len(op.inputs) == 3}
    assert place(model, BOARD, copy_weights=False).ram_weights == frozenset()


def test_weights_that_are_copied_are_not_constant_in_c() -> None:
    model = compiled(residual_network(0))
    text = model_source(model, place(model, BOARD))
    assert "\nstatic int32_t op_0_blocks[" in text
    assert "static const int32_t op_0_blocks[" in model_source(model, place(model, BOARD, copy_weights=False))


def test_an_arena_too_large_for_dtcm_is_spread_over_both() -> None:
    model = compiled(wide_network())
    placement = place(model, BOARD)
    spill = placement.spill
    assert spill is not None
    assert (placement.region, spill.region) == ("dtcm", "sram")
    # 144,000 B of 40 channels do not fit; the 28,800 B of the input and the 14,400 B of the output do.
    assert {model.graph.tensors[t].shape[3] for t in spill.first} == {8, 4}
    assert {model.graph.tensors[t].shape[3] for t in spill.second} == {40}
    assert (spill.first_bytes, spill.second_bytes) == (28_800, 144_000)
    text = model_source(model, placement)
    assert "static int8_t arena[28800] PLACE_FAST;" in text
    assert "static int8_t second_arena[144000] PLACE_BULK;" in text


def test_nothing_is_lost_and_nothing_overlaps_in_two_parts() -> None:
    model = compiled(residual_network(0), "overlap")
    for room in range(0, model.layout.arena_bytes, 64):
        board = with_dtcm(BOARD, VARIABLE_BYTES + model.scratch_bytes + room)
        placement = place(model, board, copy_weights=False)
        spill = placement.spill
        if spill is None:
            assert placement.region == "sram"
            continue
        activations = {t for op in model.graph.ops for t in (*model.graph.activations_of(op), *op.outputs)}
        assert set(spill.first) | set(spill.second) == activations
        assert not set(spill.first) & set(spill.second)
        assert spill.first_bytes <= room
        for part, size in ((spill.first, spill.first_bytes), (spill.second, spill.second_bytes)):
            assert all(o + model.graph.tensors[t].nbytes <= size for t, o in part.items())


def test_weights_that_are_read_most_often_come_first() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(8, 8, 32), 96, (3, 3), ConvOptions())  # 55 KB as int16, once for each of 8 rows
    x = builder.fully_connected(builder.flatten(x), 10, ActivationOptions())  # 61 KB as int8, once
    model = compiled(builder.graph(x))
    room = model.scratch_bytes + model.layout.arena_bytes + max(call.constant_bytes for call in model.calls)
    assert place(model, with_dtcm(BOARD, VARIABLE_BYTES + room)).ram_weights == {0}


def test_a_network_too_large_for_both_is_refused_with_the_bytes_over() -> None:
    model = compiled(wide_network(150))
    # 150 x 150 x 40 and the input outside of the arena; input and output of the arena do not fit into DTCM either.
    spilled = place_needs(model)
    over = spilled + model.input.nbytes - 512 * 1024
    with pytest.raises(StageError, match=rf"sram of nucleo_h743zi2 has 524288 B \({over} B over\); prune further"):
        place(model, BOARD)


def place_needs(model: CompiledModel) -> int:
    """What is left for the larger RAM: the x 40 tensor and the input (180,000 B), while the output fits into DTCM."""
    shapes = {t.shape[3]: t.nbytes for t in model.graph.tensors if t.data is None}
    assert shapes[8] > DTCM_BYTES > shapes[4]
    return shapes[40] + shapes[8]


def test_a_network_computes_the_same_with_its_arena_in_two_parts(tmp_path: Path) -> None:
    graph = residual_network(0)
    model = compiled(graph, "overlap")
    board = with_dtcm(BOARD, VARIABLE_BYTES + model.scratch_bytes + model.layout.arena_bytes - 64)
    placement = place(model, board)
    assert placement.spill is not None
    inputs = random_inputs(graph, 5)
    outputs = build_host_models([graph], tmp_path, "fast", placement).run(0, inputs)
    assert np.array_equal(outputs, tflm_outputs(graph, inputs))


def test_the_footprint_says_which_region_holds_what(tmp_path: Path) -> None:
    graph = wide_network()
    (tmp_path / "model.tflite").write_bytes(write_tflite(graph, "test"))
    config = FirmwareConfig(runtime="classic")
    built = firmware.function(tmp_path / "model.tflite", None, config=config, board=BOARD.name, out_dir=tmp_path)
    found = read_json(built.footprint)
    by_what = {part["what"].split(":")[0].split(" of ")[0]: part["region"] for part in found["placed"]}
    assert by_what["stack"] == by_what["scratch"] == "dtcm"
    arenas = {part["region"]: part["size_bytes"] for part in found["placed"] if part["what"].startswith("arena")}
    assert arenas == {"dtcm": 28_800, "sram": 144_000}
    assert found["arena_bytes"] == 28_800 + 144_000
    assert found["regions"]["sram"]["used_bytes"] == 144_000 + graph.tensors[graph.inputs[0]].nbytes
    assert found["ram_weights_bytes"] == found["sections"][".data"] > 0
    regions = found["regions"]
    assert (
        found["ram_bytes"]
        == sum(r["used_bytes"] for n, r in regions.items() if n != "flash") - found["ram_weights_bytes"]
    )
    held = sum(part["size_bytes"] for part in found["placed"] if part["region"] == "dtcm")
    assert held == pytest.approx(regions["dtcm"]["used_bytes"], abs=512)  # parameters stay in flash; alignment


def test_memory_that_is_cached_like_all_other_gets_no_copies_of_weights() -> None:
    memories = {**BOARD.memories, "dtcm": BOARD.memories["dtcm"].model_copy(update={"kind": "sram"})}
    board = BOARD.model_copy(update={"memories": memories})
    assert place(compiled(residual_network(0)), board).ram_weights == frozenset()


def test_scratch_stays_in_dtcm_when_no_tensor_does() -> None:
    model = replace(compiled(residual_network(0)))
    placement = place(model, with_dtcm(BOARD, VARIABLE_BYTES + model.scratch_bytes), copy_weights=False)
    assert (placement.region, placement.scratch_macro) == ("sram", "PLACE_FAST")
