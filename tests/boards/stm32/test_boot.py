"""The boards' own images run in unicorn: only listed registers are touched; clocks, interrupt, MPU, watchdog are right.

This catches stray accesses and wrong arithmetic. It does not prove the values on silicon; no board has run them yet.
"""

from __future__ import annotations

import re

import pytest

from boards import board_names, load_board
from stages.firmware.stage import Firmware
from tests.boards.stm32.clocked import CYCLES_PER_READ
from tests.boards.stm32.emulated_board import READY, EmulatedBoard
from tests.boards.stm32.register_model import (
    BIT,
    HSE_FROM_STLINK,
    alternate_function,
    family_of,
    pin_field,
)

pytestmark = pytest.mark.parametrize("name", board_names())
LSI_HZ = 32_000


@pytest.fixture(scope="module")
def booted(images: dict[str, Firmware]) -> dict[str, EmulatedBoard]:
    return {name: EmulatedBoard(images[name].image, load_board(name)) for name in board_names()}


@pytest.fixture
def fresh(name: str, images: dict[str, Firmware]) -> EmulatedBoard:
    """For tests that change its state."""
    return EmulatedBoard(images[name].image, load_board(name))


def test_the_image_reaches_ready(name: str, booted: dict[str, EmulatedBoard]) -> None:
    text = booted[name].sent.decode()
    assert re.fullmatch(r"m-timestamp-mode-performance\r\nm-lap-us-\d+\r\nm-init-done\r\nm-ready\r\n", text)


def test_commands_come_in_through_the_interrupt_and_touch_nothing_unlisted(name: str, fresh: EmulatedBoard) -> None:
    assert fresh.ask(b"name%") == b"m-name-dut-[%s]\r\nm-ready\r\n" % name.encode()
    assert fresh.ask(b"db load 3%db 010203%db print%").endswith(
        b"m-load-done\r\n" + READY + b"m-buffer-01-02-03\r\n" + READY
    )
    assert b"m-results-[" in fresh.ask(b"infer 1 0%")
    assert fresh.ask(b"errors%") == b"m-errors-[0]\r\n" + READY
    assert fresh.stray == []
    assert fresh.forbidden == []


def test_the_written_values_give_the_clock_of_the_description(name: str, booted: dict[str, EmulatedBoard]) -> None:
    board = booted[name]
    assert board.clocks().core_hz == load_board(name).clock_hz
    assert bool(board.written["RCC_CR"] & BIT[18]) == HSE_FROM_STLINK[name]


def test_the_microsecond_timer_counts_microseconds(name: str, booted: dict[str, EmulatedBoard]) -> None:
    board = booted[name]
    assert board.clocks().timer_hz == 1_000_000 * (board.written["TIM2_PSC"] + 1)
    assert board.written["TIM2_ARR"] == 0xFFFFFFFF
    registers = [register for register, _ in board.order]
    assert registers.index("TIM2_PSC") < registers.index("TIM2_EGR") < registers.index("TIM2_CR1")


def test_the_baud_rate_is_within_one_percent(name: str, booted: dict[str, EmulatedBoard]) -> None:
    assert booted[name].baud() == pytest.approx(load_board(name).console.baud, rel=0.01)


def test_wait_states_come_before_the_fast_clock(name: str, booted: dict[str, EmulatedBoard]) -> None:
    order, family = booted[name].order, family_of(load_board(name))
    mask, value = family.switched
    slowed = next(i for i, entry in enumerate(order) if entry[0] == "FLASH_ACR" and entry[1] & 0xF == family.latency)
    switched = next(i for i, entry in enumerate(order) if entry[0] == "RCC_CFGR" and entry[1] & mask == value)
    assert slowed < switched


