"""What each op of a network costs on a Cortex-M7, seen from outside the twin: instructions counted, cycles modelled.

A QEMU plugin (plugin/*.c, built here with the host's C compiler) counts block edges and cache line fills for each op
of one inference; `cortex_m7.py` turns the edges into cycles with memory that answers at once, and the fills are added
at the board's cost per line. Caches are warm: the inference counted follows another one. The twin's own addresses
stand for the board's: the caller says which of its ranges is flash, cached RAM, or memory that no cache serves
(DTCM).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from hil.link.audio import AudioLink
from hil.virtual.cortex_m7 import CycleModel, Edge
from hil.virtual.instruction import CoreParameters, Decoder
from hil.virtual.model_error import LineCosts
from hil.virtual.program import Program, Symbol, read_program
from hil.virtual.twin import MACHINE, Twin, qemu_path, qemu_version
from pipeline.errors import ToolError

MARKS = "prof_stamp"
COMPILERS = ("gcc", "cc", "clang")
_PLUGIN_FOLDER = Path(__file__).parent / "plugin"
_BUILD_S = 120.0
_PROGRAM_S = 600.0
_LINE_BYTES = 32
_CODE_EVENT, _REGION_EVENT = 2, 3  # plugin/trace_model.h
_NO_CACHES = (f"icache=0:1:{_LINE_BYTES}", f"dcache=0:1:{_LINE_BYTES}")

MemoryKind = Literal["uncached", "flash", "ram"]
_KIND_NUMBER: dict[MemoryKind, int] = {"uncached": 0, "flash": 1, "ram": 2}


@dataclass(frozen=True)
class CacheShape:
    """A level-1 cache."""

    size_bytes: int
    ways: int
    line_bytes: int


@dataclass(frozen=True)
class MemoryRange:
    """A part of the twin's memory and what it stands for; where ranges overlap, the first one counts."""

    address: int
    size_bytes: int
    kind: MemoryKind


@dataclass(frozen=True)
class MemoryModel:
    """The board's caches, its costs per line in core cycles, and what the twin's addresses stand for."""

    instruction_cache: CacheShape
    data_cache: CacheShape
    flash_fill_cycles: float
    ram_load_fill_cycles: float
    ram_store_fill_cycles: float
    write_back_cycles: float
    ranges: tuple[MemoryRange, ...]
    core: CoreParameters = CoreParameters()


@dataclass(frozen=True)
class LineTraffic:
    """Cache lines fetched from flash, from RAM for a load or for a store, and dirty ones written back."""

    flash_code_fills: int = 0
    ram_code_fills: int = 0
    flash_data_fills: int = 0
    ram_load_fills: int = 0
    ram_store_fills: int = 0
    write_backs: int = 0

    def cycles(self, model: LineCosts) -> int:
        flash = (self.flash_code_fills + self.flash_data_fills) * model.flash_fill_cycles
        ram = (self.ram_code_fills + self.ram_load_fills) * model.ram_load_fill_cycles
        stores = self.ram_store_fills * model.ram_store_fill_cycles
        return round(flash + ram + stores + self.write_backs * model.write_back_cycles)


@dataclass(frozen=True)
class OpProfile:
    """One op of one inference."""

    index: int
    instructions: int
    cycles_zero_wait: int
    cycles_modelled: int  # zero wait + line fills
    traffic: LineTraffic
    multiplies: int = 0  # instructions of the multiplier


@dataclass
class OpCounts:
    """What one op executed: block edges and cache lines; `profiles` prices them."""

    traffic: LineTraffic
    edges: list[Edge] = field(default_factory=list)


def host_compiler() -> str | None:
    """The C compiler that builds the plugin, if the machine has one."""
    return next((path for name in COMPILERS if (path := shutil.which(name)) is not None), None)


def build_plugin(folder: Path, compiler: str) -> Path:
    """Compile the plugin into `folder`."""
    interface = f"-DPLUGIN_API_VERSION={api_version(qemu_version())}"
    sources = sorted(_PLUGIN_FOLDER.glob("*.c"))
    return build_library(folder / "profiler.so", compiler, sources, ["-fvisibility=hidden", interface])


