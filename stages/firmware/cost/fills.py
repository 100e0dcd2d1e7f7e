"""Cycles that a board waits for cache lines in each op of an inference, from what the ops touch.

The caches keep what was used last (hil/virtual/plugin/cache_model.c). An inference mostly runs through more than
they hold, so that code, weights and activations that lie in cached memory are fetched when an op begins to use them,
and weights that alone outgrow the data cache once for each pass over them (stages/firmware/memory/regions.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from boards import Board
from stages.firmware.memory.regions import weight_passes
from stages.firmware.model_source import CompiledModel
from stages.firmware.placement import Placement

_PARAMETER_LINES = 4  # of a structure that stays in flash when the weights do not


def fill_cycles(
    model: CompiledModel, placement: Placement, board: Board, code_lines: Sequence[Mapping[str, int]]
) -> Iterator[float]:
    """Of every op; `code_lines` that each runs through, by function."""
    cache = board.cache
    fast, bulk = (board.memories[region].cached for region in board.arena_regions)
    in_bulk = _cached_tensors(model, placement, fast, bulk)
    resident = cache.data.size // (2 if in_bulk else 1)
    stored = [
        (call.constant_bytes if index not in placement.ram_weights else _PARAMETER_LINES * cache.line)
        for index, call in enumerate(model.calls)
    ]
    code_fills = _fetched(code_lines, cache.instruction.size // cache.line)
    data_stay = not in_bulk and sum(stored) <= cache.data.size
    for index, (op, call) in enumerate(zip(model.graph.ops, model.calls, strict=True)):
        code = code_fills[index]
        passes = weight_passes(model, index, resident) if index not in placement.ram_weights else 1
        data = 0 if data_stay or call.kernel == "alias" else passes * -(-stored[index] // cache.line)
        cycles = (code + data) * cache.flash_fill_cycles
        if call.kernel != "alias":
            for tensor in in_bulk.intersection(model.graph.activations_of(op)):
                cycles += model.graph.tensors[tensor].nbytes / cache.line * cache.ram_load_fill_cycles
            for tensor in in_bulk.intersection(op.outputs):
                written = cache.ram_store_fill_cycles + cache.write_back_cycles
                cycles += model.graph.tensors[tensor].nbytes / cache.line * written
        yield cycles


def _fetched(code_lines: Sequence[Mapping[str, int]], capacity: int) -> list[int]:
    """Lines of code that each op fetches in a later inference; functions that were used last stay in the cache."""
    recent: OrderedDict[str, int] = OrderedDict()  # the function used last is the last one
    found: list[int] = []
    for _ in range(2):
        found = []
        for functions in code_lines:
            fetched = 0
            for name, lines in functions.items():
                fetched += max(0, lines - recent.pop(name, 0))
                recent[name] = lines
            while sum(recent.values()) > capacity:
                recent.popitem(last=False)
            found.append(fetched)
    return found


def _cached_tensors(model: CompiledModel, placement: Placement, fast: bool, bulk: bool) -> frozenset[int]:
    """Activations that lie in memory behind the data cache."""
    every = frozenset(range(len(model.graph.tensors)))
    if placement.spill is not None:
        return (frozenset(placement.spill.first) if fast else frozenset()) | (
            frozenset(placement.spill.second) if bulk else frozenset()
        )
    return every if (fast if placement.macro == "PLACE_FAST" else bulk) else frozenset()
