"""The packing of the arena by OR-Tools' CP-SAT.

Places that are alive at the same moment lie side by side: for each moment one constraint in one dimension, whose
reasoning is stronger than that of boxes in two. Asked for a packing at the lower bound itself, with nothing to
minimise, it finds one within 0.3 s for most random wirings with sums (70 places, sizes drawn), where our own search
still misses it by some 5 % after 200,000 nodes. One worker and a limit in the solver's own deterministic time, so that
the same places give the same offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

# In the solver's own time; a second of the clock is some 0.05 of it.
SHORT_EFFORT = 0.003  # where it finds a packing, it mostly does so within that
AT_BOUND_EFFORT = 0.02
_LOWEST_LIMIT = 0.1


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


def packing_at(boxes: Sequence[Box], height: int, unit: int, effort: float) -> list[int] | None:
    """Offsets of a packing no higher than `height`; None: none found in time."""
    found = _solved(boxes, height, height, unit, effort)
    return None if found is None else found[0]


def lowest_packing(boxes: Sequence[Box], height: int, floor: int, unit: int) -> tuple[list[int], bool] | None:
    """Offsets of a packing no higher than `height`, and whether it is the lowest; None: none found in time."""
    return _solved(boxes, height, floor, unit, _LOWEST_LIMIT)


def _solved(boxes: Sequence[Box], height: int, floor: int, unit: int, limit: float) -> tuple[list[int], bool] | None:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    offsets, spans = [], []
    for number, box in enumerate(boxes):
        size = box.size_bytes // unit
        offsets.append(model.new_int_var(0, height // unit - size, f"offset{number}"))
        spans.append(model.new_fixed_size_interval_var(offsets[-1], size, f"span{number}"))
    for together in _alive_together(boxes):
        model.add_no_overlap([spans[number] for number in together])
    for number, box in enumerate(boxes):
        for other, distance in box.follows:
            behind = model.new_bool_var(f"behind{number}_{other}")
            model.add(offsets[other] >= offsets[number] + distance // unit).only_enforce_if(behind)
            before = boxes[other].size_bytes // unit
            model.add(offsets[number] >= offsets[other] + before).only_enforce_if(~behind)
    if floor < height:
        top = model.new_int_var(floor // unit, height // unit, "top")
        for offset, box in zip(offsets, boxes, strict=True):
            model.add(top >= offset + box.size_bytes // unit)
        model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = limit
    solver.parameters.use_dynamic_precedence_in_disjunctive = True  # four times as many packings in the same time
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [solver.value(offset) * unit for offset in offsets], status == cp_model.OPTIMAL


def _alive_together(boxes: Sequence[Box]) -> list[list[int]]:
    """The largest sets of boxes that are alive at one moment; every two that ever meet are in one of them."""
    moments = sorted({box.begin for box in boxes})
    alive = {frozenset(n for n, box in enumerate(boxes) if box.begin <= now <= box.end) for now in moments}
    return sorted(sorted(one) for one in alive if not any(one < other for other in alive))
