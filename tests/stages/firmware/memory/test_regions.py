"""Which region holds what: the whole arena, an arena in two parts, weights in what is left, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards import Board, load_board
from pipeline.errors import StageError
from pipeline.stage import read_json
from stages.firmware.config import StreamConfig
from stages.firmware.front_end import FrontEnd, design_front_end
from stages.firmware.memory.regions import VARIABLE_BYTES, beside_bytes, place, weight_passes
from stages.firmware.model_source import CompiledModel, compile_model, model_source
from stages.firmware.stage import FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, PoolOptions
from stages.graph.tflite.writer import write_tflite
from tests.stages.firmware.front_ends import make_task
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
    return with_sizes(board, dtcm=size)


def with_sizes(board: Board, **sizes: int) -> Board:
    changed = {name: board.memories[name].model_copy(update={"size": size}) for name, size in sizes.items()}
    return board.model_copy(update={"memories": {**board.memories, **changed}})


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


def test_an_arena_goes_wherever_it_fits_to_the_last_byte() -> None:
    model = compiled(wide_network(), "overlap")
    arena, scratch, beside = model.layout.arena_bytes, model.scratch_bytes, beside_bytes(model)
    least = 8 * 1024 + scratch  # stack and variables

    def region(dtcm: int, sram: int) -> tuple[str, str, bool]:
        found = place(model, with_sizes(BOARD, dtcm=dtcm, sram=sram), copy_weights=False)
        return found.macro, found.scratch_macro, found.spill is not None

    assert region(least + arena, beside) == ("PLACE_FAST", "", False)
    assert region(least + arena - 1, beside + arena) == ("PLACE_FAST", "", True)
    assert region(least, beside + arena) == ("PLACE_BULK", "PLACE_FAST", False)
    assert region(least - 1, beside + arena + scratch) == ("PLACE_BULK", "", False)
    what = rf"arena of {arena} B, scratch of {scratch} B and input and output of {beside} B"
    for dtcm, sram in (
        (least + arena, beside - 1),
        (least, beside + arena - 1),
        (least - 1, beside + arena + scratch - 1),
    ):
        with pytest.raises(StageError, match=rf"{what}.* need \d+ B, sram of nucleo_h743zi2 has {sram} B \(1 B over\)"):
            region(dtcm, sram)


def test_an_arena_in_two_parts_is_refused_with_what_lies_in_dtcm() -> None:
    model = compiled(wide_network())  # 28,800 B fit, 144,000 B do not
    dtcm = 8 * 1024 + model.scratch_bytes + 28_800
    sram = 144_000 + beside_bytes(model)
    assert place(model, with_sizes(BOARD, dtcm=dtcm, sram=sram)).spill is not None
    needed = rf"output of 43200 B, 28800 B of them in dtcm, need {sram} B, sram .* has {sram - 1} B \(1 B over\)"
    with pytest.raises(StageError, match=needed):
        place(model, with_sizes(BOARD, dtcm=dtcm, sram=sram - 1))


def test_a_front_end_takes_its_share_of_every_memory() -> None:
    model, front_end = compiled(residual_network(0)), make_front_end()
    dtcm = 8 * 1024 + model.scratch_bytes + front_end.fast_bytes + model.layout.arena_bytes
    sram = front_end.bulk_bytes + beside_bytes(model)
    flash = model.constant_bytes + front_end.constant_bytes + model.most_code_bytes + 24 * 1024
    board = with_sizes(BOARD, dtcm=dtcm, sram=sram, flash=flash)
    assert place(model, board, front_end).region == "dtcm"
    assert place(model, with_sizes(board, dtcm=dtcm - 1, sram=2 * sram), front_end).spill is not None
    with pytest.raises(StageError, match=rf"input of {sram} B,.* need {sram} B, .* \(1 B over\)"):
        place(model, with_sizes(board, sram=sram - 1), front_end)
    with pytest.raises(StageError, match=rf"and code need {flash} B, flash .* \(1 B over\)"):
        place(model, with_sizes(board, flash=flash - 1), front_end)


def make_front_end() -> FrontEnd:
    task = make_task()
    return design_front_end("mfcc", StreamConfig(), task.record, task.graph)


def test_tensors_that_spare_most_line_fills_go_to_dtcm() -> None:
    builder = Int8Builder(0)
    x = builder.input(16, 16, 4)  # 1,024 B each; read twice, written by none of the ops
    twice = builder.conv(x, 4, (1, 1), ConvOptions())
    once = builder.conv(x, 4, (1, 1), ConvOptions())
    total = builder.elementwise("ADD", twice, builder.depthwise(twice, (3, 3), ConvOptions()), ActivationOptions())
    logits = builder.fully_connected(builder.flatten(once), 4, ActivationOptions())
    pooled = builder.pool("MAX_POOL_2D", total, PoolOptions((16, 16), (16, 16)))
    last = builder.elementwise("ADD", pooled, builder.reshape(logits, (1, 1, 1, 4)), ActivationOptions())
    model = compiled(builder.graph(last))
    room = with_dtcm(BOARD, VARIABLE_BYTES + model.scratch_bytes + 1024 + 16)
    spill = place(model, room).spill
    assert spill is not None
    assert twice in spill.first
    assert {x, once} <= set(spill.second)


def test_weights_that_outgrow_the_cache_are_fetched_again_for_every_pass() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(8, 6, 32), 96, (3, 3), ConvOptions())  # 8 rows
    x = builder.conv(x, 64, (1, 1), ConvOptions())  # 48 pixels of 96 channels as int16: 9,216 B in runs of 20
    x = builder.fully_connected(builder.flatten(x), 10, ActivationOptions())
    model = compiled(builder.graph(x))
    sizes = [call.constant_bytes for call in model.calls]
    assert [weight_passes(model, index, 0) for index in (0, 1, 3)] == [8, 3, 1]
    assert [weight_passes(model, index, sizes[index]) for index in (0, 1, 3)] == [1, 1, 1]
    assert [weight_passes(model, index, sizes[index] - 1) for index in (0, 1, 3)] == [8, 3, 1]


def test_a_cache_that_activations_pass_through_holds_half_the_weights() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(12, 40, 8), 40, (3, 3), ConvOptions())  # 19,200 B, 6 KB of weights for 12 rows
    x = builder.pool("MAX_POOL_2D", x, PoolOptions((6, 40), (6, 40)))
    model = compiled(builder.graph(builder.conv(x, 64, (2, 1), ConvOptions(stride=(2, 1)))))  # 11 KB for one row
    first, last = model.calls[0].constant_bytes, model.calls[2].constant_bytes
    assert first < last
    board = BOARD.model_copy(update={"cache": with_data_cache(2 * first - 1)})
    least = VARIABLE_BYTES + model.scratch_bytes
    whole = place(model, with_dtcm(board, least + model.layout.arena_bytes + last))
    assert (whole.spill, whole.ram_weights) == (None, {2})  # both are fetched once: the larger one first
    parted = place(model, with_dtcm(board, least + beside_bytes(model) + last))
    assert parted.spill is not None
    assert parted.spill.first_bytes == model.input_bytes
    assert parted.ram_weights == {0}  # now fetched for every row


def with_data_cache(size: int) -> object:
    return BOARD.cache.model_copy(update={"data": BOARD.cache.data.model_copy(update={"size": size})})


def test_weights_that_are_read_most_often_come_first() -> None:
    builder = Int8Builder(0)
    x = builder.conv(builder.input(8, 8, 32), 96, (3, 3), ConvOptions())  # 55 KB as int16, once for each of 8 rows
    x = builder.fully_connected(builder.flatten(x), 10, ActivationOptions())  # 61 KB as int8, once
    model = compiled(builder.graph(x))
    room = model.scratch_bytes + model.layout.arena_bytes + max(call.constant_bytes for call in model.calls)
    assert place(model, with_dtcm(BOARD, VARIABLE_BYTES + room)).ram_weights == {0}
    beside = VARIABLE_BYTES + model.scratch_bytes + model.layout.arena_bytes
    sizes = [model.calls[index].constant_bytes for index in (0, 2)]
    for room, chosen in ((sizes[0] - 1, set()), (sizes[0], {0}), (sum(sizes) - 1, {0}), (sum(sizes), {0, 2})):
        assert place(model, with_dtcm(BOARD, beside + room)).ram_weights == chosen


def test_a_network_too_large_for_both_is_refused_with_the_bytes_over() -> None:
    model = compiled(wide_network(150))
    # 150 x 150 x 40 and the input outside of the arena; input and output of the arena do not fit into DTCM either.
    spilled = place_needs(model)
    over = spilled + beside_bytes(model) - 512 * 1024
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
    assert found["regions"]["sram"]["used_bytes"] == 144_000 + sum(
        graph.tensors[i].nbytes for i in (*graph.inputs, *graph.outputs)
    )
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
