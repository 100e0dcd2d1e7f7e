"""The firmware step: images and footprint, the same bytes everywhere, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from pydantic import ValidationError

from boards import load_board
from pipeline.errors import StageError, ToolError
from pipeline.stage import read_json
from stages.firmware.build.image import build_images
from stages.firmware.config import StreamConfig
from stages.firmware.kernels.c_text import c_array, c_comment
from stages.firmware.model_source import compile_model
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.firmware.stage import run as firmware
from stages.graph.graph import ActivationOptions, ConvOptions, Graph, Quantisation
from stages.graph.memory.arena_layout import arena_layout
from stages.graph.tflite.writer import write_tflite
from tests.stages.graph.int8_graphs import Int8Builder, residual_network

BOARD = "nucleo_h743zi2"


def build(folder: Path, graph: Graph, board: str = BOARD, config: FirmwareConfig | None = None) -> Firmware:
    folder.mkdir(parents=True)
    model = folder / "model.tflite"
    model.write_bytes(write_tflite(graph, "test"))
    return firmware.function(model, None, config=config or FirmwareConfig(), board=board, out_dir=folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    return build(tmp_path_factory.mktemp("firmware") / "first", residual_network(0))


def test_the_same_network_gives_the_same_bytes_in_another_folder(built: Firmware, tmp_path: Path) -> None:
    again = build(tmp_path / "a" / "much" / "deeper" / "folder", residual_network(0))
    for name in ("image", "image_bin", "image_hex", "twin", "footprint"):
        assert getattr(again, name).read_bytes() == getattr(built, name).read_bytes(), name
    for file in sorted(built.generated.iterdir()):
        assert (again.generated / file.name).read_bytes() == file.read_bytes(), file.name
    assert sorted(p.name for p in again.image.parent.iterdir()) == [
        *("firmware.bin", "firmware.elf", "firmware.hex", "footprint.json"),
        *("generated", "memory.json", "model.tflite", "twin.elf"),
    ]


def test_no_path_of_this_machine_reaches_an_image(built: Firmware) -> None:
    for image in (built.image, built.twin):
        content = image.read_bytes()
        assert str(Path.cwd()).encode() not in content
        assert str(built.image.parent).encode() not in content


def test_another_network_or_option_gives_another_build_id(built: Firmware, tmp_path: Path) -> None:
    ids = {
        read_json(footprint)["build_id"]
        for footprint in (
            built.footprint,
            build(tmp_path / "network", residual_network(1)).footprint,
            build(tmp_path / "option", residual_network(0), config=FirmwareConfig(optimise="Os")).footprint,
            build(tmp_path / "small", residual_network(0), config=FirmwareConfig(weights="small")).footprint,
        )
    }
    assert len(ids) == 4
    assert all(re.fullmatch(r"[0-9a-f]{16}", build_id) for build_id in ids)


def test_the_footprint_is_that_of_the_linker(built: Firmware) -> None:
    found = read_json(built.footprint)
    sizes = subprocess.run(["arm-none-eabi-size", "-A", built.image], capture_output=True, text=True, check=True).stdout
    rows = {
        row[0]: (int(row[1]), int(row[2]))
        for row in (line.split() for line in sizes.splitlines())
        if len(row) == 3 and row[1].isdigit()
    }
    allocated = {name: size for name, (size, address) in rows.items() if address and size}
    assert found["sections"] == allocated
    assert found["flash_bytes"] == sum(allocated[name] for name in (".vectors", ".text", ".rodata", ".data"))
    assert found["flash_bytes"] == built.image_bin.stat().st_size
    assert found["ram_bytes"] == sum(allocated[name] for name in (".stack", ".bss", ".fast", ".bulk"))
    assert found["regions"]["flash"] == {"used_bytes": found["flash_bytes"], "size_bytes": 2 * 1024**2}
    in_ram = found["ram_bytes"] + found["ram_weights_bytes"]
    assert sum(region["used_bytes"] for region in found["regions"].values()) == found["flash_bytes"] + in_ram
    assert found["ram_weights_bytes"] == allocated[".data"]


def test_the_footprint_names_the_networks_parts(built: Firmware) -> None:
    graph = residual_network(0)
    found = read_json(built.footprint)
    assert found["arena_bytes"] == compile_model(graph, weights="fast", runtime="overlap").layout.arena_bytes
    assert found["arena_bytes"] == found["arena_lower_bound_bytes"] < arena_layout(graph).arena_bytes
    assert (found["arena_region"], found["input_bytes"], found["board"]) == ("dtcm", 9 * 7 * 3, BOARD)
    # 3x3x3x8, 3x3x8, 8x8 and 8x5 weights, 8 + 8 + 8 + 5 biases.
    assert found["weights_bytes"] == 216 + 72 + 64 + 40 + 4 * 29
    # The stem's block of 4 outputs: 12 words of bias and scaling, 3 lines of 5 pairs; twice. Likewise the others; with
    # no ReLU behind them they have a shift of their own, which is a word more.
    stem, pointwise, classifier = 2 * 4 * (12 + 4 * 15), 2 * 4 * (13 + 4 * 4), 2 * 4 * (13 + 4 * 2)
    depthwise, structures = 8 * 4 * 9 + 64, 6 * 112
    assert found["constant_bytes"] == stem + pointwise + classifier + depthwise + structures
    assert found["constant_bytes"] < found["sections"][".rodata"] + found["sections"][".data"]
    assert [op["kernel"] for op in found["ops"]] == [
        *("fast_conv_2d", "fast_depthwise", "fast_matrix", "fast_add"),
        *("average_pool_2d", "alias", "fast_vector", "softmax"),
    ]


def test_the_image_starts_with_stack_and_reset_vector(built: Firmware) -> None:
    vectors = np.frombuffer(built.image_bin.read_bytes()[:64], "<u4")
    with built.image.open("rb") as file:
        elf = ELFFile(file)
        (reset,) = elf.get_section_by_name(".symtab").get_symbol_by_name("Reset_Handler")
        assert vectors[0] == 0x20000000 + 256 + 4096  # above the stack and its guard
        assert vectors[1] == reset["st_value"]
        assert reset["st_value"] & 1


def test_an_operator_without_a_kernel_is_named_before_anything_is_built() -> None:
    graph = residual_network(0)
    strange = replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], kind="LSTM", name="cell")))
    with pytest.raises(StageError, match=r"firmware: LSTM \(cell\) has no kernel, needed one of ABS, ADD, "):
        compile_model(strange, weights="fast")


def test_a_softmax_with_another_output_scale_is_refused() -> None:
    graph = residual_network(0)
    tensors = list(graph.tensors)
    tensors[graph.outputs[0]] = replace(tensors[graph.outputs[0]], quantisation=Quantisation((1 / 255,), (-128,)))
    with pytest.raises(StageError, match=r"SOFTMAX .* needed 1/256 and -128"):
        compile_model(replace(graph, tensors=tuple(tensors)))


@pytest.mark.parametrize(("power", "is_refused"), [(-27, False), (-28, True)])
def test_a_softmax_with_too_small_an_input_scale_is_refused(power: int, is_refused: bool) -> None:
    builder = Int8Builder(0)
    x = builder.input(1, 1, 4)
    builder.set_grid(x, 2.0**power, 0)
    graph = builder.graph(builder.softmax(x))
    if is_refused:
        with pytest.raises(StageError, match="SOFTMAX .* has input scale 3.72529e-09, too small for its kernel"):
            compile_model(graph)
    else:
        assert compile_model(graph).calls[0].kernel == "softmax"


def test_an_image_too_wide_for_a_window_is_refused() -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.conv(builder.input(1, 2**16, 1), 4, (1, 3), ConvOptions()))
    with pytest.raises(StageError, match="a window over an image has input width 65536, needed at most 65535"):
        compile_model(graph)


def test_weights_beyond_the_flash_are_refused_with_the_bytes_over(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    x = builder.flatten(builder.input(1, 1, 2100))
    graph = builder.graph(builder.fully_connected(x, 1000, ActivationOptions()))
    # 1000 rows of 2,100 weights with bias, multiplier and shift, and a structure, for the portable kernel: the other
    # one's scratch memory would be more than the network's own. 24 KiB of code, against 2 MiB.
    over = 2_100_000 + 12_000 + 112 + 24 * 1024 - 2 * 1024**2
    with pytest.raises(StageError, match=rf"flash of {BOARD} has 2097152 B \({over} B over\); prune further"):
        build(tmp_path / "large", graph, config=FirmwareConfig(weights="small"))
    assert [path.name for path in (tmp_path / "large").iterdir()] == ["model.tflite"]


def test_weights_that_fit_the_flash_at_half_their_size_are_refused_with_how_to_halve_them(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.conv(builder.input(8, 8, 1000), 1100, (1, 1), ConvOptions()))
    with pytest.raises(StageError, match=r"over\); set firmware.weights=small, which takes half as much, prune"):
        build(tmp_path / "large", graph, config=FirmwareConfig())


def test_an_arena_beyond_the_ram_is_refused_with_the_bytes_over(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    x = builder.input(200, 160, 4)
    graph = builder.graph(builder.conv(x, 13, (1, 1), ConvOptions()))
    # The output takes the input's place as well; the link has buffers of its own for both.
    over = 2 * 200 * 160 * 13 + 200 * 160 * 4 - 512 * 1024
    with pytest.raises(StageError, match=rf"arena of 416000 B.* sram of {BOARD} has 524288 B \({over} B over\)"):
        build(tmp_path / "large", graph)
    assert [path.name for path in (tmp_path / "large").iterdir()] == ["model.tflite"]


def test_a_missing_compiler_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    needed = r"arm-none-eabi-gcc: not found on PATH, needed to build the firmware; apt-get install .*gcc-arm-none-eabi"
    with pytest.raises(ToolError, match=needed):
        build(tmp_path / "none", residual_network(0))


def test_a_compile_error_shows_the_compilers_words(built: Firmware, tmp_path: Path) -> None:
    broken = tmp_path / "generated"
    shutil.copytree(built.generated, broken)
    (broken / "model.c").write_text("int model_invoke(void) { return nothing; }\n")
    with pytest.raises(ToolError, match=r"(?s)arm-none-eabi-gcc: exit code 1.*'nothing' undeclared"):
        build_images(load_board(BOARD), broken, "O2", tmp_path)


def test_a_model_name_that_would_break_the_protocol_is_refused() -> None:
    with pytest.raises(ValidationError, match="model_name"):
        FirmwareConfig(model_name='kws"]\n')


@pytest.mark.parametrize(
    ("field", "least", "most"), [("run_every_hops", 1, 1000), ("smooth_runs", 1, 64), ("threshold", 0.001, 1)]
)
def test_stream_settings_beyond_their_limits_are_refused(field: str, least: float, most: float) -> None:
    assert [getattr(StreamConfig(**{field: value}), field) for value in (least, most)] == [least, most]
    for value in (0, most + 1):
        with pytest.raises(ValidationError, match=field):
            StreamConfig(**{field: value})


def test_the_smallest_number_is_one_that_c_can_read() -> None:
    text = c_array("int32_t", "ends", np.array([-(2**31), 2**31 - 1]), "both")
    assert "    INT32_MIN, 2147483647,\n" in text


def test_names_from_a_file_cannot_leave_their_comment() -> None:
    assert c_comment("a */ int x; /* \n b") == "/* a * / int x; / * ? b */"


def test_an_array_keeps_every_value_within_the_line_length() -> None:
    values = np.arange(-128, 128, dtype=np.int8)
    text = c_array("int8_t", "values", values, "all of them")
    body = text[text.index("{") + 1 : text.index("}")]
    assert [int(number) for number in body.rstrip(",\n").split(",")] == values.tolist()
    assert max(map(len, text.splitlines())) <= 120


def test_importing_the_step_stays_light() -> None:
    code = "import sys, json, stages.firmware.stage; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    assert not {"numpy", "torch", "pandas", "ai_edge_litert"} & set(modules)


def test_the_image_has_no_heap_and_a_bounded_stack(built: Firmware) -> None:
    found = read_json(built.footprint)
    for image in (built.image, built.twin):
        with image.open("rb") as file:
            names = {symbol.name for symbol in ELFFile(file).get_section_by_name(".symtab").iter_symbols()}
        assert "model_invoke" in names
        assert not {"malloc", "_malloc_r", "free", "calloc", "realloc", "_sbrk", "alloca"} & names
    assert 0 < found["stack"]["inference_bytes"] < found["stack"]["main_bytes"] < found["stack"]["image_bytes"]
    assert found["stack"]["image_bytes"] <= found["stack_bytes"] == 4096
