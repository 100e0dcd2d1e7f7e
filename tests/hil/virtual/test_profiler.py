"""The profiler plugin: instructions against the twin's own count, cache lines against hand counts and a slow oracle."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from hil.virtual import profiler
from hil.virtual.cortex_m7 import CoreParameters
from hil.virtual.profiler import (
    CacheShape,
    MemoryKind,
    MemoryModel,
    MemoryRange,
    host_compiler,
    profile_ops,
    profile_program,
)
from hil.virtual.twin import Twin
from pipeline.errors import ToolError

MARKED_BYTES = 32  # enough for the code of the three marks below
MARK = 8  # instructions of one mark: the timer is read on one side of a boundary, the store lies on the other
LINE = 32
LINES = 8192 // LINE  # what op 1 reads and op 2 writes
PLUGIN_FOLDER = Path(profiler.__file__).parent / "plugin"


def memory_model(data: MemoryKind, data_cache_bytes: int = 1024) -> MemoryModel:
    return MemoryModel(
        instruction_cache=CacheShape(16384, 2, LINE),
        data_cache=CacheShape(data_cache_bytes, 4, LINE),
        flash_fill_cycles=16,
        ram_load_fill_cycles=13,
        ram_store_fill_cycles=5,
        write_back_cycles=6,
        ranges=(MemoryRange(0, 1 << 22, "flash"), MemoryRange(0x20000000, 1 << 22, data)),
    )


def test_instructions_equal_the_twins_own_count(tiny_twin: Path, plugin: Path) -> None:
    with Twin(tiny_twin) as twin:
        counted = [layer.ticks for layer in twin.link.layers()]
    profiled = [op.instructions for op in profile_ops(tiny_twin, None, memory_model("ram"), plugin)]
    assert len(profiled) == 3
    assert all(abs(ours - theirs) <= MARK for ours, theirs in zip(profiled, counted, strict=True))
    assert profiled[1] > 6000, "the counts are those of the ops, not of the marks"


def test_profile_is_the_same_every_time(tiny_twin: Path, plugin: Path) -> None:
    once, again = (profile_ops(tiny_twin, None, memory_model("ram"), plugin) for _ in range(2))
    assert once == again


def test_reading_constants_fetches_each_line_from_flash(tiny_twin: Path, plugin: Path) -> None:
    op = profile_ops(tiny_twin, None, memory_model("ram"), plugin)[1]
    assert LINES <= op.traffic.flash_data_fills <= LINES + 2  # a literal or two beside the 8 KB
    assert op.traffic.ram_load_fills + op.traffic.ram_store_fills <= 2


def test_writing_a_buffer_fetches_and_writes_back_each_line(tiny_twin: Path, plugin: Path) -> None:
    op = profile_ops(tiny_twin, None, memory_model("ram"), plugin)[2]
    assert LINES <= op.traffic.ram_store_fills <= LINES + 2
    assert op.traffic.ram_load_fills <= 2, "what a store fetches is counted apart"
    assert LINES - 1024 // LINE <= op.traffic.write_backs <= LINES + 2  # what still fits stays in the cache


def test_tightly_coupled_memory_costs_no_line(tiny_twin: Path, plugin: Path) -> None:
    op = profile_ops(tiny_twin, None, memory_model("uncached"), plugin)[2]
    assert op.traffic.ram_load_fills == op.traffic.ram_store_fills == 0
    assert op.traffic.write_backs == 0
    assert op.cycles_modelled == op.cycles_zero_wait + op.traffic.cycles(memory_model("uncached"))


def test_cycles_of_loops_are_those_of_their_rounds(tiny_twin: Path, plugin: Path) -> None:
    count, read, write = profile_ops(tiny_twin, None, memory_model("uncached"), plugin)
    around = 20  # call, return, mark and the mispredicted exit of the loop
    assert 0 <= count.cycles_zero_wait - 1000 <= around  # subtraction and branch pair
    assert 0 <= read.cycles_zero_wait - 2 * 2048 <= around  # load and subtraction, then the branch
    assert 0 <= write.cycles_zero_wait - 2 * 2048 <= around


def test_line_fills_are_added_at_the_boards_cost(tiny_twin: Path, plugin: Path) -> None:
    for op in profile_ops(tiny_twin, None, memory_model("ram"), plugin):
        seen = op.traffic
        fills = 16 * (seen.flash_code_fills + seen.flash_data_fills) + 13 * (seen.ram_code_fills + seen.ram_load_fills)
        fills += 5 * seen.ram_store_fills
        assert op.cycles_modelled == op.cycles_zero_wait + fills + 6 * seen.write_backs


def test_second_inference_finds_its_code_in_the_cache(tiny_twin: Path, plugin: Path) -> None:
    assert all(op.traffic.flash_code_fills == 0 for op in profile_ops(tiny_twin, None, memory_model("ram"), plugin))


MARKED = """
    .syntax unified
    .thumb
    .word 0x20001000, reset + 1
    .globl reset
    .type reset, %function
reset:
    ldr r4, =prof_stamp
    ldr r5, =flag
    b.w 0f
    .space 944 + {padding}
