"""The model's error, area by area: recomputed from others' counts whenever the cost of a line changes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from boards import Predicted, board_names, load_board
from hil.virtual.model_error import PEER_BOARD, PEER_CLOCK_HZ, area_of, model_error, parts, peers


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
    ratios = [peer.ratio(board.cache) for peer in peers()]
    assert (round(min(ratios), 2), round(max(ratios), 2)) == (1.00, 1.08)
    text = (board.folder / "board.yaml").read_text()
    assert "nine networks of others lie at 1.00 to 1.08 of their published times" in text


def test_core_and_cache_lines_are_told_apart_by_networks_that_have_more_or_less_of_them() -> None:
    costs, core, lines = load_board(PEER_BOARD).cache, 0.9, 1.5
    made = [
        replace(one, published_ms=(core * one.cycles_zero_wait + lines * one.line_cycles(costs)) / PEER_CLOCK_HZ * 1e3)
        for one in peers()
    ]
    found = parts(costs, made)
    assert found.factors == pytest.approx([core, lines])
    assert found.board_over_model(0.5) == pytest.approx(((core + lines) / 2, 0), abs=1e-6)


def test_the_nine_say_that_the_core_is_faster_and_lines_are_slower_than_modelled() -> None:
    costs = load_board(PEER_BOARD).cache
    found = parts(costs)
    assert found.factors == pytest.approx([0.900, 1.570], abs=2e-3)
    assert found.residual == pytest.approx(0.0156, abs=2e-4)
    for one in peers():
        share = one.line_cycles(costs) / (one.cycles_zero_wait + one.line_cycles(costs))
        value, deviation = found.board_over_model(share)
        assert abs(1 / one.ratio(costs) - value) < 2 * deviation


@pytest.mark.parametrize(
    ("kind", "line_share", "area"),
    [
        ("CONV_2D", 0.1, "dense"),
        ("FULLY_CONNECTED", 0.1, "dense"),
        ("FULLY_CONNECTED", 0.4, "memory-bound"),
        ("DEPTHWISE_CONV_2D", 0.0, "depthwise"),
        ("SOFTMAX", 0.0, "other"),
    ],
)
def test_an_operator_has_an_area(kind: str, line_share: float, area: str) -> None:
    assert area_of(kind, line_share) == area


@pytest.mark.parametrize("name", board_names())
def test_every_area_of_every_board_has_an_error_of_its_own(name: str) -> None:
    costs = load_board(name).cache
    dense, bound = (model_error(name, costs, area, share) for area, share in (("dense", 0.05), ("memory-bound", 0.5)))
    for found in (dense, bound, model_error(name, costs)):
        assert found.low is not None and found.high is not None and 0.4 < found.low < found.high < 2.5
        low, high = found.span_ms(10.0)
        assert (low, high) == pytest.approx((10 / found.high, 10 / found.low))
        assert f"model / board {found.low:.2f} to {found.high:.2f} (" in found.text and "25 %" not in found.text
    assert bound.low < dense.low, "lines cost more than modelled, or nobody knows"
    if name != PEER_BOARD:
        assert "guess" in dense.against
        assert bound.high - bound.low > 2 * (dense.high - dense.low), "what is guessed counts for more"
    other = model_error(name, costs, "other", 0.0)
    assert other.text == "error unknown (no such operator was ever compared with a board)"
    assert other.span_ms(10.0) == (None, None)


def test_a_calibration_says_its_own_error_area_by_area() -> None:
    @dataclass(frozen=True)
    class Found:
        device = "hardware"
        areas: ClassVar = {
            "network": Predicted(n=3, low=0.99, high=1.02),
            "depthwise": Predicted(n=5, low=0.97, high=1.01),
        }

    costs = load_board(PEER_BOARD).cache
    found = model_error(PEER_BOARD, costs, "depthwise", 0.1, Found())
    assert found.text == (
        "model / board 0.97 to 1.01 (calibrated on hardware; 5 depthwise operators that were not in the fit)"
    )
    assert model_error(PEER_BOARD, costs, "other", 0.1, Found()).low == 0.99, "as whole networks"


def test_a_board_that_nobody_compared_says_so() -> None:
    assert model_error("new_board", Costs(1, 1, 1, 1)).text == "error unknown (no measured board to compare with)"


def test_no_description_claims_three_percent_any_more() -> None:
    for name in board_names():
        assert "within 3 %" not in (load_board(name).folder / "board.yaml").read_text()
