"""What a call touches elsewhere does not depend on where it was traced: not on how its constants lay in their lines."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from boards import load_board
from hil.virtual.profiler import CacheShape
from hil.virtual.replay.lines import Piece, Touches, line_traffic
from stages.firmware.cost.bench import Task, prices
from stages.firmware.cost.compiled import Compiler
from stages.firmware.cost.settings import FirmwareSettings
from stages.firmware.cost.trace import constant_names
from stages.nets.channels import find_channels

LINE_BYTES = 32
CACHE = CacheShape(16 * 1024, 4, LINE_BYTES)
PLACE = 0x28290  # in the middle of a line


def test_constants_are_fetched_by_the_lines_that_they_will_lie_in() -> None:
    channels = find_channels(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 90)), (8, 8, 1))
    compiler = Compiler(channels.graph, channels.widths, FirmwareSettings())
    task = compiler.tasks((4,))[-2]  # blocks of 68 bytes, which are not read in the order of their bytes
    assert task.call.kernel == "fast_vector"
    setting, found = compiler.setting(load_board("nucleo_f767zi")), []
    for words in (1, 4, 6):
        behind = f"\nstatic const int32_t op_0_behind[{words}] = {{1}};\n"  # which the compiler writes first
        call = replace(task.call, constants=f"{task.call.constants}{behind}", call=f"{task.call.call} {_use(words)}")
        (price,) = prices([Task(task.graph, call)], setting, traced=True)
        assert price.trace is not None
        number = str(next(n for n, name in enumerate(constant_names(call)) if name.endswith("_blocks")))
        (blocks,) = [each for each in price.trace.pieces if (each.what, each.name) == ("constant", number)]
        place = Piece(blocks.start, blocks.end, PLACE, "flash")
        (traffic,) = line_traffic([Touches(price.trace.events, [place])], CACHE, CACHE, passes=1)
        lines = range(PLACE // LINE_BYTES, (PLACE + blocks.end - blocks.start - 1) // LINE_BYTES + 1)
        found.append((blocks.start % LINE_BYTES, traffic.flash_data_fills, len(lines)))
    assert len({start for start, _, _ in found}) == 3
    for start, fills, lines_there in found:
        assert fills == lines_there, f"traced {start} B into a line"


def _use(words: int) -> str:
    return f"(void)*(const volatile int32_t *)&op_0_behind[{words - 1}];"
