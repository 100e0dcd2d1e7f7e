"""What `pipeline profile` prints: where the cycles of somebody's program go, on the model of a board."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from boards import load_board
from hil.virtual.elf_profile import profile_elf
from hil.virtual.model_error import NETWORK, model_error
from hil.virtual.profiler import MemoryKind, MemoryRange, build_plugin, host_compiler
from hil.virtual.program import read_program
from pipeline.errors import ConfigError, ToolError
from pipeline.stage import Answer
from stages.measure.modelled import memory_model

_DATA = (0x20000000, 4 << 20)
_SHOWN = 30
_KINDS: dict[str, MemoryKind] = {"flash": "flash", "ram": "ram", "dtcm": "uncached"}


def profile(
    image: Path,
    board_name: str,
    data: Literal["dtcm", "ram"],
    timeout_s: float,
    memory: Sequence[str] = (),
    marks: str | None = None,
) -> Answer:
    """Functions by their cycles, or with `marks` (an array to whose elements the program stores) parts in their order.

    `data` says what the twin's data memory stands for; parts of it that `memory` names (ADDRESS:BYTES:KIND) go first.
    """
    if not image.is_file():
        raise ConfigError(f"{image}: no such file, needed a Cortex-M7 ELF for QEMU's mps2-an500")
    board, compiler = load_board(board_name), host_compiler()
    if compiler is None:
        raise ToolError("profile: no C compiler, needed to build the profiler; apt-get install gcc libc6-dev")
    ranges = (*map(memory_range, memory), MemoryRange(*_DATA, _KINDS[data]))
    model = memory_model(board, read_program(image), first=ranges)
    with tempfile.TemporaryDirectory(prefix="profiler-plugin-") as folder:
        found = profile_elf(image, model, build_plugin(Path(folder), compiler), timeout_s, marks)
    total = sum(one.cycles_modelled for one in found)
    titles = (
        f"{'cycles':>14} {'zero wait':>14} {'instructions':>14} {'loads':>9} {'stores':>9} {'flash':>9} {'backs':>9}"
    )
    lines = [f"{titles}  {'part' if marks else 'function'}"]
    for one in found[:_SHOWN]:
        seen = one.traffic
        flash = seen.flash_code_fills + seen.flash_data_fills
        lines.append(
            f"{one.cycles_modelled:>14,} {one.cycles_zero_wait:>14,} {one.instructions:>14,} {seen.ram_load_fills:>9,} "
            f"{seen.ram_store_fills:>9,} {flash:>9,} {seen.write_backs:>9,}  {one.name}"
        )
    lines_share = 1 - sum(one.cycles_zero_wait for one in found) / max(1, total)
    error = model_error(board.name, board.cache, NETWORK, lines_share, board.calibration).text
    ms = total / board.clock_hz * 1e3
    lines.append(f"{total:>14,} cycles modelled in all, {ms:.3f} ms on the {board.name}; {error}")
    record = {"board": board.name, "cycles_modelled": total, "latency_ms_modelled": ms, "model_error": error}
    return Answer("\n".join(lines), {**record, "functions": [asdict(one) for one in found]})


def memory_range(text: str) -> MemoryRange:
    """From ADDRESS:BYTES:KIND, numbers as C writes them."""
    words = text.split(":")
    try:
        address, size = (int(word, 0) for word in words[:2])
        kind = _KINDS[words[2]]
        if len(words) != 3 or address < 0 or size <= 0:
            raise ValueError
    except (ValueError, KeyError, IndexError):
        raise ConfigError(
            f"--memory {text}: needed ADDRESS:BYTES:KIND, such as 0x20100000:0x10000:dtcm; "
            f"kinds are {', '.join(_KINDS)}"
        ) from None
    return MemoryRange(address, size, kind)
