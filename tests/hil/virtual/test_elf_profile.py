"""Anybody's ELF through the profiler: functions by name, instructions and lines that can be told by hand."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hil.virtual.elf_profile import profile_elf
from hil.virtual.profiler import CacheShape, MemoryModel, MemoryRange
from pipeline.errors import ConfigError, ToolError
from stages.tools.modelling.elf_profile import memory_range, profile

BYTES, LINE = 8192, 32
PROGRAM = """
    .syntax unified
    .thumb
    .cpu cortex-m7
    .section .vectors, "a"
    .word 0x20010000, start + 1
    .text
    .thumb_func
    .type start, %function
start:
    ldr r0, =0x20002000
    movw r1, #8192
    bl reads
    ldr r0, =0x20006000
    movw r1, #8192
    bl writes
    {end}
    .size start, .-start
    .thumb_func
    .type reads, %function
reads:
1:  ldr r2, [r0], #4
    subs r1, #4
    bne 1b
    bx lr
    .size reads, .-reads
    .thumb_func
    .type writes, %function
writes:
1:  str r2, [r0], #4
    subs r1, #4
    bne 1b
    bx lr
    .size writes, .-writes
"""
EXIT = "movs r0, #0x18\n ldr r1, =0x20026\n bkpt 0xab"  # SYS_EXIT, ADP_Stopped_ApplicationExit
MODEL = MemoryModel(
    CacheShape(16384, 2, LINE),
    CacheShape(1024, 4, LINE),
    *(16, 13, 5, 6),
    ranges=(MemoryRange(0, 1 << 22, "flash"), MemoryRange(0x20000000, 1 << 22, "ram")),
)


def linked(compiler: str, folder: Path, end: str, more: str = "") -> Path:
    source, image = folder / "program.S", folder / "program.elf"
    source.write_text(PROGRAM.format(end=end) + more)
    layout = ["-Wl,--section-start=.vectors=0", "-Wl,-Ttext=0x100", "-Wl,-Tbss=0x20001000", "-Wl,-estart", "-nostdlib"]
    subprocess.run([compiler, "-mcpu=cortex-m7", "-mthumb", *layout, source, "-o", image], check=True)
    return image


def test_each_function_has_its_instructions_and_lines(cross_compiler: str, plugin: Path, tmp_path: Path) -> None:
    found = {one.name: one for one in profile_elf(linked(cross_compiler, tmp_path, EXIT), MODEL, plugin, 60.0)}
    rounds, lines = BYTES // 4, BYTES // LINE
    assert found["reads"].instructions == found["writes"].instructions == 3 * rounds + 1
    assert found["reads"].traffic.ram_load_fills == lines and found["reads"].traffic.ram_store_fills == 0
    assert found["writes"].traffic.ram_store_fills == lines and found["writes"].traffic.ram_load_fills == 0
    assert lines - 1024 // LINE <= found["writes"].traffic.write_backs <= lines
    assert found["reads"].cycles_zero_wait == pytest.approx(2 * rounds, abs=20)
    reads, writes = found["reads"], found["writes"]
    assert reads.cycles_modelled == reads.cycles_zero_wait + 13 * lines + 16 * reads.traffic.flash_code_fills
    assert writes.cycles_modelled - writes.cycles_zero_wait >= 5 * lines + 6 * writes.traffic.write_backs


MARKED = """
    .bss
    .balign 4
    .global stamps
    .type stamps, %object
stamps: .space 12
    .size stamps, 12
"""
MARK = "ldr r5, =stamps\n str r5, [r5, #{offset}]\n"


def marked(compiler: str, folder: Path, passes: int) -> Path:
    """Reads between marks 0 and 1, writes between 1 and 2, so many times."""
    reads = f"{MARK.format(offset=0)} ldr r0, =0x20002000\n movw r1, #8192\n bl reads\n"
    writes = f"{MARK.format(offset=4)} ldr r0, =0x20006000\n movw r1, #8192\n bl writes\n {MARK.format(offset=8)}"
    return linked(compiler, folder, (reads + writes) * passes + EXIT, MARKED)


def test_parts_between_marks_are_told_apart(cross_compiler: str, plugin: Path, tmp_path: Path) -> None:
    image = marked(cross_compiler, tmp_path, passes=2)
    reads, writes = profile_elf(image, MODEL, plugin, 60.0, marks="stamps")
    rounds, lines = BYTES // 4, BYTES // LINE
    assert (reads.name, writes.name) == ("stamps[0]", "stamps[1]")
    assert 0 <= reads.instructions - (3 * rounds + 1) < 10 and 0 <= writes.instructions - (3 * rounds + 1) < 10
    assert reads.traffic.ram_load_fills == lines and writes.traffic.ram_store_fills == lines
    assert reads.traffic.flash_code_fills == writes.traffic.flash_code_fills == 0, "of the second pass: warm"
    quiet = replace(MODEL, ranges=(MemoryRange(0x20002000, BYTES, "uncached"), *MODEL.ranges))
    assert profile_elf(image, quiet, plugin, 60.0, marks="stamps")[0].traffic.ram_load_fills == 0


@pytest.mark.parametrize(
    ("passes", "marks", "words"),
    [(1, "reads", "found no such variable"), (0, "stamps", "no stores to stamps from its first to its last element")],
)
def test_marks_that_are_not_there_are_told(
    passes: int, marks: str, words: str, cross_compiler: str, plugin: Path, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match=words):
        profile_elf(marked(cross_compiler, tmp_path, passes), MODEL, plugin, 60.0, marks=marks)


@pytest.mark.parametrize("text", ["", "1:2", "0x20000000:0:ram", "1:2:sram", "a:2:ram", "1:2:ram:3", "-1:4:ram"])
def test_a_memory_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="needed ADDRESS:BYTES:KIND, such as"):
        memory_range(text)


def test_the_command_profiles_somebodys_program(cross_compiler: str, tmp_path: Path) -> None:
    image = marked(cross_compiler, tmp_path, passes=2)
    answer = profile(image, "nucleo_h743zi2", "ram", 60.0, ("0x20006000:0x2000:dtcm",), "stamps")
    assert [one["name"] for one in answer.record["functions"]] == ["stamps[0]", "stamps[1]"]
    assert [one["traffic"]["ram_store_fills"] for one in answer.record["functions"]] == [0, 0]
    assert "cycles modelled in all" in answer.text and "part" in answer.text.splitlines()[0]
    whole = profile(image, "nucleo_h743zi2", "ram", 60.0)
    assert {"reads", "writes", "start"} <= {one["name"] for one in whole.record["functions"]}


def test_a_program_that_does_not_end_is_ended(cross_compiler: str, plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"program.elf: still running after 2 s; let it end by a semihosting exit"):
        profile_elf(linked(cross_compiler, tmp_path, "b ."), MODEL, plugin, 2.0)
