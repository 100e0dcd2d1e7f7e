"""The boards' own images boot in unicorn: only listed registers are touched and the clocks come out right.

This catches stray accesses and wrong arithmetic. It does not prove the values on silicon; no board has run them yet.
"""

from __future__ import annotations

import re

import pytest

from boards import board_names, load_board
from stages.firmware.stage import Firmware
from tests.boards.register_model import BIT, CHIPS, Boot, boot


@pytest.fixture(scope="module")
def boots(images: dict[str, Firmware]) -> dict[str, Boot]:
    return {name: boot(images[name].image, CHIPS[name]) for name in board_names()}


@pytest.mark.parametrize("name", board_names())
def test_the_image_reaches_ready(name: str, boots: dict[str, Boot]) -> None:
    text = bytes(boots[name].sent).decode()
    assert re.fullmatch(r"m-timestamp-mode-performance\r\nm-lap-us-\d+\r\nm-init-done\r\nm-ready\r\n", text)


@pytest.mark.parametrize("name", board_names())
def test_no_register_is_touched_that_is_not_listed(name: str, boots: dict[str, Boot]) -> None:
    assert boots[name].stray == []


@pytest.mark.parametrize("name", board_names())
def test_the_written_values_give_the_clock_of_the_description(name: str, boots: dict[str, Boot]) -> None:
    core_hz, _ = CHIPS[name].clocks(boots[name].written)
    assert core_hz == load_board(name).clock_hz


@pytest.mark.parametrize("name", board_names())
def test_the_baud_rate_is_within_one_percent(name: str, boots: dict[str, Boot]) -> None:
    _, usart_hz = CHIPS[name].clocks(boots[name].written)
    baud = usart_hz / boots[name].written["USART3_BRR"]
    assert baud == pytest.approx(load_board(name).console.baud, rel=0.01)


@pytest.mark.parametrize("name", board_names())
def test_wait_states_come_before_the_fast_clock(name: str, boots: dict[str, Boot]) -> None:
    latency = {"nucleo_f767zi": 7, "nucleo_h743zi2": 4}[name]
    switch = {"nucleo_f767zi": 2, "nucleo_h743zi2": 3}[name]
    order = boots[name].order
    slowed = next(i for i, (register, value) in enumerate(order) if register == "FLASH_ACR" and value & 0xF == latency)
    switched = next(i for i, (register, value) in enumerate(order) if register == "RCC_CFGR" and value & 7 == switch)
    assert slowed < switched


@pytest.mark.parametrize("name", board_names())
def test_caches_fpu_and_cycle_counter_are_on(name: str, boots: dict[str, Boot]) -> None:
    written = boots[name].written
    assert written["SCB_CCR"] & (BIT[16] | BIT[17]) == BIT[16] | BIT[17]
    assert written["SCB_CPACR"] >> 20 & 0xF == 0xF
    assert written["DWT_CTRL"] & 1 == 1
    assert written["SCB_VTOR"] == 0x08000000
    every_line = {value for register, value in boots[name].order if register == "SCB_DCISW"}
    assert len(every_line) == 128 * 4


@pytest.mark.parametrize("name", board_names())
def test_both_console_pins_get_the_usarts_function(name: str, boots: dict[str, Boot]) -> None:
    written = boots[name].written
    assert written["GPIOD_MODER"] >> 16 & 0xF == 0xA
    assert written["GPIOD_AFRH"] & 0xFF == 0x77
