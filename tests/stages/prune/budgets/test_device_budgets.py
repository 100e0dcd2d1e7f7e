"""Budgets in milliseconds, millijoules, flash and RAM: met on the exact stairs, filled to the edge, or refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.errors import ConfigError
from stages.nets.channels import Channels, find_channels
from stages.nets.config import BudgetConfig
from stages.prune.config import PruneConfig
from stages.prune.give_back import on_the_edge
from stages.prune.latency_share import with_absolute_latency
from stages.prune.width_update import WidthUpdate
from tests.stages.firmware.cost.branching import SHAPE, Branching

CONFIG = PruneConfig(losses="resource", rate=8.0)
BOARD = "nucleo_f767zi"


@pytest.fixture(scope="module")
def net() -> Branching:
    return Branching()


@pytest.fixture(scope="module")
def channels(net: Branching) -> Channels:
    return find_channels(net, SHAPE)


def test_pruning_ends_on_the_edge_of_a_budget_on_two_boards(net: Branching, channels: Channels) -> None:
    boards = {BOARD: {"latency_ms": 1.2}, "nucleo_h743zi2": {"energy_mj": 0.9}}
    budget = BudgetConfig(macs="400K", boards=boards)
    pruning = WidthUpdate(channels, CONFIG, budget)
    assert set(pruning.objectives.limits) == {*("macs", f"{BOARD}.latency_ms", "nucleo_h743zi2.energy_mj")}
    for _ in range(60):
        if pruning.state.reached:
            break
        pruning.update(net, None, None)  # type: ignore[arg-type]  # by resources alone
    widths = pruning.widths()
    assert pruning.state.reached
    assert not pruning.objectives.exceeded(widths, exactly=True)
    assert on_the_edge(pruning.rule, pruning.objectives, widths)
    assert pruning.state.given_back >= 0
    device = pruning.objectives.device
    assert device is not None
    used = device.exact(widths)
    assert used is not None
    shares = [used[name] / each.limit for name, each in device.limits.items()]
    shares.append(pruning.objectives.resources(widths).macs / 400_000)
    assert max(shares) > 0.95


def test_a_share_of_the_latency_becomes_milliseconds(channels: Channels) -> None:
    budget = with_absolute_latency(channels, CONFIG, BudgetConfig(macs="400K", latency_ms="60%", board=BOARD))
    whole = with_absolute_latency(channels, CONFIG, BudgetConfig(macs="400K", latency_ms="99.9%", board=BOARD))
    found, other = (b.device_limits[BOARD]["latency_ms"] for b in (budget, whole))
    assert 0 < found == pytest.approx(0.6 / 0.999 * other, rel=1e-3)
    with pytest.raises(ConfigError, match="needed peak_bytes, size_bytes or macs"):
        with_absolute_latency(channels, CONFIG, BudgetConfig(latency_ms="60%", board=BOARD))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"latency_ms": 10}, "latency_ms without a board"),
        ({"board": BOARD}, "needed a budget for it"),
        ({"board": BOARD, "latency_ms": "160%"}, "needed a share between"),
        ({"board": BOARD, "latency_ms": 0}, "needed milliseconds above zero"),
        ({"board": BOARD, "energy_mj": -1}, "greater than 0"),
        ({"boards": {BOARD: {}}}, "twice or empty"),
        ({"boards": {BOARD: {"latency": 3}}}, "Extra inputs are not permitted"),
    ],
)
def test_a_budget_that_says_nothing_or_nonsense_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        BudgetConfig.model_validate(given)


def test_a_run_without_a_budget_for_a_board_does_not_depend_on_the_compiler() -> None:
    assert BudgetConfig(macs="1M").source_modules == ()
    assert BudgetConfig(macs="1M").outside() == {}
    depends = BudgetConfig(latency_ms=3, board=BOARD)
    assert depends.source_modules == ("stages.firmware.cost.network",)
    assert depends.outside()["boards"] != BudgetConfig(latency_ms=3, board="nucleo_h743zi2").outside()["boards"]
