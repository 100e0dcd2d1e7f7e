"""board.yaml: what is read, what is refused, and that it agrees with the linker script beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boards import BOARDS_FOLDER, CALIBRATION, SPLIT_FLASH, Board, board_names, calibrated, load_board, read_board
from pipeline.errors import ConfigError

UNITS = {"": 1, "K": 1024, "M": 1024**2}


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """The F767's description with one change, in a folder of the right name."""
    text = (BOARDS_FOLDER / "nucleo_f767zi" / "board.yaml").read_text()
    assert old in text
    path = tmp_path / "nucleo_f767zi" / "board.yaml"
    path.parent.mkdir()
    path.write_text(text.replace(old, new))
    return path


def test_both_nucleo_boards_and_the_discovery_board_are_known() -> None:
    assert board_names() == ("disco_f746ng", "nucleo_f767zi", "nucleo_h743zi2")


@pytest.mark.parametrize(
    ("name", "clock_hz", "code", "dtcm_kib"),
    [
        ("nucleo_f767zi", 216_000_000, "0818", 128),
        ("nucleo_h743zi2", 480_000_000, "0836", 128),
        ("disco_f746ng", 216_000_000, "0815", 64),
    ],
)
def test_a_board_is_read_with_its_units(name: str, clock_hz: int, code: str, dtcm_kib: int) -> None:
    board = load_board(name)
    assert (board.clock_hz, board.probe.mbed_code, board.console.baud) == (clock_hz, code, 115200)
    assert board.memories["dtcm"].size == dtcm_kib * 1024
    assert not board.memories["dtcm"].cached
    assert board.memories["sram"].cached
    assert board.cache.instruction.size == board.cache.data.size
    assert board.flashing.connect_under_reset == (name == "nucleo_h743zi2")
    assert (board.baud(), board.baud(measures_energy=True)) == (115200, 9600)


@pytest.mark.parametrize("name", board_names())
def test_linker_script_and_description_give_the_same_regions(name: str) -> None:
    board = load_board(name)
    text = (board.folder / "memory.ld").read_text()
    regions = re.findall(r"(\w+) \(\w+\) : ORIGIN = (0x[0-9A-F]+), LENGTH = (\d+)([KM]?)", text)
    assert len(regions) == 3
    for region, origin, length, unit in regions:
        memory = board.memories[region.lower()]
        assert (memory.origin, memory.size) == (int(origin, 16), int(length) * UNITS[unit])
    aliases = dict(re.findall(r'REGION_ALIAS\("(\w+)", (\w+)\)', text))
    assert (aliases["FAST"].lower(), aliases["BULK"].lower()) == board.arena_regions


@pytest.mark.parametrize("name", ["nucleo_f767zi", "disco_f746ng"])
def test_a_line_of_the_f7s_ram_comes_over_a_32_bit_bus(name: str) -> None:
    cache, on_the_way = load_board(name).cache, 5
    assert cache.ram_load_fill_cycles == cache.line // (32 // 8) + on_the_way
    assert "behind a 32-bit bus" in (load_board("nucleo_f767zi").folder / "board.yaml").read_text()


def test_a_board_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_board("nucleo_f767zi").clock_hz = 1  # type: ignore[misc]


def test_unknown_board_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown board 'nucleo_f767', known are .*; did you mean 'nucleo_f767zi'\?"):
        load_board("nucleo_f767")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mcu: STM32F767ZI", "mcu: STM32F767ZI\ncolour: blue", r"nucleo_f767zi/board.yaml: colour: Extra inputs"),
        ("216MHz", "216", r"clock_hz: .*missing unit"),
        ("[dtcm, sram]", "[dtcm, sdram]", r"found region 'sdram', needed one of memories: flash, itcm, dtcm, sram"),
        ("name: nucleo_f767zi", "name: nucleo", r"name is 'nucleo', needed 'nucleo_f767zi' like its folder"),
        ("name: nucleo_f767zi", "name: [", r"not readable"),
        ("timestamp_pin: PF13", "timestamp_pin: D7", r"timestamp_pin: String should match"),
        ('"0483:374b"', '"ST-LINK"', r"probe.usb_ids.0: String should match"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_board(changed(tmp_path, old, new))


def test_an_unchanged_copy_reads_like_the_original(tmp_path: Path) -> None:
    copy: Board = read_board(changed(tmp_path, "216MHz", "216MHz"))
    assert copy == load_board("nucleo_f767zi")


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "device: {", "\x00", "device: hardware", "device: hardware\ncache: {flash_fill_cycles: .nan}\n"],
)
def test_a_damaged_calibration_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / CALIBRATION).write_text(text)
    with pytest.raises(ConfigError, match=r"calibration.yaml: no calibration \(.*write it anew: pipeline cal") as found:
        calibrated(load_board("nucleo_f767zi"), tmp_path / CALIBRATION)
    assert "\n" not in str(found.value)


def test_flash_in_two_banks_costs_what_the_description_says_of_it() -> None:
    board, told = load_board("nucleo_f767zi"), ("m-timestamp-mode-performance", SPLIT_FLASH, "m-init-done")
    assert board.told(told).cache.flash_fill_cycles == board.cache.flash_fill_cycles_dual_bank == 24
    assert board.told(()) == board, "one bank"
    assert load_board("nucleo_h743zi2").told(told) == load_board("nucleo_h743zi2"), "has no such option"
    slow = board.at_clock(board.clocks[-1].hz)
    assert slow.told(told).cache.flash_fill_cycles == pytest.approx(slow.cache.flash_fill_cycles * 24 / 16)
