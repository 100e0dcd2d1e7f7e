"""What kernels cost on a Cortex-M7: many calls in one image, run once on the twin under the profiler.

The image has the firmware's own kernels, compiled as for a board, and nothing else: it calls one kernel after the other
and ends. Cycles are those of memory that answers at once; they follow from the executed blocks, by the twin's own cycle
model (hil/virtual/cortex_m7.py). Data do not matter: no kernel's time depends on them but by a clipped value or two.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hil.virtual.instruction import CoreParameters
from hil.virtual.profiler import host_compiler, profile_program, profiler_plugin
from hil.virtual.program import Program, read_program
from pipeline.errors import ToolError
from stages.firmware.build.image import (
    FIRMWARE,
    INCLUDES,
    KERNEL_FOLDER,
    VIRTUAL,
    device_sources,
    kernel_objects,
)
from stages.firmware.build.toolchain import Toolchain
from stages.firmware.cost.trace import Trace, TracedPiece, constant_names, traced_pieces
from stages.firmware.kernels.calls import KernelCall
from stages.graph.graph import Graph

_MOST_CALLS = 400  # in an image
_MOST_TRACED = 50  # a trace is long
_MOST_BYTES = 2 << 20  # of an image with several calls
_DEFINES = {"BOARD_NAME": '"bench"', "BOARD_CLOCK_HZ": "1u", "BOARD_BAUD": "115200u", "BOARD_MEASURES_ENERGY": "0"}
_CODE = "*(.text*)"  # in sections.ld, and the end of the constants
_CONSTANTS_END = "_image_end = .;\n    } > FLASH"
# Flash that no board has: a layer that is to be pruned may take more than the twin's. Memory behind 0x60000000: AN500.
_CONSTANTS_MEMORY = "MEMORY\n{\n    CONSTANTS (r) : ORIGIN = 0x60000000, LENGTH = 16M\n}\n"
_FIRST_OFFSET = 0x1000  # of the kernels, to see where the first one comes to lie
_NAMES = re.compile(r"\b((?:op|fused)_\d)")
_MAIN = """
{includes}
#include "cortex_m7.h"
#include "placement.h"

/* Marks as in prof.h, so that the code between two of them is that of an op in model_invoke(). */
volatile uint32_t prof_stamp[{marks}];
bool prof_timing;

__attribute__((noipa)) void prof_record(uint32_t mark)
{{
    (void)mark;
}}

static inline void prof_mark(uint32_t mark)
{{
    prof_stamp[mark] = mark;
    if (prof_timing) {{
        prof_record(mark);
    }}
}}

{constants}
static int8_t arena[{arena}] PLACE_BULK;
static union {{
    int32_t none;
{scratch}}} scratch PLACE_FAST;

{functions}
__attribute__((noipa)) static void calls(void)
{{
{calls}    prof_mark({last});
}}

int main(void)
{{
    MPU_CTRL = 0; /* it knows the memory of firmware only, not that of the constants here */
    __asm volatile("" : : "r"(arena), "r"(&scratch)); /* there although no call may need them */
    calls();
    register unsigned operation __asm("r0") = 0x18; /* semihosting: SYS_EXIT */
    register unsigned reason __asm("r1") = 0x20026; /* ADP_Stopped_ApplicationExit */
    __asm volatile("bkpt 0xab" : : "r"(operation), "r"(reason));
    return 0;
}}
"""


@dataclass(frozen=True)
class Price:
    """What one call costs."""

    cycles_zero_wait: int
    code_lines: Mapping[str, int]  # cache lines of code that it runs through, by function
    assembly_bytes: Mapping[str, int]  # of each function that was generated for it
    constants_bytes: tuple[int, ...] = ()  # of each constant, in the order of their definitions
    trace: Trace | None = None  # where it was asked for


@dataclass(frozen=True)
class Task:
    """A call to be priced."""

    graph: Graph
    call: KernelCall


@dataclass(frozen=True)
class KernelPlaces:
    """Which kernels an image has, and where the first of them lies; the others follow as they do there."""

    functions: tuple[str, ...]
    first: str
    address: int


@dataclass(frozen=True)
class Setting:
    """How the kernels are compiled, and what core runs them.

    `kernels`: where they lie, so that what they touch is in the same lines as in the firmware.
    """

    optimise: str
    core: CoreParameters = CoreParameters()
    kernels: KernelPlaces | None = None


def prices(tasks: Sequence[Task], setting: Setting, *, traced: bool = False) -> list[Price]:
    """In the order of the tasks; with `traced`, what they touch, too."""
    found: list[Price] = []
    while len(found) < len(tasks):
        part: list[Task] = []
        taken = 0
        for task in tasks[len(found) : len(found) + (_MOST_TRACED if traced else _MOST_CALLS)]:
            taken += task.call.constant_bytes + sum(4 * text.count("\n") for _, text in task.call.assembly)
            if part and taken > _MOST_BYTES:
                break
            part.append(task)
        found += _priced(part, setting, traced)
    return found


def plugin() -> Path:
    """The twin's profiler."""
    compiler = host_compiler()
    if compiler is None:
        raise ToolError.missing("gcc", "to count what kernels execute", "apt-get install gcc libc6-dev")
    return profiler_plugin(compiler)


