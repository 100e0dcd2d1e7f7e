"""What protects the firmware from itself, on the twin: MPU, fault handler, watchdog; and from a busy line: the ring."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from boards import load_board
from stages.firmware.build.image import build_images
from stages.firmware.stage import Firmware
from tests.boards.twin.qemu_twin import Twin, running_twin

BOARD = "nucleo_f767zi"
RING_BYTES = 512
MPU_DATA, MPU_FETCH = 0x82, 0x01  # DACCVIOL with MMARVALID; IACCVIOL (DDI 0403, MMFSR)
MISDEEDS = {
    "undefined_instruction": "__builtin_trap();",
    "bus_error": "*(volatile uint32_t *)0x50000000u = 1;",
    "null_pointer_read": "volatile uint32_t *volatile nowhere = 0; (void)*nowhere;",
    "null_pointer_write": "volatile uint32_t *volatile nowhere = 0; nowhere[3] = 1;",
    "null_function": "void (*volatile nowhere)(void) = 0; nowhere();",
    "write_to_flash": "*(volatile uint32_t *)(uint32_t)&model_invoke = 1;",
    "execute_data": 'static volatile uint16_t code[] = {0x4770}; __asm volatile("blx %0" :: "r"((uint32_t)code | 1u));',
    "outside_all_memory": "*(volatile uint32_t *)0x90000000u = 1;",
    "stack_overflow": 'for (;;) { __asm volatile("push {r0-r7}"); }',
    "stack_far_below": '__asm volatile("mov sp, %0; push {r0-r7}" :: "r"(0x1F000000u));',
    # Asleep, so that time need not be waited for: with sleep=off QEMU goes to the next event at once. It is a hang like
    # any other, since nothing but the watchdog's own interrupt gets through.
    "hang": 'for (;;) { __asm volatile("cpsid i; wfi"); }',
}


@pytest.fixture(scope="module")
def misbehaving(images: dict[str, Firmware], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A twin whose network does what its first input byte asks for."""
    folder = tmp_path_factory.mktemp("misbehaving")
    broken = folder / "generated"
    shutil.copytree(images[BOARD].generated, broken)
    source = (broken / "model.c").read_text()
    marked = "void model_invoke(void)\n{\n"
    assert marked in source
    cases = "".join(f"    case {i}: {{ {body} break; }}\n" for i, body in enumerate(MISDEEDS.values(), start=1))
    switch = f"    switch (*model_input()) {{\n{cases}    default: break;\n    }}\n"
    (broken / "model.c").write_text(source.replace(marked, marked + switch))
    return build_images(load_board(BOARD), broken, "O2", folder).twin


@pytest.fixture
def twin(images: dict[str, Firmware]) -> Iterator[Twin]:
    with running_twin(images[BOARD].twin) as (running, _):
        yield running


