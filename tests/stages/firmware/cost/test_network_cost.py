"""The cost of a network before it is built is that of the firmware that is built; its slopes are those of stairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boards import load_board
from stages.firmware.config import FirmwareConfig
from stages.firmware.cost.network import OBJECTIVES, NetworkCost
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings
from stages.nets.channels import Channels, find_channels
from tests.stages.firmware.cost.branching import SHAPE, Branching

BOARD = "nucleo_f767zi"
VECTORS = 6


@pytest.fixture(scope="module")
def channels() -> Channels:
    return find_channels(Branching(), SHAPE)


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> PriceList:
    return PriceList(tmp_path_factory.mktemp("prices"))


@pytest.fixture(scope="module")
def cost(channels: Channels, prices: PriceList) -> NetworkCost:
    """Without fusion, so that nothing but the layers' own stairs is seen."""
    made = NetworkCost(channels.graph, channels.widths, [BOARD], FirmwareSettings(fusion="none"), prices)
    made.prepare([at_a_step(channels), *vectors(channels), *(narrower for _, narrower in steps(channels))])
    made.anchor(at_a_step(channels))
    return made


def vectors(channels: Channels) -> list[tuple[int, ...]]:
    draw = np.random.default_rng(1)
    return [tuple(int(draw.integers(max(4, n // 4), n + 1)) for n in channels.widths) for _ in range(VECTORS)]


def steps(channels: Channels) -> list[tuple[int, tuple[int, ...]]]:
    """Each group narrower by a whole step of the stairs, from the same place."""
    start = at_a_step(channels)
    return [(group, (*start[:group], start[group] - 4, *start[group + 1 :])) for group in range(len(start))]


def at_a_step(channels: Channels) -> tuple[int, ...]:
    return tuple(n // 8 * 4 + 4 for n in channels.widths)


def test_the_quick_cost_is_near_the_exact_one(cost: NetworkCost, channels: Channels) -> None:
    errors = []
    for widths in vectors(channels):
        exact, quick = cost.exact(widths)[BOARD], cost.quick(widths, ["latency_ms"])[BOARD]
        errors.append(abs(quick["latency_ms"] / exact.latency_ms - 1))
    assert float(np.median(errors)) < 0.02
    assert max(errors) < 0.06


def test_gradients_are_slopes_over_whole_steps_of_the_exact_stairs(cost: NetworkCost, channels: Channels) -> None:
    start = at_a_step(channels)
    here, slopes = cost.exact(start)[BOARD], cost.gradients(start)[BOARD]
    wanted = {name: np.zeros(len(start)) for name in OBJECTIVES}
    for group, narrower in steps(channels):
        there = cost.exact(narrower)[BOARD]
        for name, found in wanted.items():
            found[group] = (getattr(here, name) - getattr(there, name)) / 4
    for name, found in wanted.items():
        assert slopes[name] == pytest.approx(found, abs=0.15 * float(np.abs(found).max())), name
    assert (slopes["latency_ms"] > 0).all()


def test_prices_survive_the_process_and_a_damaged_line_is_priced_anew(
    cost: NetworkCost, channels: Channels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = at_a_step(channels)
    setting = cost._compiler.setting(load_board(BOARD))
    first = PriceList(tmp_path / "notes")
    tasks = cost._compiler.tasks(widths)[-3:]
    found = first.of(tasks, setting)
    page = next((tmp_path / "notes").iterdir())
    page.write_text(page.read_text() + '{"key": "half a li')
    monkeypatch.setattr("stages.firmware.cost.price_list.prices", lambda *_: pytest.fail("priced again"))
    assert PriceList(tmp_path / "notes").of(tasks, setting) == found


def test_settings_have_the_keys_and_defaults_of_the_firmware_section() -> None:
    for key, value in vars(FirmwareSettings()).items():
        assert FirmwareConfig.model_fields[key].default == value
