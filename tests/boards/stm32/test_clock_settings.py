"""Every clock of board.yaml on the register model: the image boots at it, with the wait states, voltage and dividers of
it. Limits are the manuals' tables, written down here a second time."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from boards import BOARDS_FOLDER, load_board, read_board
from pipeline.errors import ConfigError
from stages.firmware.build.image import build_images
from stages.firmware.stage import Firmware
from tests.boards.stm32.emulated_board import READY, EmulatedBoard
from tests.boards.stm32.register_model import BIT, family_of

SLOWER = [("nucleo_f767zi", 144), ("nucleo_f767zi", 72)]
SLOWER += [("nucleo_h743zi2", mhz) for mhz in (400, 240, 120)]
# RM0433, table 17: highest AXI clock in MHz for 0, 1, 2, ... wait states, by VOS; data sheet: highest core clock.
H7_AXI_MHZ = {0: (70, 140, 210, 225, 240), 1: (70, 140, 210, 225), 2: (55, 110, 165, 225), 3: (45, 90, 135, 180, 225)}
H7_CORE_MHZ = {0: 480, 1: 400, 2: 300, 3: 200}
# RM0410 3.3.2 at 2.7 to 3.6 V: 30 MHz for each wait state; 4.4.1: highest clock by scale, without and with over-drive.
F7_CORE_MHZ = {3: 144, 2: 168, 1: 180}
Running = dict[tuple[str, int], EmulatedBoard]


@pytest.fixture(scope="module")
def running(
    images: dict[str, Firmware], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], EmulatedBoard]:
    found = {}
    for name, mhz in SLOWER:
        folder = tmp_path_factory.mktemp(f"{name}_{mhz}")
        shutil.copytree(images[name].generated, folder / "generated")
        board = load_board(name).at_clock(mhz * 1_000_000)
        found[name, mhz] = EmulatedBoard(build_images(board, folder / "generated", "O2", folder).image, board)
    return found


@pytest.mark.parametrize(("name", "mhz"), SLOWER)
def test_the_image_boots_at_its_clock_and_all_that_depends_on_it_follows(name: str, mhz: int, running: Running) -> None:
    board = running[name, mhz]
    assert re.fullmatch(rb"m-timestamp-mode-performance\r\nm-lap-us-\d+\r\nm-init-done\r\nm-ready\r\n", board.sent)
    assert board.clocks().core_hz == mhz * 1_000_000
    assert board.clocks().timer_hz == 1_000_000 * (board.written["TIM2_PSC"] + 1)
    assert board.baud() == pytest.approx(115_200, rel=0.01)
    assert board.ask(b"clock%") == b"m-clock-[%d]\r\n" % (mhz * 1_000_000) + READY
    assert board.ask(b"baud 921600%") == b"m-baud-[921600]\r\n" + READY
    assert board.baud() == pytest.approx(921_600, rel=0.02)
    assert board.ask(b"baud ok%") == READY
    assert b"m-results-[" in board.ask(b"infer 1 0%")
    assert board.stray == board.forbidden == []


@pytest.mark.parametrize(("name", "mhz"), SLOWER)
def test_flash_and_voltage_are_within_the_manuals_limits(name: str, mhz: int, running: Running) -> None:
    written, order = running[name, mhz].written, running[name, mhz].order
    wait_states = written["FLASH_ACR"] & 0xF
    if name == "nucleo_h743zi2":
        scale = 4 - (written["PWR_D3CR"] >> 14 & 3)
        assert not written.get("SYSCFG_PWRCR", 0) & 1, "VOS0 is for more than 400 MHz"
        assert mhz <= H7_CORE_MHZ[scale]
        assert mhz / 2 <= H7_AXI_MHZ[scale][wait_states]
        assert all(scale < lower or mhz > H7_CORE_MHZ[lower] for lower in (1, 2, 3) if lower > scale), (
            "no more than needed"
        )
        values = [value >> 14 & 3 for register, value in order if register == "PWR_D3CR"]
        assert 0 not in values, "a value that the manual reserves, not even on the way"
    else:
        scale = {3: 1, 2: 2, 1: 3}[written["PWR_CR1"] >> 14 & 3]
        assert not written["PWR_CR1"] & (BIT[16] | BIT[17]), "over-drive is for more than 180 MHz"
        assert mhz <= F7_CORE_MHZ[scale] and scale == 3
        assert mhz <= 30 * (wait_states + 1)
        registers = [(register, value) for register, value in order if register in ("PWR_CR1", "RCC_CR")]
        chosen = next(i for i, (register, _) in enumerate(registers) if register == "PWR_CR1")
        started = next(i for i, (register, value) in enumerate(registers) if register == "RCC_CR" and value & BIT[24])
        assert chosen < started, "the scale may change while the PLL is off only"
    mask, value = family_of(load_board(name)).switched
    slowed = next(i for i, entry in enumerate(order) if entry[0] == "FLASH_ACR" and entry[1] & 0xF == wait_states)
    switched = next(i for i, entry in enumerate(order) if entry[0] == "RCC_CFGR" and entry[1] & mask == value)
    assert slowed < switched


@pytest.mark.parametrize("name", ["nucleo_f767zi", "nucleo_h743zi2", "disco_f746ng"])
def test_a_lower_clock_takes_less_power_by_the_model(name: str) -> None:
    board = load_board(name)
    slower = [board.at_clock(setting.hz) for setting in board.clocks]
    assert slower[0] == board
    for fast, slow in zip(slower, slower[1:], strict=False):
        assert slow.power_active_w < fast.power_active_w and slow.power_idle_w < fast.power_idle_w
        assert board.power_fixed_w < slow.power_idle_w < slow.power_active_w
        assert slow.cache.flash_fill_cycles <= fast.cache.flash_fill_cycles
    last, full = board.clocks[-1], board.clocks[0]
    share = last.hz * last.core_v / (full.hz * full.core_v)
    dynamic = (slower[-1].power_active_w - board.power_fixed_w) / (board.power_active_w - board.power_fixed_w)
    assert dynamic == pytest.approx(share), "behind an LDO: clock times voltage"


def test_a_clock_that_is_not_described_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="nucleo_f767zi: found a clock of 100 MHz, needed one of 216MHz, 144MHz, 72MHz"
    ):
        load_board("nucleo_f767zi").at_clock(100_000_000)


def test_clocks_begin_with_the_boards_own(tmp_path: Path) -> None:
    path = tmp_path / "nucleo_f767zi" / "board.yaml"
    path.parent.mkdir()
    path.write_text(
        (BOARDS_FOLDER / "nucleo_f767zi" / "board.yaml").read_text().replace("clock_hz: 216", "clock_hz: 144")
    )
    with pytest.raises(ConfigError, match=r"found clocks .*, needed clock_hz 144000000 first"):
        read_board(path)
