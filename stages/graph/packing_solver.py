"""The packing of the arena by OR-Tools' CP-SAT.

Measured on random wirings with sums (70 places, sizes drawn): it meets the lower bound within 0.3 s on most, where
our own search still misses it by some 5 % after 200,000 nodes. One worker and a limit in the solver's own
deterministic time, so that the same places give the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_DETERMINISTIC_SECONDS = 0.3  # two or three seconds; what it can solve, it mostly solves in a quarter of that


class Box(Protocol):
    """What is packed: bytes over a span of half steps, and the boxes that must begin so far behind it or end before."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def follows(self) -> tuple[tuple[int, int], ...]: ...


def solve_packing(boxes: Sequence[Box], height: int, floor: int, unit: int) -> tuple[list[int], bool] | None:
    """Offsets of a packing no higher than `height`, and whether it is the lowest; None: none found in time."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    top = model.new_int_var(floor // unit, height // unit, "top")
    offsets, spans, lives = [], [], []
    for number, box in enumerate(boxes):
        size = box.size_bytes // unit
        offset = model.new_int_var(0, height // unit - size, f"offset{number}")
        offsets.append(offset)
        spans.append(model.new_fixed_size_interval_var(offset, size, f"span{number}"))
        lives.append(model.new_fixed_size_interval_var(box.begin, box.end - box.begin + 1, f"life{number}"))
        model.add(top >= offset + size)
    model.add_no_overlap_2d(lives, spans)
    for number, box in enumerate(boxes):
        for other, distance in box.follows:
            behind = model.new_bool_var(f"behind{number}_{other}")
            model.add(offsets[other] >= offsets[number] + distance // unit).only_enforce_if(behind)
            before = boxes[other].size_bytes // unit
            model.add(offsets[number] >= offsets[other] + before).only_enforce_if(~behind)
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _DETERMINISTIC_SECONDS
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [solver.value(offset) * unit for offset in offsets], status == cp_model.OPTIMAL
