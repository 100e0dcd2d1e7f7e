"""Operators that move bytes as calls of one portable kernel, from where each value of the result comes.

Positions are found by running the operator on the numbers of its input's elements. Nearly always they are a sum of one
number for each axis of the result; neighbouring axes that lie together on both sides become one, what is left in front
of a run of bytes are at most a few axes with a fixed step, or with a short table. Anything else gets one long table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.firmware.kernels.c_text import c_array, c_struct
from stages.firmware.kernels.calls import KernelCall
from stages.firmware.kernels.parameters import PARAMETER_BYTES
from stages.graph.arithmetic.movement import NOWHERE, fill_of, source_positions
from stages.graph.graph import ITEM_BYTES, Graph, Op

_AXES = 5  # of boards/firmware/kernels/more/move.h
_NOWHERE = -(2**31)


@dataclass(frozen=True, eq=False)
class Axis:
    """Along one axis of the result: how far from its start each place comes from; None: nowhere."""

    offsets: tuple[int | None, ...]

    @property
    def step(self) -> int | None:
        """The distance between neighbours, if it is the same everywhere."""
        if None in self.offsets:
            return None
        steps = {b - a for a, b in zip(self.offsets, self.offsets[1:], strict=False)}  # type: ignore[operator]
        return (steps or {0}).pop() if len(steps) <= 1 and self.offsets[0] == 0 else None


def move_call(graph: Graph, op: Op, name: str, lines: int | None = None) -> KernelCall:
    """One call of `move`; for so many lines of an image, those at its top, that it makes at a time."""
    source = graph.tensors[op.inputs[0]]
    item = ITEM_BYTES[source.dtype]
    positions = source_positions(graph, op)
    start, axes = axes_of(positions if lines is None else positions[:, :lines])
    run = 1
    if axes and axes[-1].step == 1:
        run = len(axes.pop().offsets)
    arrays, members, stored = "", [{"size": 1}] * (_AXES - len(axes)), 0
    for number, axis in enumerate(axes):
        step = axis.step
        if step is not None:
            members.append({"size": len(axis.offsets), "step": step * item})
            continue
        table = np.array([_NOWHERE if place is None else place * item for place in axis.offsets], np.int64)
        arrays += c_array("int32_t", f"{name}_axis_{number}", table, f"{op.kind}: where axis {number} comes from")
        members.append({"size": len(table), "table": f"{name}_axis_{number}"})
        stored += 4 * len(table)
    params = {"axes": members, "start": start * item, "run": run * item, "fill": fill_of(graph, op)}
    return KernelCall(
        kernel="move",
        call=f"move(&{name}, {{0}}, {{1}});",
        constants=arrays + c_struct("move", name, params),
        constant_bytes=stored + PARAMETER_BYTES,
        header="kernels/more/move.h",
        activations=(op.inputs[0], op.outputs[0]),
    )


def axes_of(positions: np.ndarray) -> tuple[int, list[Axis]]:
    """(Where the result starts, its axes): positions as sums, neighbours that lie together joined."""
    found = _separated(positions)
    if found is None:
        flat = positions.reshape(-1)
        return 0, [Axis(tuple(None if place == NOWHERE else int(place) for place in flat))]
    start, axes = found
    joined: list[Axis] = []
    for axis in axes:
        if len(axis.offsets) == 1 and axis.offsets[0] is not None:
            continue
        before, step = joined[-1].step if joined else None, axis.step
        if before is not None and step is not None and before == step * len(axis.offsets):
            count = len(joined[-1].offsets) * len(axis.offsets)
            joined[-1] = Axis(tuple(range(0, count * step, step)) if step else (0,) * count)
        else:
            joined.append(axis)
    if len(joined) > _AXES:
        flat = positions.reshape(-1)
        return 0, [Axis(tuple(None if place == NOWHERE else int(place) for place in flat))]
    return start, joined


def _separated(positions: np.ndarray) -> tuple[int, list[Axis]] | None:
    """Per axis the offsets whose sums are the positions; None where there are none."""
    inside = positions != NOWHERE
    if not inside.any():
        return None
    first = tuple(int(place) for place in np.argwhere(inside)[0])
    start, axes = int(positions[first]), []
    total: np.ndarray = np.full((1,) * positions.ndim, start)
    known: np.ndarray = np.ones((1,) * positions.ndim, bool)
    for axis, size in enumerate(positions.shape):
        line = positions[(*first[:axis], slice(None), *first[axis + 1 :])]
        offsets = tuple(None if place == NOWHERE else int(place) - start for place in line.tolist())
        axes.append(Axis(offsets))
        shape = [size if number == axis else 1 for number in range(positions.ndim)]
        total = total + np.array([offset or 0 for offset in offsets]).reshape(shape)
        known = known & np.array([offset is not None for offset in offsets]).reshape(shape)
    if not np.array_equal(np.where(known, total, NOWHERE), positions):
        return None
    base = start + sum(axis.offsets[0] or 0 for axis in axes)
    if all(axis.offsets[0] is not None for axis in axes):  # begin at the first place of every axis
        axes = [Axis(tuple(None if o is None else o - (axis.offsets[0] or 0) for o in axis.offsets)) for axis in axes]
        start = base
    return start, axes
