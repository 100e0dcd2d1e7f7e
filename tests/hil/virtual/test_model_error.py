"""The model's error, area by area: recomputed from others' counts whenever the cost of a line changes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest

from boards import board_names, load_board
from hil.virtual.model_error import PEER_BOARD, model_error, peers


@dataclass(frozen=True)
class Costs:
    flash_fill_cycles: float
    ram_load_fill_cycles: float
    ram_store_fill_cycles: float
    write_back_cycles: float


@pytest.mark.parametrize(
    ("costs", "low", "median", "high"),
    [
        (Costs(0, 0, 0, 0), 0.865, 0.946, 1.011),  # zero wait
        (Costs(30, 20, 20, 8), 1.061, 1.089, 1.117),  # stores and write-backs like loads, as it once was
        (Costs(30, 20, 0, 0), 0.982, 1.021, 1.064),  # both free
    ],
)
def test_the_ratios_are_those_that_were_found(costs: Costs, low: float, median: float, high: float) -> None:
    ratios = [peer.ratio(costs) for peer in peers()]
    assert len(ratios) == 9
    assert [min(ratios), statistics.median(ratios), max(ratios)] == pytest.approx([low, median, high], abs=5e-4)


def test_the_described_costs_put_the_nine_networks_where_board_yaml_says() -> None:
    board = load_board(PEER_BOARD)
    found = model_error(board.name, board.cache, arena_is_cached=True)
    assert (round(found.low or 0, 2), round(found.high or 0, 2), found.n) == (1.00, 1.08, 9)
    text = (board.folder / "board.yaml").read_text()
    assert "nine networks of others lie at 1.00 to 1.08 of their published times" in text


@pytest.mark.parametrize("name", board_names())
def test_every_board_says_what_its_model_was_compared_with(name: str) -> None:
    board = load_board(name)
    found = model_error(name, board.cache, arena_is_cached=False)
    assert found.text.startswith("model / board ") and "25 %" not in found.text
    assert f"n {found.n}" in found.text


def test_a_board_that_nobody_compared_says_so() -> None:
    assert (
        model_error("new_board", Costs(1, 1, 1, 1), False).text == "error unknown (no measured board to compare with)"
    )


def test_no_description_claims_three_percent_any_more() -> None:
    for name in board_names():
        assert "within 3 %" not in (load_board(name).folder / "board.yaml").read_text()
