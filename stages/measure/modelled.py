"""The twin's profile in terms of the board: which cycles the board's core, caches and memories would need.

The twin has all its code at 0 and all its data at 0x20000000. In the model its code and constants stand for the
board's flash, the arena for the region that the board's linker put it in, and everything else in RAM for the board's
first arena region, where stack and variables lie. DTCM is not cached and costs no line fills.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from boards import CALIBRATION, Board
from hil.virtual.instruction import CoreParameters
from hil.virtual.profiler import (
    CacheShape,
    MemoryKind,
    MemoryModel,
    MemoryRange,
    OpProfile,
    host_compiler,
    profile_ops,
    profiler_plugin,
)
from hil.virtual.program import Program, read_program
from pipeline.errors import ConfigError

_CODE = (0x00000000, 4 << 20)
_DATA = (0x20000000, 4 << 20)
_BULK = ".bulk"  # boards/firmware/core/sections.ld


def profile_network(
    twin: Path, network_input: bytes, board: Board, audio: bytes | None = None
) -> tuple[OpProfile, ...] | None:
    """Profile one inference, or None on a machine without a C compiler to build the profiler with.

    With `audio` of front end and network: the front end comes first.
    """
    compiler = host_compiler()
    if compiler is None:
        return None
    model = memory_model(board, read_program(twin))
    return profile_ops(twin, network_input, model, profiler_plugin(compiler), audio)


def memory_model(board: Board, program: Program, first: tuple[MemoryRange, ...] = ()) -> MemoryModel:
    """The board's caches and costs over the twin's addresses; ranges in `first` count before all others."""
    cache = board.cache
    fast, bulk = (_kind(board, region) for region in board.arena_regions)
    ranges = [MemoryRange(*_CODE, "flash"), MemoryRange(*_DATA, fast)]
    if _BULK in program.sections:
        section = program.sections[_BULK]
        ranges.insert(0, MemoryRange(section.address, section.size_bytes, bulk))
    return MemoryModel(
        instruction_cache=CacheShape(cache.instruction.size, cache.instruction.ways, cache.line),
        data_cache=CacheShape(cache.data.size, cache.data.ways, cache.line),
        flash_fill_cycles=cache.flash_fill_cycles,
        ram_load_fill_cycles=cache.ram_load_fill_cycles,
        ram_store_fill_cycles=cache.ram_store_fill_cycles,
        write_back_cycles=cache.write_back_cycles,
        ranges=(*first, *ranges),
        core=_core(board),
    )


def _core(board: Board) -> CoreParameters:
    fitted, known = board.calibration.core if board.calibration else {}, {one.name for one in fields(CoreParameters)}
    if unknown := set(fitted) - known:
        raise ConfigError(
            f"{CALIBRATION} of {board.name}: no parameter {min(unknown)!r} in this version, known are "
            f"{', '.join(sorted(known))}; write it anew: pipeline calibrate {board.name}"
        )
    return CoreParameters(**fitted)


def _kind(board: Board, region: str) -> MemoryKind:
    memory = board.memories[region]
    if not memory.cached:
        return "uncached"
    return "flash" if memory.kind == "flash" else "ram"
