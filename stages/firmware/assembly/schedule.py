"""Order of straight code for the Cortex-M7: in order, two instructions a cycle (the rules of hil/virtual/cortex_m7.py).

Greedy list scheduling: in each cycle, of the instructions whose operands are ready, the one on the longest remaining
path, and beside it the next one that may pair with it. Registers are physical already, so that reuse limits the order;
a load may pass a store: code in which that matters ties them by a register.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.firmware.assembly.instructions import Instruction

_ONE_OF_A_KIND = ("multiply", "store", "branch", "shift", "load")


def scheduled(code: Sequence[Instruction]) -> list[Instruction]:
    """The same instructions in an order that takes fewer cycles."""
    waits = _waits(code)
    heights = _heights(len(code), waits)
    issued: dict[int, int] = {}
    order: list[int] = []
    cycle = 0
    while len(order) < len(code):
        older = _best(code, waits, heights, issued, cycle, None)
        if older is not None:
            issued[older] = cycle
            order.append(older)
            younger = _best(code, waits, heights, issued, cycle, code[older])
            if younger is not None:
                issued[younger] = cycle
                order.append(younger)
        cycle += 1
    return [code[index] for index in order]


def _best(
    code: Sequence[Instruction],
    waits: Sequence[dict[int, int]],
    heights: Sequence[int],
    issued: dict[int, int],
    cycle: int,
    older: Instruction | None,
) -> int | None:
    ready = [
        index
        for index, one in enumerate(code)
        if index not in issued
        and all(before in issued and issued[before] + wait <= cycle for before, wait in waits[index].items())
        and (older is None or can_pair(older, one))
    ]
    # The saturation unit works in the older slot only: as first of a pair, where it is as urgent as the others.
    return min(ready, key=lambda index: (-heights[index], code[index].pipe != "field", index), default=None)


def _waits(code: Sequence[Instruction]) -> list[dict[int, int]]:
    """For each instruction, how many cycles after which earlier ones it may issue."""
    result: list[dict[int, int]] = []
    for index, one in enumerate(code):
        waits: dict[int, int] = {}
        for before in range(index):
            wait = _wait(code[before], one)
            if wait is not None:
                waits[before] = wait
        result.append(waits)
    return result


def _wait(before: Instruction, one: Instruction) -> int | None:
    found = [_delay(before, one, position) for position in one.reads if one.registers[position] in before.written()]
    if one.written() & before.read():
        found.append(0)
    if one.written() & before.written():
        found.append(1)
    return max(found, default=None)


def _delay(writer: Instruction, reader: Instruction, position: int) -> int:
    """Cycles from the issue of `writer` until `reader` may issue, for its operand at `position`."""
    register = reader.registers[position]
    from_address_unit = register in {writer.registers[i] for i in writer.updated}
    if position in reader.address:
        return 1 if writer.pipe == "alu" or from_address_unit else writer.latency + 1
    if position in reader.early:
        return writer.latency if writer.pipe == "alu" else writer.latency + 1
    if reader.pipe == "multiply":
        if position in reader.accumulator:
            return 1 if writer.pipe == "multiply" else writer.latency - 1
        return max(2, writer.latency) if writer.pipe == "load" else writer.latency
    return writer.latency - 1 if reader.pipe == "store" else writer.latency


def can_pair(older: Instruction, younger: Instruction) -> bool:
    """May these two issue in one cycle, as far as the pipes are concerned? Two loads are taken to meet in one bank."""
    pipes = {older.pipe, younger.pipe}
    if "alone" in pipes or younger.pipe == "field" or older.pipe == "branch":
        return False
    if older.pipe == younger.pipe and older.pipe in _ONE_OF_A_KIND:
        return False
    return pipes not in ({"multiply", "store"}, {"field", "shift"}) and not older.written() & younger.written()


def _heights(count: int, waits: Sequence[dict[int, int]]) -> list[int]:
    """Cycles from each instruction to the end of the longest chain behind it."""
    heights = [0] * count
    for index in reversed(range(count)):
        for before, wait in waits[index].items():
            heights[before] = max(heights[before], heights[index] + max(wait, 1))
    return heights
