"""What goes wrong on the first day, on the register model: the debugger's hand-over, a dead oscillator, old silicon, a
console that is not there. Each of these ended in silence or in wrong times once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import capstone
import pytest
from elftools.elf.elffile import ELFFile

from boards import board_names, load_board
from stages.firmware.build.image import Images, build_images
from stages.firmware.build.toolchain import Toolchain
from stages.firmware.link_settings import link_settings
from stages.firmware.stage import Firmware, FirmwareConfig
from stages.graph.graph import Graph
from tests.benchmarks.firmware.findings_before import FINDINGS, Finding
from tests.boards.stm32.clocked import CYCLES_PER_READ
from tests.boards.stm32.emulated_board import READY, EmulatedBoard
from tests.boards.stm32.register_model import BIT, Silicon

H743 = "nucleo_h743zi2"
REVISION_Y = 0x1003
CHIP = re.compile(rb"m-chip-\[(\w+),([0-9a-f]{8})\]")


def emulated(images: dict[str, Firmware], name: str, **silicon: object) -> EmulatedBoard:
    return EmulatedBoard(images[name].image, load_board(name), silicon=Silicon(**silicon))


def lap_us(board: EmulatedBoard) -> int:
    return int(board.ask(b"timestamp%").split(b"-")[3].split()[0])


def chip(board: EmulatedBoard) -> dict[str, int]:
    return {found[1].decode(): int(found[2], 16) for found in CHIP.finditer(board.ask(b"chip%"))}


@pytest.mark.parametrize("name", board_names())
@pytest.mark.parametrize("seconds", [0.0, 0.5, 7.0, 30.0])
def test_time_goes_on_after_a_debugger_switched_the_cycle_counter_off(
    name: str, seconds: float, images: dict[str, Firmware]
) -> None:
    board, mhz = emulated(images, name), load_board(name).clock_hz // 1_000_000
    before = lap_us(board)
    board.debugger_lets_go()
    board.cycles += round(seconds * 1e6) * mhz
    looked = board.cycles
    after = lap_us(board)
    slack_us = 3 + 400 * CYCLES_PER_READ / mhz  # what is read on the way takes time here
    assert seconds * 1e6 - 1 <= after - before <= seconds * 1e6 + slack_us
    assert board.written["SCB_DEMCR"] & BIT[24] and board.written["DWT_CTRL"] & 1, "it runs again"
    board.cycles += 1000 * mhz
    later = lap_us(board)
    assert 999 <= later - after <= (board.cycles - looked) / mhz + 2


@pytest.mark.parametrize("name", board_names())
def test_the_pulse_ends_without_a_cycle_counter(
    name: str, images: dict[str, Firmware], network: Graph, tmp_path: Path
) -> None:
    generated = tmp_path / "generated"
    shutil.copytree(images[name].generated, generated)
    link = link_settings(FirmwareConfig(mode="energy"), {}, network, load_board(name))
    image = build_images(load_board(name), generated, "O2", tmp_path, link).image
    board = EmulatedBoard(image, load_board(name))
    board.stops_counter_at_fall = True
    board.edges.clear()
    assert board.ask(b"timestamp%") == READY
    (fall, fell), (rise, rose) = board.edges
    assert (fall, rise) == ("fall", "rise")
    assert 10 <= (rose - fell) / load_board(name).clock_hz * 1e6 < 30


@pytest.mark.parametrize("name", board_names())
def test_a_dead_oscillator_is_told_and_nothing_is_measured_on_the_internal_one(
    name: str, images: dict[str, Firmware]
) -> None:
    board = emulated(images, name, hse_starts=False)
    internal_hz = {"STM32F7": 16_000_000, "STM32H7": 64_000_000}[load_board(name).mcu[:7]]
    assert b"m-[trouble: HSE]\r\n" in board.sent
    assert board.sent.endswith(READY)
    assert board.ask(b"clock%") == b"m-clock-[%d]\r\n" % internal_hz + READY
    for command in (b"infer 1 0%", b"infer%"):
        assert board.ask(command).startswith(b"e-[Not measured: HSE]")
    assert board.baud() == pytest.approx(115200, rel=0.01), "the console's divider follows"
    assert board.cycles / internal_hz < 0.5, "the wait was a short one"
    assert board.stray == []


@pytest.mark.parametrize(
    ("name", "silicon", "words"),
    [
        *((name, {"pll_locks": False}, "PLL") for name in board_names()),
        *((name, {"voltage_is_reached": False}, "VOS") for name in board_names()),
    ],
)
def test_every_wait_of_start_up_ends_in_words(
    name: str, silicon: dict[str, bool], words: str, images: dict[str, Firmware]
) -> None:
    board = emulated(images, name, **silicon)
    assert b"m-[trouble: " + words.encode() in board.sent
    assert board.sent.endswith(READY)


def test_old_silicon_does_not_get_480_mhz(images: dict[str, Firmware]) -> None:
    board = emulated(images, H743, revision=REVISION_Y)
    assert b"m-[trouble: REV]\r\n" in board.sent
    assert board.clocks().core_hz == 64_000_000
    assert "SYSCFG_PWRCR" not in board.written, "no VOS0 either"
    assert board.ask(b"infer 1 0%").startswith(b"e-[Not measured: REV]")


@pytest.fixture(scope="module")
def faulty(images: dict[str, Firmware], tmp_path_factory: pytest.TempPathFactory) -> dict[str, EmulatedBoard]:
    """Boards whose clock set-up runs into an undefined instruction, long before there is a console."""
    found = {}
    for name in board_names():
        with images[name].image.open("rb") as file:
            (symbol,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name("clock_full_speed")
        address = symbol["st_value"] & ~1
        found[name] = _once_broken(images[name].image, name, address)
    return found


def _once_broken(image: Path, name: str, address: int) -> EmulatedBoard:
    return EmulatedBoard(
        image, load_board(name), poked={address: b"\x00\xde"}, silicon=Silicon(restarts_on_request=False)
    )


@pytest.mark.parametrize("name", board_names())
def test_a_fault_before_the_console_blinks_and_resets(name: str, faulty: dict[str, EmulatedBoard]) -> None:
    board = faulty[name]
    assert board.resets == 1, "it asked for a reset instead of waiting for a USART that does not run"
    assert board.flashes == 1, "the clock was being set up"
    assert board.sent == b""
    assert board.cycles / 16e6 < 20, "before the watchdog would have had to"


@pytest.mark.parametrize("name", board_names())
def test_a_usart_that_sends_nothing_does_not_stop_the_board(name: str, images: dict[str, Firmware]) -> None:
    board = emulated(images, name, usart_sends=False)
    assert board.sent == b""
    fed = sum(register == "IWDG_KR" for register, _ in board.order)
    assert fed < 10, "waiting is no sign of life"
    before = board.cycles
    for byte in b"name%":
        board.receive(byte)
        board.run()
    assert (board.cycles - before) / load_board(name).clock_hz < 1, "it only waits once"
    board.silicon = Silicon()
    assert board.ask(b"name%") == b"m-name-dut-[%s]\r\n" % name.encode() + READY, "and is back when the USART is"


def test_the_plls_unused_outputs_are_off_and_the_voltage_is_read_back(images: dict[str, Firmware]) -> None:
    board = emulated(images, H743)
    assert board.written["RCC_PLLCFGR"] >> 16 & 7 == 1, "P alone; after reset Q and R are on"
    raised = board.touched.index(("write", "SYSCFG_PWRCR"))
    assert board.touched[raised + 1 : raised + 3] == [("read", "SYSCFG_PWRCR"), ("read", "PWR_D3CR")]


@pytest.mark.parametrize("name", board_names())
def test_chip_reads_what_the_description_says(name: str, bringup_images: dict[str, Images]) -> None:
    board, described = EmulatedBoard(bringup_images[name].image, load_board(name)), load_board(name).chip
    found = chip(board)
    assert found["DBGMCU_IDCODE"] & 0xFFF == described.device_id
    assert found["DBGMCU_IDCODE"] >> 16 in described.revisions.values()
    assert found["FLASH_SIZE"] == described.flash_kib
    for register, wanted in described.registers.items():
        assert found[register] & wanted.mask == wanted.value, register
    assert board.stray == [] and board.forbidden == []
    board.debugger_lets_go()
    assert chip(board)["COUNTER_RESTARTS"] == 1, "and what a debugger did is told"


@pytest.mark.parametrize("name", board_names())
def test_a_chip_with_two_flash_banks_says_so_when_it_starts(name: str, images: dict[str, Firmware]) -> None:
    split = emulated(images, name, option_bytes=0xDFFFAAFD)
    assert (b"m-[option: nDBANK=0]\r\n" in split.sent) == (name == "nucleo_f767zi"), "the only one with that option"
    assert b"option" not in emulated(images, name).sent
    assert split.stray == []


def mnemonics(image: Path) -> set[str]:
    decoder = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS)
    decoder.skipdata = True
    with image.open("rb") as file:
        code = [section.data() for section in ELFFile(file).iter_sections() if section.name.startswith(".text")]
    return {found.mnemonic for section in code for found in decoder.disasm(section, 0)}


@pytest.mark.parametrize("name", board_names())
def test_no_image_has_an_instruction_that_its_fpu_lacks(name: str, images: dict[str, Firmware], tmp_path: Path) -> None:
    source, fpu = tmp_path / "half.c", load_board(name).fpu
    functions = ("float half(float x)", "{ return x * 0.5f; }"), ("double twice(double x)", "{ return x * 3.7; }")
    source.write_text("".join(f"{head};\n{head} {body}\n" for head, body in functions))
    (compiled,) = Toolchain(optimise="O2", path_names={}, fpu=fpu).compile_all([source], [], {}, tmp_path / "objects")
    assert fpu == ("fpv5-sp-d16" if name == "disco_f746ng" else "fpv5-d16")  # the F746's has single precision only
    for image in (images[name].image, compiled):
        doubles = {mnemonic for mnemonic in mnemonics(image) if ".f64" in mnemonic}
        assert not doubles or (fpu, image) == ("fpv5-d16", compiled)
    assert "vmul.f32" in mnemonics(compiled)


@pytest.mark.parametrize("name", board_names())
def test_inferences_behind_each_other_are_timed_one_by_one_in_cycles(name: str, images: dict[str, Firmware]) -> None:
    board = emulated(images, name)
    lines = board.ask(b"infer 5 2%").decode().split("\r\n")
    start, end = (int(line.removeprefix("m-lap-us-")) for line in lines if line.startswith("m-lap-us-"))
    found = re.findall(r"m-lap-\[(\d+),(\d+)\]", board.ask(b"laps%").decode())
    assert [int(number) for number, _ in found] == list(range(6)), "one look before the first"
    ends = [int(ticks) for _, ticks in found]
    assert ends == sorted(ends)
    assert (ends[-1] - ends[0]) / load_board(name).clock_hz * 1e6 == pytest.approx(end - start, abs=5)
    board.ask(b"infer 40 0%")
    assert board.ask(b"laps%").count(b"m-lap-[") == 33, "the first 32 of them"


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.name)
def test_what_was_mended_on_paper_can_be_taken_back_to_see_its_test_fail(finding: Finding) -> None:
    """`python -m tests.benchmarks.firmware.findings_before` does so; here only that its texts are still today's."""
    assert (Path(__file__).parents[3] / finding.file).read_text().count(finding.today) == 1
