"""`pipeline bringup` on the register model and on the twin: a healthy board passes, each injected fault is named."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from boards import load_board
from stages.firmware.build.image import Images
from stages.report.bringup_record import bringup_words
from stages.tools.bringup.command import bringup
from stages.tools.bringup.first_day import Record, first_day, write_record
from stages.tools.bringup.images import Trial, build_trial
from tests.boards.stm32.register_model import Silicon
from tests.boards.stm32.served_board import ModelledDevice

F767, H743 = "nucleo_f767zi", "nucleo_h743zi2"
REVISION_Y, REVISION_V = 0x1003, 0x2003
MOST_S = 180.0


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    return {name: build_trial(load_board(name), tmp_path_factory.mktemp(name)) for name in (F767, H743)}


def day(trials: dict[str, Trial], name: str, silicon: Silicon | None = None, **trouble: object) -> Record:
    device = ModelledDevice(load_board(name), silicon, **trouble)
    return first_day(load_board(name), device, trials[name], 60.0, 2.0)


def failed(record: Record) -> str:
    return next((check.name for check in record.checks if not check.ok), "")


@pytest.mark.parametrize("name", [F767, H743])
def test_a_healthy_board_passes_every_check(name: str, trials: dict[str, Trial], tmp_path: Path) -> None:
    begun = time.monotonic()
    record = day(trials, name)
    assert record.ok, record.text
    assert time.monotonic() - begun < MOST_S
    assert {
        "console",
        "probe firmware",
        "chip",
        "time",
        "link rates",
        "ram",
        "flash",
        "network",
        "fault",
        "watchdog",
        "reset",
    } <= {check.name for check in record.checks}
    computed = " ".join(check.found for check in record.checks if check.name == "network")
    assert all(kernel in computed for kernel in ("depthwise_conv_2d", "small_depthwise", "fast_depthwise"))
    path = write_record(record, tmp_path)
    assert json.loads(path.read_text())["ok"] is True
    assert "all is well" in path.with_suffix(".md").read_text()
    write_record(record, tmp_path / "bringup")
    assert bringup_words(tmp_path, name) == f"{record.when}, its twin: all {len(record.checks)} checks passed"


def address_of(image: Path, symbol: str) -> int:
    with image.open("rb") as file:
        (found,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name(symbol)
        return found["st_value"] & ~1


def flipped_constant(images: Images) -> dict[int, bytes]:
    """A bit of flash that nobody needs today."""
    return {address_of(images.image, "_image_end") - 4: b"\xff\xff\xff\x7f"}


FAULTS = [
    ("no probe", F767, {}, {"no_probe": True}, "probe", ""),
    ("a probe with old firmware", F767, {}, {"firmware": "V2J21S4"}, "probe firmware", "V2J21"),
    ("a debugger that is shut out", H743, {}, {"refuses_debugger": True}, "console", "could not be flashed"),
    ("another chip", F767, {"device_id": 0x449}, {}, "chip", "0x449"),
    ("old silicon", H743, {"revision": REVISION_Y}, {}, "revision", "0x1003"),
    ("half the flash", H743, {"flash_kib": 1024}, {}, "flash size", "1024 KiB"),
    ("two flash banks", F767, {"option_bytes": 0xDFFFAAFD}, {}, "option bytes", "nDBANK"),
    ("a dead oscillator", F767, {"hse_starts": False}, {}, "clock", "HSE"),
    ("a PLL that does not lock", H743, {"pll_locks": False}, {}, "clock", "PLL"),
    ("a voltage that is not reached", H743, {"voltage_is_reached": False}, {}, "clock", "VOS"),
    ("an oscillator 0.5 % off", F767, {"hse_error": 0.005}, {}, "time", "+0.5"),
    ("a counter that a debugger stopped", F767, {}, {"debugger_lets_go": True}, "cycle counter", "1 times"),
    ("a silent console", H743, {"usart_sends": False}, {}, "console", "nothing was received"),
    ("a line that is bad above 460800 baud", F767, {"most_baud": 500_000}, {}, "link rates", "921600"),
    ("a bit of RAM that is stuck", F767, {"stuck_ram": 0x20030000}, {}, "ram", "0x20030000"),
    ("a bit of flash that is wrong", F767, {}, {"poked": flipped_constant}, "flash", "the image has"),
    ("a watchdog that does not bite", H743, {"watchdog_bites": False}, {}, "watchdog", "nothing within"),
    ("a reset that does not come", H743, {"restarts_on_request": False}, {}, "reset", ""),
]


@pytest.mark.parametrize(
    ("name", "silicon", "trouble", "check", "words"), [pytest.param(*case[1:], id=case[0]) for case in FAULTS]
)
def test_an_injected_fault_is_named_and_nothing_hangs(
    name: str, silicon: dict[str, object], trouble: dict[str, object], check: str, words: str, trials: dict[str, Trial]
) -> None:
    begun = time.monotonic()
    record = day(trials, name, Silicon(**silicon), **trouble)
    assert time.monotonic() - begun < MOST_S
    assert failed(record) == check, record.text
    (found,) = [one for one in record.checks if not one.ok][:1]
    assert words in found.found
    assert found.todo and found.todo in record.text, "and what to do about it"


@pytest.mark.slow
def test_a_healthy_twin_passes(tmp_path: Path) -> None:
    begun = time.monotonic()
    answer = bringup(F767, True, tmp_path)
    assert answer.record["ok"], answer.text
    assert time.monotonic() - begun < MOST_S
    assert (tmp_path / f"bringup_{F767}.json").exists()
