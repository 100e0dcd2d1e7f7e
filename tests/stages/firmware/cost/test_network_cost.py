"""The cost of a network before it is built is that of the firmware that is built; its slopes are those of stairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from boards import load_board
from pipeline.errors import StageError
from stages.firmware.config import FirmwareConfig
from stages.firmware.cost.bench import Task
from stages.firmware.cost.bench import prices as bench_prices
from stages.firmware.cost.network import OBJECTIVES, NetworkCost
from stages.firmware.cost.price_list import PriceList
from stages.firmware.cost.settings import FirmwareSettings
from stages.nets.channels import Channels, find_channels
from tests.stages.firmware.cost.branching import SHAPE, Branching

BOARD, SMALL_BOARD = "nucleo_f767zi", "disco_f746ng"
VECTORS = 6
LARGE_BYTES = 5 << 20  # the twin's flash has 4 MB
FEW_CYCLES = 20


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


def test_constants_beyond_the_twins_flash_do_not_change_a_price(cost: NetworkCost, channels: Channels) -> None:
    setting = cost._compiler.setting(load_board(BOARD))
    task = next(task for task in cost._compiler.tasks(at_a_step(channels)) if task.call.constants)
    more = f"static const int8_t op_0_more[{LARGE_BYTES}] = {{1}};\n"
    touch = f" (void)*(const volatile int8_t *)&op_0_more[{LARGE_BYTES - 1}];"
    call = replace(task.call, constants=task.call.constants + more, call=task.call.call + touch)
    usual, large = bench_prices([task], setting) + bench_prices([Task(task.graph, call)], setting)
    assert large.constants_bytes == (*usual.constants_bytes, LARGE_BYTES)
    assert large.cycles_zero_wait == pytest.approx(usual.cycles_zero_wait, abs=FEW_CYCLES)


def test_latency_is_known_where_the_flash_has_no_room(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(900, 1200), nn.ReLU(), nn.Linear(1200, 5))
    wide = find_channels(net, (30, 30, 1))
    cost = NetworkCost(wide.graph, wide.widths, [SMALL_BOARD], prices=PriceList(tmp_path))
    with pytest.raises(StageError, match=r"flash of disco_f746ng has 1048576 B"):
        cost.exact((1200,))
    latencies_ms = [cost.latency_ms((width,))[SMALL_BOARD] for width in (1200, 600)]
    assert latencies_ms[1] == cost.exact((600,))[SMALL_BOARD].latency_ms
    assert latencies_ms[0] == pytest.approx(2 * latencies_ms[1], rel=0.05)


def test_settings_have_the_keys_and_defaults_of_the_firmware_section() -> None:
    for key, value in vars(FirmwareSettings()).items():
        assert FirmwareConfig.model_fields[key].default == value