def _priced(tasks: Sequence[Task], setting: Setting, traced: bool) -> list[Price]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        assembly = dict(function for task in tasks for function in task.call.assembly)
        tasks = [Task(task.graph, _renamed(task.call, f"t{index}")) for index, task in enumerate(tasks)]
        main = folder / "generated" / "main.c"  # as model.c is compiled
        main.parent.mkdir()
        main.write_text(_source(tasks))
        (folder / "kernels.S").write_text(".syntax unified\n.thumb\n.cpu cortex-m7\n" + "\n".join(assembly.values()))
        tools = _tools(setting.optimise)
        own = tools.compile_all([main, folder / "kernels.S"], INCLUDES, _DEFINES, folder / "objects")
        objects = [*kernel_objects(setting.optimise, tools.fpu).values(), *_objects(setting.optimise).files, *own]
        image = _linked(tools, objects, setting.kernels, folder)
        profiles = profile_program(image, setting.core, plugin(), traced=traced)
        program = read_program(image)
    sizes = {symbol.name: symbol.size_bytes for symbol in program.functions}
    return [
        Price(
            profile.cycles_zero_wait,
            profile.code_lines,
            {function: sizes[function] for function, _ in task.call.assembly},
            tuple(program.objects[name].size_bytes for name in constant_names(task.call)),
            traced_pieces(program, profile.touches, _fixed(program, task)) if traced else None,
        )
        for task, profile in zip(tasks, profiles[::2], strict=True)  # what lies between belongs to the bench
    ]


def kernel_places(program: Program, optimise: str, fpu: str) -> KernelPlaces | None:
    """Of an image; None where it has no kernels."""
    every = _kernel_functions(optimise, fpu) & program.global_functions
    found = sorted((each.address, each.name) for each in program.functions if each.name in every)
    return KernelPlaces(tuple(name for _, name in found), found[0][1], found[0][0]) if found else None


@cache
def _kernel_functions(optimise: str, fpu: str) -> frozenset[str]:
    return frozenset().union(*(read_program(file).global_functions for file in kernel_objects(optimise, fpu).values()))


def _linked(tools: Toolchain, objects: Sequence[Path], kernels: KernelPlaces | None, folder: Path) -> Path:
    """The image; with `kernels` where they shall be."""
    memory, sections, image = VIRTUAL / "memory.ld", folder / "sections.ld", folder / "bench.elf"
    text = (FIRMWARE / "core" / "sections.ld").read_text()
    assert text.count(_CODE) == text.count(_CONSTANTS_END) == 1
    text = _CONSTANTS_MEMORY + text.replace(_CONSTANTS_END, _CONSTANTS_END.replace("FLASH", "CONSTANTS"))
    if kernels is None:
        sections.write_text(text)
        return tools.link(objects, [memory, sections], image)
    sections.write_text(
        text.replace(_CODE, f". = KERNELS_OFFSET;\n        */{KERNEL_FOLDER}*/*(.text*)\n        {_CODE}")
    )
    offset, kept = _FIRST_OFFSET, [f"-u,{name}" for name in kernels.functions]
    for _ in range(2):
        tools.link(objects, [memory, sections], image, [f"--defsym=KERNELS_OFFSET={offset}", *kept])
        at = next(each.address for each in read_program(image).functions if each.name == kernels.first)
        if at == kernels.address:
            break
        offset += kernels.address - at
    return image