0:  movs r0, #0
    ldrb r3, [r5]
    str.w r0, [r4, #0]
    cbnz r3, 1f
    movs r0, #1
    ldrb r3, [r5]
    str.w r0, [r4, #4]
    cbnz r3, 1f
    movs r0, #2
    str.w r0, [r4, #8]
1:  movs r0, #0x18
    ldr r1, =0x20026
    bkpt 0xab
    .size reset, . - reset
    .bss
    .globl prof_stamp
    .type prof_stamp, %object
prof_stamp: .space 12
    .size prof_stamp, 12
flag: .space 4
"""


def test_what_lies_between_two_marks_takes_as_long_across_a_page(
    cross_compiler: str, tmp_path: Path, plugin: Path
) -> None:
    found = []
    for padding in range(0, 2 * MARKED_BYTES, 2):  # the page of 1,024 bytes ends behind, in each place, in front
        source, image = tmp_path / "marked.S", tmp_path / "marked.elf"
        source.write_text(MARKED.format(padding=padding))
        argv = [cross_compiler, "-mcpu=cortex-m7", "-mthumb", "-nostdlib", "-Wl,-Ttext=0", "-Wl,-Tbss=0x20001000"]
        subprocess.run([*argv, "-Wl,-ereset", source, "-o", image], check=True)
        regions = profile_program(image, CoreParameters(), plugin)
        found.append([(region.instructions, region.cycles_zero_wait) for region in regions])
    assert found == [[(4, 3), (3, 2)]] * MARKED_BYTES


def test_image_without_marks_is_refused(cross_compiler: str, tmp_path: Path, plugin: Path) -> None:
    source, image = tmp_path / "plain.c", tmp_path / "plain.elf"
    source.write_text("int value = 1; int main(void) { return value; }\n")
    subprocess.run([cross_compiler, "-mcpu=cortex-m7", "-mthumb", "-c", source, "-o", image], check=True)
    with pytest.raises(ToolError, match="no symbol prof_stamp.*build the twin with profiler marks"):
        profile_ops(image, None, memory_model("ram"), plugin)


def test_machine_without_a_compiler_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert host_compiler() is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host_compiler() is None


class SlowCache:
    """The oracle: one list of (line, dirty) per set, most recently used first."""

    def __init__(self, size_bytes: int, ways: int, line_bytes: int) -> None:
        self.ways = ways
        self.sets: list[list[list[int]]] = [[] for _ in range(size_bytes // (ways * line_bytes))]

    def touch(self, line: int, is_store: bool) -> tuple[bool, int | None]:
        entries = self.sets[line % len(self.sets)]
        found = next((entry for entry in entries if entry[0] == line), None)
        pushed_out = None
        if found is None:
            if len(entries) == self.ways:
                oldest = entries.pop()
                pushed_out = oldest[0] if oldest[1] else None
        else:
            entries.remove(found)
        entries.insert(0, [line, int(is_store or bool(found and found[1]))])
        return found is None, pushed_out


class _Cache(ctypes.Structure):
    _fields_ = [
        ("line_bytes", ctypes.c_uint32),
        ("sets", ctypes.c_uint32),
        ("ways", ctypes.c_uint32),
        ("lines", ctypes.c_void_p),
        ("dirty", ctypes.c_void_p),
    ]


class _Outcome(ctypes.Structure):
    _fields_ = [("filled", ctypes.c_bool), ("written_back", ctypes.c_uint64)]


@pytest.fixture(scope="module")
def cache_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler, library = host_compiler(), tmp_path_factory.mktemp("cache") / "cache.so"
    assert compiler is not None
    argv = [compiler, "-std=c11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-Wconversion"]
    subprocess.run([*argv, "-o", str(library), str(PLUGIN_FOLDER / "cache_model.c")], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.cache_init.restype = ctypes.c_bool
    loaded.cache_touch.restype = _Outcome
    loaded.cache_touch.argtypes = [ctypes.POINTER(_Cache), ctypes.c_uint64, ctypes.c_bool]
    return loaded


@pytest.mark.parametrize("shape", [(1024, 4, 32), (2048, 2, 32), (256, 1, 32), (512, 16, 32)])
def test_cache_does_what_the_slow_one_does(shape: tuple[int, int, int], cache_library: ctypes.CDLL) -> None:
    cache, slow, dice = _Cache(), SlowCache(*shape), random.Random(sum(shape))
    assert cache_library.cache_init(ctypes.byref(cache), *shape)
    for _ in range(5000):
        line, is_store = dice.choice((dice.randrange(24), dice.randrange(200))), dice.random() < 0.3
        got = cache_library.cache_touch(ctypes.byref(cache), line, is_store)
        written_back = None if got.written_back == 2**64 - 1 else got.written_back
        assert (got.filled, written_back) == slow.touch(line, is_store)


@pytest.mark.parametrize("shape", [(1000, 4, 32), (1024, 4, 24), (1024, 0, 32), (3072, 4, 32)])
def test_impossible_cache_is_refused(shape: tuple[int, int, int], cache_library: ctypes.CDLL) -> None:
    assert not cache_library.cache_init(ctypes.byref(_Cache()), *shape)