def build_library(library: Path, compiler: str, sources: Sequence[Path], options: Sequence[str] = ()) -> Path:
    """Compile C for this machine."""
    argv = [compiler, "-std=c11", "-O2", "-fPIC", "-shared", *options, "-o", str(library), *map(str, sources)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolError.timed_out(argv, _BUILD_S) from error
    if done.returncode != 0:
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
    return library


@cache
def _kept_plugin(compiler: str) -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="profiler-plugin-")
    return build_plugin(Path(folder.name), compiler), folder  # which lives as long as the process


def profiler_plugin(compiler: str) -> Path:
    """The plugin, compiled once in a process."""
    return _kept_plugin(compiler)[0]


def profile_ops(
    image: Path, network_input: bytes | None, model: MemoryModel, plugin: Path, audio: bytes | None = None
) -> tuple[OpProfile, ...]:
    """Profile each op of the second inference on `network_input`; None: of the second `layers`, without an input.

    With `audio`, for an image with a front end: of the second pass of front end and network over it; the front end
    comes first.
    """
    program = read_program(image)
    return profiles(program, count_ops(image, network_input, model, plugin, audio), model)


def count_ops(
    image: Path, network_input: bytes | None, model: MemoryModel, plugin: Path, audio: bytes | None = None
) -> list[OpCounts]:
    """The counts behind `profile_ops`, which any parameters of the model can price."""
    ops = _marks(image).size_bytes // 4 - 1
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        record = Path(folder) / "profile.txt"
        _run_twice(image, network_input, [f"out={record}", *model_options(model)], plugin, audio)
        regions = last_pass(record.read_text().splitlines() if record.exists() else [])
    if len(regions) != ops:
        raise ToolError(f"{image}: {len(regions)} ops profiled, needed {ops}; did the inference end early?")
    return regions


