"""Cycles that a board waits for cache lines in each op of an inference: what its calls touch, where it will lie.

Traces of the calls run one after the other through the caches of the twin's own model (hil/virtual/replay), at the
addresses of the image to be (`layout`), twice as in the profiler: the second inference counts.
"""

from __future__ import annotations

from boards import Board
from hil.virtual.profiler import CacheShape
from hil.virtual.replay.lines import line_traffic
from stages.firmware.cost.layout import Layout


def fill_cycles(layout: Layout, board: Board) -> list[int]:
    """Of every op."""
    cache = board.cache
    instruction, data = (CacheShape(level.size, level.ways, cache.line) for level in (cache.instruction, cache.data))
    return [traffic.cycles(cache) for traffic in line_traffic(list(layout.touches()), instruction, data)[1:]]
