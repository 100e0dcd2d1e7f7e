"""Whatever the plan says that fits, links: networks that fill a board's memories to the last bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from boards import Board, load_board
from pipeline.errors import StageError
from stages.firmware.build.image import build_images, write_sources
from stages.firmware.memory.regions import place
from stages.firmware.model_source import compile_model
from stages.graph.graph import ConvOptions, Graph
from tests.benchmarks.firmware import linked_limits
from tests.stages.firmware.coverage.builder import Builder


def wide_output(size: int) -> Graph:
    """The output is twice the input, and the link keeps a copy of both."""
    make = Builder(0)
    return make.graph(make.conv(make.input(16, size, 4), 8, (1, 1), ConvOptions()))


def several_outputs(size: int) -> Graph:
    """Two outputs, and a state as long as the input."""
    make = Builder(1)
    x = make.input(8, size, 4)
    tensor = make.tensors[x]
    state = make.state(x, make.rng.integers(-128, 128, tensor.shape).astype("int8"))
    larger = make.plain("MAXIMUM", (make.read(state), x), tensor.shape)
    make.assign(state, x)
    return make.graph(larger, make.conv(larger, 3, (3, 3), ConvOptions(stride=(2, 2))))


def largest(board: Board, make: Callable[[int], Graph]) -> int:
    """The largest size that the plan lets pass."""

    def fits(size: int) -> bool:
        try:
            place(compile_model(make(size), weights="fast", runtime="overlap", chains=()), board)
        except StageError:
            return False
        return True

    low, high = 1, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@pytest.mark.slow
@pytest.mark.parametrize("make", [wide_output, several_outputs])
@pytest.mark.parametrize("name", ["nucleo_f767zi", "disco_f746ng"])
def test_what_just_fits_the_plan_links(name: str, make: Callable[[int], Graph], tmp_path: Path) -> None:
    board = load_board(name)
    model = compile_model(make(largest(board, make)), weights="fast", runtime="overlap", chains=())
    write_sources(model, "limit", place(model, board), tmp_path / "generated")
    assert build_images(board, tmp_path / "generated", "O2", tmp_path).image.exists()


@pytest.mark.parametrize("number", [2])  # more of them: python -m tests.benchmarks.firmware.linked_limits
def test_a_random_network_at_the_limit_of_a_board_links_and_the_next_one_is_refused(
    number: int, tmp_path: Path
) -> None:
    assert "links; then: firmware: arena of" in linked_limits.check(number, tmp_path)