def symbol(image: Path, name: str) -> tuple[int, int]:
    """Where it starts and ends."""
    with image.open("rb") as file:
        (found,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name(name)
        start = found["st_value"] & ~1
        return start, start + found["st_size"]


def misdeed(twin: Twin, name: str) -> list[str]:
    twin.load(bytes([1 + list(MISDEEDS).index(name)]))
    return twin.ask("infer 1 0")


@pytest.mark.slow
def test_each_misdeed_is_reported_with_its_registers_and_the_board_comes_back(misbehaving: Path) -> None:
    start, end = symbol(misbehaving, "model_invoke")
    code, _ = symbol(misbehaving, "code.0")
    guard, _ = symbol(misbehaving, "_stack_guard")
    expected = {  # CFSR, the address register and what it holds
        "undefined_instruction": (0x00010000, "", 0),
        "bus_error": (0x00008200, "BFAR", 0x50000000),
        "null_pointer_read": (MPU_DATA, "MMFAR", 0),
        "null_pointer_write": (MPU_DATA, "MMFAR", 12),
        "null_function": (
            MPU_FETCH,
            "",
            0,
        ),  # QEMU asks the MPU first; a core finds INVSTATE, which is reported as well
        "write_to_flash": (MPU_DATA, "MMFAR", start + 1),
        "execute_data": (MPU_FETCH, "", 0),
        "outside_all_memory": (MPU_DATA, "MMFAR", 0x90000000),
        "stack_overflow": (None, "MMFAR", None),
        "stack_far_below": (None, "MMFAR", None),
    }
    with running_twin(misbehaving) as (twin, _):
        for name, (cfsr, register, address) in expected.items():
            fault = faulted(misdeed(twin, name))
            assert fault["HFSR"] == 0x40000000, name  # FORCED: an escalated fault
            assert cfsr in (None, fault["CFSR"]), name
            assert not register or address in (None, fault[register]), name
            if name.startswith("stack"):
                assert fault["PC"] == 0xFFFFFFFF, "there is no frame to read it from"
                assert fault["CFSR"] & MPU_DATA == MPU_DATA
                inside = guard <= fault["MMFAR"] < guard + 256
                assert inside == (name == "stack_overflow")
            elif name not in ("execute_data", "null_function"):
                assert start <= fault["PC"] < end, name
            else:
                assert fault["PC"] & ~1 == (code if name == "execute_data" else 0), name
                assert start <= fault["LR"] < end, "who called"
            assert twin.ask("name") == [f"m-name-dut-[virtual {BOARD}]"]


def faulted(lines: list[str]) -> dict[str, int]:
    """The registers of the fault line, which boot messages must follow."""
    names = ("CFSR", "HFSR", "MMFAR", "BFAR", "PC", "LR")
    registers = " ".join(f"{name}=([0-9a-f]{{8}})" for name in names)
    (line,) = (line for line in lines if line.startswith("e-"))
    match = re.fullmatch(rf"e-\[Fault: {registers}\]", line)
    assert match, line
    after = lines[lines.index(line) + 1 :]
    assert (after[0], after[-1]) == ("m-timestamp-mode-performance", "m-init-done")
    return {name: int(value, 16) for name, value in zip(names, match.groups(), strict=True)}


@pytest.mark.slow
def test_a_hang_ends_in_a_reset_by_the_watchdog(misbehaving: Path) -> None:
    with running_twin(misbehaving, icount="shift=10,sleep=off") as (twin, boot):
        assert "m-[reset by watchdog]" not in boot
        lines = misdeed(twin, "hang")
        boot = lines[lines.index("m-timestamp-mode-performance") :]
        assert boot[1] == "m-[reset by watchdog]"
        assert boot[-1] == "m-init-done"
        assert "m-[reset by watchdog]" not in twin.ask("reset"), "it is told once"


def test_bytes_that_arrive_during_an_inference_wait_in_the_ring(twin: Twin) -> None:
    twin.send(b"infer 300 0%name%clock%")
    assert twin.lines_until_ready()[-2] == "m-infer-done"
    assert twin.lines_until_ready() == [f"m-name-dut-[virtual {BOARD}]"]
    assert twin.lines_until_ready() == ["m-clock-[216000000]"]
    assert twin.ask("errors") == ["m-errors-[0]"]


def test_more_bytes_than_the_ring_holds_are_counted_and_their_line_is_refused(twin: Twin) -> None:
    extra = 70
    twin.send(b"infer 5000 0%" + b"x" * (RING_BYTES + extra - 6) + b"%name%")
    assert twin.lines_until_ready()[-2] == "m-infer-done"
    # The ring holds x only; what was lost are the last of them, the % and a whole command. Until the main loop has
    # taken the first of them the ring is full, and a new % may be lost as well: then it is sent again.
    twin.send(b"%")
    while not twin.hears_within(3.0):
        extra += 1
        twin.send(b"%")
    assert twin.lines_until_ready() == [f"e-[Line damaged on its way here, {extra} bytes since start]"]
    assert twin.ask("errors") == [f"m-errors-[{extra}]"]
    assert twin.ask("name") == [f"m-name-dut-[virtual {BOARD}]"]


@pytest.mark.slow
def test_another_baud_rate_must_be_confirmed(twin: Twin) -> None:
    assert twin.ask("baud") == ["m-baud-[115200]"]
    assert twin.ask("baud 921600") == ["m-baud-[921600]"]
    assert twin.ask("baud ok") == []
    a_second_and_a_half = int(1.5 * 216e6)
    twin.ask(f"infer {a_second_and_a_half // sum(twin.layer_instructions())} 0")
    assert twin.ask("baud") == ["m-baud-[921600]"]
    assert twin.ask("baud 1000000") == ["m-baud-[1000000]"]
    twin.ask(f"infer {a_second_and_a_half // sum(twin.layer_instructions())} 0")
    assert twin.ask("baud") == ["m-baud-[921600]"], "back to the last confirmed rate"
    assert twin.ask("baud 3000000") == ["e-[Baud rate refused: 3000000]"]
    assert "m-init-done" in twin.ask("reset")
    assert twin.ask("baud") == ["m-baud-[115200]"]
