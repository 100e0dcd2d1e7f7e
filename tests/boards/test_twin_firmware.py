"""The firmware on the twin: results, exact instruction counts, memory high water, reset, faults."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from boards import load_board
from pipeline.stage import read_json
from stages.firmware.image import build_images
from stages.firmware.stage import Firmware
from stages.graph.graph import Graph
from tests.boards.qemu_twin import Twin, running_twin
from tests.stages.firmware.host_models import tflm_outputs
from tests.stages.graph.int8_graphs import random_inputs

BOARD = "nucleo_f767zi"


@pytest.fixture
def twin(images: dict[str, Firmware]) -> Iterator[Twin]:
    with running_twin(images[BOARD].twin) as (running, boot):
        assert boot[0] == "m-timestamp-mode-performance"
        yield running


def test_outputs_are_those_of_tflm(twin: Twin, network: Graph) -> None:
    inputs = random_inputs(network, count=3)
    expected = tflm_outputs(network, inputs)
    for one, wanted in zip(inputs, expected, strict=True):
        twin.load(one.tobytes())
        twin.ask("infer 2 1")
        assert twin.output() == wanted.tobytes()


def test_instruction_counts_repeat_exactly_and_add_up_to_the_lap(twin: Twin, network: Graph) -> None:
    layers = twin.layer_instructions()
    assert twin.layer_instructions() == layers
    assert len(layers) == len(network.ops)
    runs = 200
    lines = twin.ask(f"infer {runs} 0")
    start, end = (int(line.removeprefix("m-lap-us-")) for line in lines if line.startswith("m-lap-us-"))
    per_inference = (end - start) * load_board(BOARD).clock_mhz / runs
    # Beside the layers an inference copies its input and marks each operator: some hundred instructions.
    assert sum(layers) < per_inference < sum(layers) + 600


@pytest.mark.slow
def test_the_count_survives_a_turn_of_the_timer(twin: Twin) -> None:
    """TIMER0 alone wraps after 2^32 * 40 / 1024 = 168 M instructions, within this lap."""
    layers = sum(twin.layer_instructions())
    runs = 250_000_000 // layers
    lines = twin.ask(f"infer {runs} 0")
    start, end = (int(line.removeprefix("m-lap-us-")) for line in lines if line.startswith("m-lap-us-"))
    per_inference = (end - start) * load_board(BOARD).clock_mhz / runs
    assert layers < per_inference < layers + 600


def test_it_identifies_itself(twin: Twin, images: dict[str, Firmware]) -> None:
    build_id = read_json(images[BOARD].footprint)["build_id"]
    assert twin.ask("name") == [f"m-name-dut-[{BOARD}]"]
    assert twin.ask("build") == [f"m-build-[{build_id}]"]
    assert twin.ask("clock") == ["m-clock-[216000000]"]


def test_stack_high_water_grows_with_use_and_stays_far_below_the_stack(twin: Twin) -> None:
    def high_water() -> tuple[int, int]:
        used, size, _ = map(int, re.findall(r"\d+", twin.ask("memory")[0]))
        return used, size

    before, _ = high_water()
    twin.ask("infer 1 0")
    after, size = high_water()
    assert size == 4096
    assert before < after < size // 2


def test_reset_boots_again(twin: Twin) -> None:
    assert twin.ask("reset")[-1] == "m-init-done"
    assert twin.ask("db print") == []


def test_marks_are_one_word_per_operator_and_one_more(images: dict[str, Firmware], network: Graph) -> None:
    for image in (images[BOARD].twin, images[BOARD].image):
        with image.open("rb") as file:
            (symbol,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name("prof_stamp")
            assert symbol["st_size"] == 4 * (len(network.ops) + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "cfsr", "bfar"),
    [
        ("__builtin_trap();", 0x00010000, None),  # UNDEFINSTR
        ("*(volatile uint32_t *)0x90000000u = 1;", 0x00008200, 0x90000000),  # PRECISERR and BFARVALID
        # A stack that runs out: stacking fails as well, so that only the registers can tell.
        ('__asm volatile("mov sp, %0" :: "r"(0x20000008u)); *(volatile uint32_t *)0x90000000u = 1;', None, None),
    ],
    ids=["undefined_instruction", "bus_error", "stack_overflow"],
)
def test_a_fault_is_reported_and_the_board_comes_back(
    body: str, cfsr: int | None, bfar: int | None, images: dict[str, Firmware], tmp_path: Path
) -> None:
    broken = tmp_path / "generated"
    shutil.copytree(images[BOARD].generated, broken)
    source = (broken / "model.c").read_text()
    marked = "void model_invoke(void)\n{\n"
    assert marked in source
    (broken / "model.c").write_text(source.replace(marked, f"{marked}    {body}\n"))
    image = build_images(load_board(BOARD), broken, "O2", tmp_path).twin
    with running_twin(image) as (twin, _):
        lines = twin.ask("infer 1 1")
        assert lines[0] == "m-warmup-start-1"
        names = ("CFSR", "HFSR", "MMFAR", "BFAR", "PC")
        registers = " ".join(f"{name}=(?P<{name}>[0-9a-f]{{8}})" for name in names)
        fault = re.fullmatch(rf"e-\[Fault: {registers}\]", lines[2])
        assert fault is not None, lines
        assert lines[-1] == "m-init-done"
        assert fault["HFSR"] == "40000000"  # FORCED: an escalated fault
        if cfsr is None:
            assert fault["PC"] == "ffffffff"
            return
        assert int(fault["CFSR"], 16) == cfsr
        assert bfar is None or int(fault["BFAR"], 16) == bfar
        with image.open("rb") as file:
            (symbol,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name("model_invoke")
            start = symbol["st_value"] & ~1
            assert start <= int(fault["PC"], 16) < start + symbol["st_size"]


def test_results_are_printed_like_printf_does(twin: Twin, network: Graph) -> None:
    inputs = random_inputs(network, count=1)
    twin.load(inputs[0].tobytes())
    line = twin.ask("infer 1 0")[-1]
    scores = np.frombuffer(twin.output(), np.int8).astype(int) + 128
    assert line == "m-results-[" + ",".join(f"{score / 256:.3f}" for score in scores) + "]"