def touches_between(image: Path, network_input: bytes, plugin: Path) -> bytes:
    """What runs from the end of an inference to the next one's first op: events of plugin/trace_model.h.

    Each line is named once, from its lowest to its highest word, in the order of the first touches: how often a loop
    waits for the link differs from run to run.
    """
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        trace = Path(folder) / "touches"
        options = [f"out={Path(folder) / 'profile.txt'}", f"between={trace}", *_NO_CACHES]
        _run_twice(image, network_input, options, plugin)
        *_, between, _ = _traced(trace)  # the last but one: start-up clears the marks, and there is an end
    lines: dict[tuple[int, bool], list[int]] = {}
    for (event,) in struct.iter_unpack("<I", between[1]):
        lines.setdefault((event // _LINE_BYTES, event & 3 == _CODE_EVENT), []).append(event)
    return b"".join(
        struct.pack("<2I", min(words) & ~3 | kind, max(words) & ~3 | kind)
        for words, kind in ((words, max(word & 3 for word in words)) for words in lines.values())
    )


def _marks(image: Path) -> Symbol:
    marks = read_program(image).objects.get(MARKS)
    if marks is None:
        raise ToolError(f"{image}: no symbol {MARKS}, needed to tell the ops apart; build the twin with profiler marks")
    return marks


def _run_twice(
    image: Path, network_input: bytes | None, options: Sequence[str], plugin: Path, audio: bytes | None = None
) -> None:
    """Two inferences on the twin under the plugin."""
    marks = _marks(image)
    argument = ",".join([str(plugin).replace(",", ",,"), f"marks={marks.address}:{marks.size_bytes // 4}", *options])
    with Twin(image, name="profiler", counting=False, arguments=("-plugin", argument)) as twin:
        if audio is not None:
            AudioLink(twin.link).listen(audio)  # which asks twice
        elif network_input is None:
            twin.link.layers()
            twin.link.layers()
        else:
            twin.link.load(network_input)
            twin.link.infer(1, 1)


def profiles(program: Program, regions: Sequence[OpCounts], model: MemoryModel) -> tuple[OpProfile, ...]:
    """Counts as cycles."""
    cycle_model = CycleModel(Decoder(program, model.core))
    found = []
    for index, region in enumerate(regions):
        cycles = cycle_model.cycles(region.edges)
        instructions = sum(edge.to[1] * edge.times for edge in region.edges)
        modelled = cycles + region.traffic.cycles(model)
        multiplies = cycle_model.multiplies(region.edges)
        found.append(OpProfile(index, instructions, cycles, modelled, region.traffic, multiplies))
    return tuple(found)


@dataclass(frozen=True)
class RegionProfile:
    """What ran between two marks."""

    instructions: int
    cycles_zero_wait: int
    code_lines: dict[str, int]  # different ones, by function
    touches: bytes = b""  # events of plugin/trace_model.h, where they were asked for


def profile_program(
    image: Path, core: CoreParameters, plugin: Path, *, traced: bool = False, timeout_s: float = _PROGRAM_S
) -> tuple[RegionProfile, ...]:
    """Run an image that marks its parts and ends by itself (semihosting exit); of its last pass, no caches."""
    program = read_program(image)
    marks = program.objects[MARKS]
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        record = Path(folder) / "profile.txt"
        options = [f"out={record}", f"marks={marks.address}:{marks.size_bytes // 4}"]
        options += _NO_CACHES
        trace = Path(folder) / "touches"
        options += [f"trace={trace}"] if traced else []
        argument = ",".join([str(plugin).replace(",", ",,"), *options])
        argv = [qemu_path(), "-machine", MACHINE, "-nodefaults", "-display", "none", "-monitor", "none"]
        argv += ["-serial", "null", "-semihosting", "-plugin", argument, "-kernel", str(image)]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ToolError.timed_out(argv, timeout_s) from error
        regions = last_pass(record.read_text().splitlines() if record.exists() else [])
        touches = _by_region(trace, len(regions)) if traced else [b""] * len(regions)
    if len(regions) != marks.size_bytes // 4 - 1:
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
    decoder = Decoder(program, core)
    cycles = CycleModel(decoder)
    functions = sorted(program.functions, key=lambda symbol: symbol.address)
    starts = [symbol.address for symbol in functions]

    def code_lines(region: OpCounts) -> dict[str, int]:
        lines = {
            (functions[max(0, bisect_right(starts, edge.to[0]) - 1)].name, line)
            for edge in region.edges
            for line in _lines(decoder, edge.to)
        }
        return dict(Counter(name for name, _ in sorted(lines)))

    return tuple(
        RegionProfile(
            sum(edge.to[1] * edge.times for edge in region.edges), cycles.cycles(region.edges), code_lines(region), own
        )
        for region, own in zip(regions, touches, strict=True)
    )


def _by_region(trace: Path, regions: int) -> list[bytes]:
    """Events of each region of a trace."""
    found = [b""] * regions
    for number, events in _traced(trace):
        if number < regions:
            found[number] = events
    return found


def _traced(trace: Path) -> Iterator[tuple[int, bytes]]:
    """Region by region as they ran, with its number."""
    import numpy as np  # takes long, and only those who price kernels need it

    events = np.fromfile(trace, np.uint32)
    for part in np.split(events, np.flatnonzero(events & 3 == _REGION_EVENT))[1:]:
        yield int(part[0]) >> 2, part[1:].tobytes()


def _lines(decoder: Decoder, block: tuple[int, int]) -> range:
    last = decoder.block(*block)[-1]
    return range(block[0] // _LINE_BYTES, (last.address + last.size_bytes - 1) // _LINE_BYTES + 1)


def model_options(model: MemoryModel) -> Iterator[str]:
    """The plugin's arguments for a model."""
    for key, shape in (("icache", model.instruction_cache), ("dcache", model.data_cache)):
        yield f"{key}={shape.size_bytes}:{shape.ways}:{shape.line_bytes}"
    for part in model.ranges:
        yield f"memory={part.address}:{part.size_bytes}:{_KIND_NUMBER[part.kind]}"


def last_pass(lines: Sequence[str]) -> list[OpCounts]:
    """The ops of the last whole inference in a plugin's record (its form stands in profiler.c)."""
    whole: list[OpCounts] = []
    regions: list[OpCounts] = []
    for line in lines:
        kind, *words = line.split()
        if kind == "pass":
            regions = []
        elif kind == "region":
            regions.append(OpCounts(LineTraffic(*(int(word) for word in words[1:]))))
        elif kind == "edge":
            before, to = (int(words[0], 16), int(words[1])), (int(words[2], 16), int(words[3]))
            regions[-1].edges.append(Edge(before if before[1] else None, to, int(words[4])))
        elif kind == "end":
            whole = regions
    return whole


def api_version(qemu: str) -> int:
    """Version of the plugin interface that this QEMU wants: it refuses plugins that were built for another one."""
    major, minor = (int(word) for word in qemu.split(".")[:2])
    return 1 if (major, minor) < (8, 2) else 2