def test_caches_fpu_and_cycle_counter_are_on(name: str, booted: dict[str, EmulatedBoard]) -> None:
    written, cache = booted[name].written, load_board(name).cache.data
    assert written["SCB_CCR"] & (BIT[16] | BIT[17]) == BIT[16] | BIT[17]
    assert written["SCB_CPACR"] >> 20 & 0xF == 0xF
    assert written["DWT_CTRL"] & 1 == 1
    assert written["SCB_VTOR"] == 0x08000000
    lines = [value for register, value in booted[name].order if register == "SCB_DCISW"]
    assert {(value >> 30, value >> 5 & 0x1FF) for value in lines} == {
        (way, one) for way in range(cache.ways) for one in range(cache.size // cache.ways // 32)
    }
    registers = [register for register, _ in booted[name].order]
    assert registers.index("MPU_CTRL") < registers.index("SCB_CCR"), "what is cacheable is known before caches run"


def test_the_pins_of_the_description_get_their_functions(name: str, booted: dict[str, EmulatedBoard]) -> None:
    written, described = booted[name].written, load_board(name)
    for pin in (described.console.tx, described.console.rx):
        assert alternate_function(written, pin) == 7
        assert pin_field(written, pin, "MODER", 2) == 2
        assert pin_field(written, pin, "PUPDR", 2) == 1
    assert pin_field(written, described.timestamp_pin, "MODER", 2) == 1
    port = f"GPIO{described.timestamp_pin[1]}"
    registers = [register for register, _ in booted[name].order]
    assert registers.index(f"{port}_BSRR") < registers.index(f"{port}_MODER"), "it is high before it is an output"


def test_memory_may_be_used_only_for_what_it_is_there_for(name: str, booted: dict[str, EmulatedBoard]) -> None:
    board = booted[name]
    described = load_board(name)
    linked = {"flash", *described.arena_regions}
    for region in linked:
        memory = described.memories[region]
        ends = (memory.origin + (256 if region == described.arena_regions[0] else 0), memory.origin + memory.size - 1)
        for address in ends:
            wanted = {"read": True, "write": region != "flash", "execute": region == "flash"}
            assert {use: board.mpu_allows(address, use) for use in wanted} == wanted, hex(address)
    outside = [described.memories[described.arena_regions[1]].origin + described.memories["sram"].size]
    outside += [0, 4, 0xFFF, 0x00200000, 0x08000000 + described.memories["flash"].size, 0x60000000, 0x90000000]
    for address in outside:
        assert not any(board.mpu_allows(address, use) for use in ("read", "write", "execute")), hex(address)
    guard = described.memories[described.arena_regions[0]].origin
    assert not board.mpu_allows(guard, "read") and not board.mpu_allows(guard + 255, "write")
    assert board.mpu_allows(0x40000000, "write") and not board.mpu_allows(0x40000000, "execute")
    (flash,) = (region for region in board.regions.values() if region.executable)
    assert flash.kind == 0b000010, "write-through, as without an MPU: the cost model stands on it"
    assert board.written["MPU_CTRL"] == 1, "no background region, and not in the fault handler"


def test_the_watchdog_runs_with_its_longest_time_and_is_kept_alive(name: str, fresh: EmulatedBoard) -> None:
    keys = [value for register, value in fresh.order if register == "IWDG_KR"]
    assert keys[:3] == [0xCCCC, 0x5555, 0xAAAA]
    seconds = (fresh.written["IWDG_RLR"] + 1) * (4 << fresh.written["IWDG_PR"]) / LSI_HZ
    assert 32 < seconds < 33
    assert fresh.written["DEBUG_FREEZE"], "it stands still while a debugger halts the core"
    before = sum(register == "IWDG_KR" for register, _ in fresh.order)
    fresh.ask(b"infer 5 5%")
    assert sum(register == "IWDG_KR" for register, _ in fresh.order) >= before + 10


def test_a_reset_by_the_watchdog_is_told_and_its_mark_is_cleared(name: str, images: dict[str, Firmware]) -> None:
    described = load_board(name)
    family = family_of(described)
    bitten = EmulatedBoard(images[name].image, described, reset_cause=BIT[family.watchdog_bit])
    assert bitten.sent.startswith(b"m-timestamp-mode-performance\r\nm-[reset by watchdog]\r\nm-lap-us-")
    clear = {"STM32F7": 24, "STM32H7": 16}[described.mcu[:7]]
    assert bitten.written["RESET_CAUSE"] & BIT[clear]
    other = EmulatedBoard(images[name].image, described, reset_cause=0xFFFFFFFF & ~BIT[family.watchdog_bit])
    assert b"watchdog" not in other.sent


def test_time_goes_on_through_every_turn_of_the_cycle_counter(name: str, fresh: EmulatedBoard) -> None:
    """Also through turns in which nobody looks: 8.9 s at 480 MHz, less than some inferences may take."""
    mhz = load_board(name).clock_hz // 1_000_000
    before_us, before = int(fresh.ask(b"timestamp%").split(b"-")[3].split()[0]), fresh.cycles
    for jump in (1 << 31, (1 << 32) - 5000, 1 << 32, (1 << 32) + 12_345, 7 << 32, 1000):
        fresh.cycles += jump
        now_us, now = int(fresh.ask(b"timestamp%").split(b"-")[3].split()[0]), fresh.cycles
        # What the lap line itself took is left out; each look at the counter is worth so many cycles here.
        assert (now - before) / mhz - 100 * CYCLES_PER_READ / mhz <= now_us - before_us <= (now - before) / mhz + 1
        before_us, before = now_us, now


def test_a_line_with_a_lost_or_damaged_byte_is_not_run(name: str, fresh: EmulatedBoard) -> None:
    for byte in b"nam":
        fresh.receive(byte)
    fresh.receive(ord("e"), overrun=True)  # the byte after it is lost
    assert fresh.ask(b"%") == b"e-[Line damaged on its way here, 1 bytes since start]\r\n" + READY
    fresh.receive(ord("n"), flags=BIT[1])  # framing error
    assert fresh.ask(b"ame%") == b"e-[Line damaged on its way here, 2 bytes since start]\r\n" + READY
    fresh.receive(ord("n"), flags=BIT[2])  # noise
    assert fresh.ask(b"ame%name%").startswith(b"e-[Line damaged on its way here, 3 bytes since start]\r\n" + READY)
    assert fresh.ask(b"name%") == b"m-name-dut-[%s]\r\nm-ready\r\n" % name.encode()
    assert fresh.ask(b"errors%") == b"m-errors-[3]\r\n" + READY


def test_another_baud_rate_comes_after_the_reply_and_goes_without_confirmation(name: str, fresh: EmulatedBoard) -> None:
    assert fresh.ask(b"baud 921600%") == b"m-baud-[921600]\r\n" + READY
    assert fresh.ask(b"baud%") == b"m-baud-[921600]\r\n" + READY
    assert fresh.baud() == pytest.approx(921600, rel=0.02)
    fresh.cycles += 3 * load_board(name).clock_hz
    fresh.run()
    assert fresh.ask(b"baud%") == b"m-baud-[115200]\r\n" + READY
    assert fresh.baud() == pytest.approx(115200, rel=0.01)
    assert fresh.ask(b"baud 921600%") == b"m-baud-[921600]\r\n" + READY
    assert fresh.ask(b"baud ok%") == READY
    fresh.cycles += 3 * load_board(name).clock_hz
    assert fresh.ask(b"baud%") == b"m-baud-[921600]\r\n" + READY
    assert fresh.stray == []


def test_reset_asks_the_core_for_one(name: str, fresh: EmulatedBoard) -> None:
    assert fresh.ask(b"reset%").endswith(b"m-init-done\r\n" + READY)
    assert fresh.resets == 1
