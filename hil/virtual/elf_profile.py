"""Anybody's Cortex-M7 ELF for QEMU's mps2-an500 -> cycles, line fills and write-backs of each function.

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
from hil.virtual.profiler import LineTraffic, MemoryModel, model_options
from hil.virtual.program import read_program
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


def profile_elf(image: Path, model: MemoryModel, plugin: Path, timeout_s: float) -> tuple[FunctionProfile, ...]:
    """Run to the end and profile every function, the costliest first."""
    program = read_program(image)
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        record = Path(folder) / "profile.txt"
        argument = ",".join([str(plugin).replace(",", ",,"), f"out={record}", "whole=1", *model_options(model)])
        argv = [qemu_path(), "-machine", MACHINE, "-nodefaults", "-display", "none", "-monitor", "none"]
        argv += ["-serial", "null", "-semihosting", "-plugin", argument, "-kernel", str(image)]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ToolError(
                f"{image.name}: still running after {timeout_s:g} s; let it end by a semihosting exit (SYS_EXIT)"
            ) from error
        lines = record.read_text().splitlines() if record.exists() else []
    if not lines or not lines[-1].startswith("end"):
        raise ToolError.failed(argv, done.returncode, done.stdout + done.stderr)
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
