"""Anybody's Cortex-M7 ELF for QEMU's mps2-an500 -> cycles, line fills and write-backs of each function or part.

The program runs from reset until it ends itself (semihosting exit) or its time is up; all of it is counted, cold caches
included. So that others can check the model with code of their own.
"""

from __future__ import annotations

import subprocess
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from hil.virtual.cortex_m7 import CycleModel, Edge
from hil.virtual.instruction import Decoder
from hil.virtual.profiler import LineTraffic, MemoryModel, OpCounts, last_pass, model_options, profiles
from hil.virtual.program import Program, read_program
from hil.virtual.twin import MACHINE, qemu_path
from pipeline.errors import ToolError

_ELSEWHERE = "(no symbol)"


@dataclass(frozen=True)
class FunctionProfile:
    """One function, without what it calls."""

    name: str
    instructions: int
    cycles_zero_wait: int
    cycles_modelled: int
    traffic: LineTraffic


def profile_elf(
    image: Path, model: MemoryModel, plugin: Path, timeout_s: float, marks: str | None = None
) -> tuple[FunctionProfile, ...]:
    """Run to the end and profile every function, the costliest first; with `marks` every part between two of them.

    `marks` names an array of 32-bit words. A store to its element i begins part i, one to its last element ends
    the last part; of several passes from the first to the last element the last one counts, whose caches are warm.
    """
    program = read_program(image)
    lines = _recorded(image, model, plugin, timeout_s, _bounds(image, program, marks))
    if marks is not None:
        return _parts(image, marks, last_pass(lines), program, model)
    functions = _Functions(image)
    edges: dict[str, list[Edge]] = defaultdict(list)
    traffic: dict[str, LineTraffic] = defaultdict(LineTraffic)
    for line in lines:
        kind, *words = line.split()
        if kind == "edge":
            before, to = (int(words[0], 16), int(words[1])), (int(words[2], 16), int(words[3]))
            edges[functions.name(to[0])].append(Edge(before if before[1] else None, to, int(words[4])))
        elif kind == "block":
            name = functions.name(int(words[0], 16))
            traffic[name] = _sum(traffic[name], (int(word) for word in words[2:]))
    cycles = CycleModel(Decoder(program, model.core))
    found = [_function(name, edges[name], traffic[name], cycles, model) for name in edges]
    return tuple(sorted(found, key=lambda one: -one.cycles_modelled))


def _bounds(image: Path, program: Program, marks: str | None) -> str:
    """The plugin's argument for what is told apart."""
    if marks is None:
        return "whole=1"
    symbol = program.objects.get(marks)
    if symbol is None or symbol.size_bytes < 8 or symbol.size_bytes % 4:
        found = "no such variable" if symbol is None else f"{symbol.size_bytes} B"
        raise ToolError(f"{image.name}: {marks}: found {found}, needed an array of 2 or more 32-bit words to store to")
    return f"marks={symbol.address}:{symbol.size_bytes // 4}"


def _parts(
    image: Path, marks: str, regions: Sequence[OpCounts], program: Program, model: MemoryModel
) -> tuple[FunctionProfile, ...]:
    if not regions:
        raise ToolError(
            f"{image.name}: no stores to {marks} from its first to its last element, needed one pass at least"
        )
    return tuple(
        FunctionProfile(
            f"{marks}[{one.index}]", one.instructions, one.cycles_zero_wait, one.cycles_modelled, one.traffic
        )
        for one in profiles(program, regions, model)
    )


def _recorded(image: Path, model: MemoryModel, plugin: Path, timeout_s: float, bounds: str) -> list[str]:
    """What the plugin wrote while the program ran to its end."""
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        record = Path(folder) / "profile.txt"
        argument = ",".join([str(plugin).replace(",", ",,"), f"out={record}", bounds, *model_options(model)])
        argv = [qemu_path(), "-machine", MACHINE, "-nodefaults", "-display", "none", "-monitor", "none"]
        argv += ["-serial", "null", "-semihosting", "-plugin", argument, "-kernel", str(image)]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ToolError(
                f"{image.name}: still running after {timeout_s:g} s; let it end by a semihosting exit (SYS_EXIT)"
            ) from error
        lines = record.read_text().splitlines() if record.exists() else []
    if not _is_whole(lines, bounds):
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
    return lines


def _is_whole(lines: Sequence[str], bounds: str) -> bool:
    """With marks a program may end outside of a pass, or without any."""
    return bounds != "whole=1" or bool(lines and lines[-1].startswith("end"))


def _function(
    name: str, edges: Sequence[Edge], traffic: LineTraffic, cycles: CycleModel, model: MemoryModel
) -> FunctionProfile:
    zero_wait = cycles.cycles(edges)
    instructions = sum(edge.to[1] * edge.times for edge in edges)
    return FunctionProfile(name, instructions, zero_wait, zero_wait + traffic.cycles(model), traffic)


def _sum(traffic: LineTraffic, counts: Iterable[int]) -> LineTraffic:
    fields = ("flash_code_fills", "ram_code_fills", "flash_data_fills", "ram_load_fills", "ram_store_fills")
    added = zip((*fields, "write_backs"), counts, strict=True)
    return replace(traffic, **{field: getattr(traffic, field) + count for field, count in added})


class _Functions:
    """Function names by address."""

    def __init__(self, image: Path) -> None:
        with image.open("rb") as stream:
            table: Any = ELFFile(stream).get_section_by_name(".symtab")
            symbols = [] if table is None else list(table.iter_symbols())
        named = sorted(
            (symbol["st_value"] & ~1, symbol["st_size"], symbol.name)
            for symbol in symbols
            if symbol["st_info"]["type"] == "STT_FUNC"
        )
        self._starts, self._named = [start for start, _, _ in named], named

    def name(self, address: int) -> str:
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return _ELSEWHERE
        start, size, name = self._named[at]
        return name if address < start + size or size == 0 else _ELSEWHERE
