"""Anybody's ELF through the profiler: functions by name, instructions and lines that can be told by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hil.virtual.elf_profile import profile_elf
from hil.virtual.profiler import CacheShape, MemoryModel, MemoryRange
from pipeline.errors import ToolError

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


def linked(compiler: str, folder: Path, end: str) -> Path:
    source, image = folder / "program.S", folder / "program.elf"
    source.write_text(PROGRAM.format(end=end))
    layout = ["-Wl,--section-start=.vectors=0", "-Wl,-Ttext=0x100", "-Wl,-estart", "-nostdlib"]
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


def test_a_program_that_does_not_end_is_ended(cross_compiler: str, plugin: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"program.elf: still running after 2 s; let it end by a semihosting exit"):
        profile_elf(linked(cross_compiler, tmp_path, "b ."), MODEL, plugin, 2.0)
