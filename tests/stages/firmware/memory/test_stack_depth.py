"""The stack's bound: read off small programs whose depth is known, beside the compiler's word, and on the twin."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline.errors import StageError
from stages.firmware.build.toolchain import CORE_FLAGS
from stages.firmware.memory.stack_depth import stack_bound, stack_use

PROGRAM = """
#include <stdint.h>
typedef void loop(void);
void inner(void);
void inner(void) {{ volatile char room[200]; room[0] = 1; }}
void handler(void);
__attribute__((noinline)) void handler(void) {{ volatile char room[400]; room[0] = 1; }}
loop *volatile table = handler;
loop *volatile loops = inner;
void model_invoke(void);
loop *observer;
void prof_record(void);
void prof_record(void) {{ if (observer) {{ observer(); observer = 0; }} }}
__attribute__((noinline)) void model_invoke(void)
{{
    volatile char room[64];
    room[0] = 1;
    loops();
    prof_record();
    room[1] = 1;
}}
{more}
void Reset_Handler(void);
void Reset_Handler(void) {{ model_invoke(); {body} for (;;) {{ }} }}
"""


VECTORS = """
void interrupt(void);
void interrupt(void) { volatile char room[80]; room[0] = 1; }
__attribute__((section(".vectors"), used)) void (*const vectors[])(void) = {Reset_Handler, interrupt, interrupt};
"""


def linked(folder: Path, body: str = "table();", more: str = "") -> Path:
    source, image = folder / "small.c", folder / "small.elf"
    source.write_text(PROGRAM.format(body=body, more=more))
    argv = ["arm-none-eabi-gcc", *CORE_FLAGS, "-O1", "-fno-inline", "-nostdlib", "-Wl,-eReset_Handler,--emit-relocs"]
    subprocess.run([*argv, str(source), "-fstack-usage", "-o", str(image)], check=True, cwd=folder)
    return image


def test_the_deepest_path_counts_with_its_calls_through_pointers(tmp_path: Path) -> None:
    bound = stack_bound(linked(tmp_path), ["inner"])
    assert 64 + 200 <= bound.inference_bytes <= 64 + 200 + 32
    assert max(bound.inference_bytes, 400) < bound.main_bytes <= max(bound.inference_bytes, 400 + 24) + 16
    assert bound.image_bytes == bound.main_bytes


def test_every_function_takes_what_the_compiler_says(tmp_path: Path) -> None:
    bound = stack_bound(linked(tmp_path), ["inner"])
    said = {}
    for line in next(tmp_path.glob("*.su")).read_text().splitlines():
        place, size, _ = line.split("\t")
        said[place.split(":")[-1]] = int(size)
    assert bound.inference_bytes == said["model_invoke"] + said["inner"]
    assert bound.main_bytes == said["Reset_Handler"] + max(bound.inference_bytes, said["handler"])


def test_an_interrupt_may_come_at_the_deepest_place(tmp_path: Path) -> None:
    bound = stack_bound(linked(tmp_path, more="void Reset_Handler(void);" + VECTORS), ["inner"])
    assert bound.image_bytes == bound.main_bytes + 112 + 80


def test_a_function_that_is_passed_to_the_marks_counts_within_an_inference(tmp_path: Path) -> None:
    more = "void show(void); void show(void) { volatile char room[600]; room[0] = 1; }"
    bound = stack_bound(linked(tmp_path, "observer = show;", more), ["inner"])
    assert 64 + 600 <= bound.inference_bytes <= 64 + 600 + 48


def test_a_recursion_is_named(tmp_path: Path) -> None:
    more = "int deep(int n); int deep(int n) { volatile int m = n; return n ? deep(m - 1) + m : 0; }"
    with pytest.raises(StageError, match="firmware: deep -> deep is a recursion, needed none"):
        stack_bound(linked(tmp_path, "deep(3);", more), ["inner"])


def test_memory_in_amounts_that_are_not_known_is_refused(tmp_path: Path) -> None:
    more = "void vary(int n); __attribute__((noinline)) void vary(int n) { volatile char room[n]; room[0] = 1; }"
    with pytest.raises(StageError, match="firmware: vary takes memory from the stack by a register"):
        stack_bound(linked(tmp_path, "vary((int)(intptr_t)table);", more), ["inner"])


@pytest.mark.parametrize(
    ("mnemonic", "operands", "size"),
    [
        ("push", "{r4, r5, lr}", 12),
        ("vpush", "{d8, d9}", 16),
        ("stmdb", "sp!, {r4, r5, r6, r7, lr}", 20),
        ("str", "r4, [sp, #-4]!", 4),
        ("strd", "r4, r5, [sp, #-0x10]!", 16),
        ("sub", "sp, #0x18", 24),
        ("sub", "sp, sp, #0x210", 528),
        ("sub", "r0, r1, #4", 0),
        ("str", "r4, [r2, #-4]!", 0),
        ("add", "sp, #0x18", 0),
    ],
)
def test_what_an_instruction_takes(mnemonic: str, operands: str, size: int) -> None:
    assert stack_use("function", mnemonic, operands) == size