def _fixed(program: Program, task: Task) -> list[TracedPiece]:
    """What a call may touch of its own: activations, scratch memory, constants."""
    arena, scratch = program.objects["arena"], program.objects["scratch"]
    found = [TracedPiece(scratch.address, scratch.address + scratch.size_bytes, "scratch")]
    for number, (tensor, offset) in enumerate(zip(task.call.activations, _offsets(task), strict=True)):
        start = arena.address + offset
        found.append(TracedPiece(start, start + task.graph.tensors[tensor].nbytes, "activation", str(number)))
    for number, name in enumerate(constant_names(task.call)):
        symbol = program.objects[name]
        found.append(TracedPiece(symbol.address, symbol.address + symbol.size_bytes, "constant", str(number)))
    return found


def _offsets(task: Task) -> list[int]:
    """Of the activations in the bench's arena, one behind the other."""
    sizes = [-(-task.graph.tensors[tensor].nbytes // 32) * 32 for tensor in task.call.activations]
    return [sum(sizes[:number]) for number in range(len(sizes))]


def _renamed(call: KernelCall, prefix: str) -> KernelCall:
    """With names of its own: calls of several networks stand in one image."""

    def own(text: str) -> str:
        return _NAMES.sub(rf"{prefix}_\1", text)

    return replace(
        call,
        call=own(call.call),
        constants=own(call.constants),
        scratch=own(call.scratch),
        function=own(call.function),
    )


def _source(tasks: Sequence[Task]) -> str:
    headers = sorted({header for task in tasks for header in task.call.headers})
    calls, arena = [], 0
    for index, task in enumerate(tasks):
        offsets = _offsets(task)
        if offsets:
            arena = max(arena, offsets[-1] + task.graph.tensors[task.call.activations[-1]].nbytes)
        places = [f"&arena[{offset}]" for offset in offsets]
        calls += [
            '    __asm volatile("" ::: "memory");',  # so that both marks look at prof_timing, as those of ops do
            f"    prof_mark({2 * index});",
            f"    {task.call.call.format(*places)}" if task.call.call else "    ;",
            f"    prof_mark({2 * index + 1});",
        ]
    return _MAIN.format(
        includes="\n".join(f'#include "{header}"' for header in ["stdbool.h", "stdint.h", *headers]),
        marks=2 * len(tasks) + 1,
        last=2 * len(tasks),
        constants="\n".join(task.call.constants for task in tasks),
        arena=arena + 32,
        scratch="".join(f"    {task.call.scratch}\n" for task in tasks if task.call.scratch),
        functions="\n".join(task.call.function for task in tasks if task.call.function),
        calls="\n".join([*calls, ""]),
    )


def _tools(optimise: str) -> Toolchain:
    return Toolchain(optimise=optimise, path_names={})


@dataclass(frozen=True, eq=False)
class _Objects:
    files: list[Path]
    folder: tempfile.TemporaryDirectory[str]  # lives as long as this


@cache
def _objects(optimise: str) -> _Objects:
    """The firmware without its kernels, its link and its model, compiled once."""
    folder = tempfile.TemporaryDirectory(prefix="bench-objects-")
    sources = [FIRMWARE / "core" / f"{name}.c" for name in ("start", "fault", "divide", "mpu", "ticks")]
    sources += [FIRMWARE / "link" / f"{name}.c" for name in ("text", "baud", "crc32", "reply_check", "ring")]
    sources += [*sorted(VIRTUAL.glob("*.c")), *device_sources(optimise)]
    files = _tools(optimise).compile_all(sources, INCLUDES, _DEFINES, Path(folder.name) / "objects")
    return _Objects(files, folder)
