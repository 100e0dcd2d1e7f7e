"""The firmware on the twin: results, exact instruction counts, memory high water, reset."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from boards import load_board
from pipeline.stage import read_json
from stages.firmware.stage import Firmware
from stages.graph.graph import Graph
from tests.boards.twin.qemu_twin import Twin, running_twin
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
    per_inference = (end - start) * load_board(BOARD).clock_hz / 1e6 / runs
    # Beside the layers an inference copies its input and marks each operator: some hundred instructions.
    assert sum(layers) < per_inference < sum(layers) + 600


@pytest.mark.slow
def test_the_count_survives_a_turn_of_the_timer(twin: Twin) -> None:
    """TIMER0 alone wraps after 2^32 * 40 / 1024 = 168 M instructions, within this lap."""
    layers = sum(twin.layer_instructions())
    runs = 250_000_000 // layers
    lines = twin.ask(f"infer {runs} 0")
    start, end = (int(line.removeprefix("m-lap-us-")) for line in lines if line.startswith("m-lap-us-"))
    per_inference = (end - start) * load_board(BOARD).clock_hz / 1e6 / runs
    assert layers < per_inference < layers + 600


def test_it_identifies_itself(twin: Twin, images: dict[str, Firmware]) -> None:
    build_id = read_json(images[BOARD].footprint)["build_id"]
    assert twin.ask("name") == [f"m-name-dut-[virtual {BOARD}]"]
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


def test_results_are_printed_like_printf_does(twin: Twin, network: Graph) -> None:
    inputs = random_inputs(network, count=1)
    twin.load(inputs[0].tobytes())
    line = twin.ask("infer 1 0")[-1]
    scores = np.frombuffer(twin.output(), np.int8).astype(int) + 128
    assert line == "m-results-[" + ",".join(f"{score / 256:.3f}" for score in scores) + "]"
