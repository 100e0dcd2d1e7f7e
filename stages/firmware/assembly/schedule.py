"""Order of straight code for the Cortex-M7: in order, two instructions a cycle (the rules of hil/virtual/cortex_m7.py).

`scheduled`: greedy list scheduling; in each cycle, of the instructions whose operands are ready, the one on the longest
remaining path, and beside it the next one that may pair with it. Registers are physical already, so that reuse limits
the order; a load may pass a store: code in which that matters ties them by a register.

`fitted`: the same for the body of a loop whose registers are still names. Each gets its register when it is issued, so
that reuse limits nothing; several ways to choose among the ready instructions are tried, and the order that takes the
fewest cycles a round, as simulated here, is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from stages.firmware.assembly.instructions import Instruction, is_physical

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
    """May these two issue in one cycle, as far as the pipes are concerned?"""
    pipes = {older.pipe, younger.pipe}
    if "alone" in pipes or younger.pipe == "field" or older.pipe == "branch":
        return False
    if pipes == {"load"}:
        return _different_banks(older, younger) and not older.written() & younger.written()
    if older.pipe == younger.pipe and older.pipe in _ONE_OF_A_KIND:
        return False
    return pipes not in ({"multiply", "store"}, {"field", "shift"}) and not older.written() & younger.written()


def _different_banks(older: Instruction, younger: Instruction) -> bool:
    """Even and odd words lie in different banks; loads from different bases are taken to meet in one."""
    if older.offset is None or younger.offset is None or older.registers[1] != younger.registers[1]:
        return False
    return bool((older.offset ^ younger.offset) & 4)


def _heights(count: int, waits: Sequence[dict[int, int]]) -> list[int]:
    """Cycles from each instruction to the end of the longest chain behind it."""
    heights = [0] * count
    for index in reversed(range(count)):
        for before, wait in waits[index].items():
            heights[before] = max(heights[before], heights[index] + max(wait, 1))
    return heights


@dataclass(frozen=True)
class Fit:
    """An order with its registers, and what a round of the loop takes."""

    code: tuple[Instruction, ...]
    cycles: int


def fitted(
    code: Sequence[Instruction],
    free: Sequence[str],
    placed: Mapping[str, str],
    behind: Sequence[Instruction] = (),
    *,
    kept: Mapping[str, str] | None = None,
    is_quick: bool = False,
) -> Fit | None:
    """The body of a loop in its best order found; None if it does not get along with the free registers.

    `placed` says where the values live that exist before, `kept` where those have to be that are wanted afterwards,
    `behind` what comes between two rounds. `is_quick`: only what is best for long code, as a rule.

    Nothing here depends on the numbers in the instructions but which bank a load is from, so that code of one form,
    such as a layer's at any width, is put in order once.
    """
    ends = tuple(placed.items()), tuple((kept or {}).items())
    form = _Form(tuple(map(_formal, code)), tuple(free), *ends, tuple(map(_formal, behind)), is_quick)
    found = _best_order(form)
    if found is None:
        return None
    order, cycles = found
    return Fit(tuple(replace(code[index], registers=registers) for index, registers in order), cycles)


@dataclass(frozen=True)
class _Form:
    """What `fitted` is asked, without the numbers."""

    code: tuple[Instruction, ...]
    free: tuple[str, ...]
    placed: tuple[tuple[str, str], ...]
    kept: tuple[tuple[str, str], ...]
    behind: tuple[Instruction, ...]
    is_quick: bool


def _formal(one: Instruction) -> Instruction:
    return replace(one, text="", offset=None if one.offset is None else one.offset & 4)


@cache
def _best_order(form: _Form) -> tuple[tuple[tuple[int, tuple[str, ...]], ...], int] | None:
    """Which instruction stands where, with which registers, and the cycles of a round."""
    code, free, behind, is_quick = form.code, form.free, form.behind, form.is_quick
    ends = dict(form.placed), dict(form.kept)
    waits = _waits(code)
    heights = _heights(len(code), waits)
    choices: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda index: (index,),
        lambda index: (-heights[index], index),
        lambda index: (index - 2 * heights[index], index),
    )
    fits = []
    is_long = len(code) > _LONG_CODE  # then the time to try everything counts
    for choice in choices[2:] if is_quick else choices[:: 2 if is_long else 1]:
        for window in _QUICK_WINDOWS if is_quick else _WINDOWS[1:3] if is_long else _WINDOWS:
            for reserve in (0, 1) if is_quick else (0, 1, 2):
                order = _Issue(code, waits, free, ends, window, reserve).run(choice)
                if order is not None:
                    found = [replace(code[index], registers=registers) for index, registers in order]
                    fits.append((tuple(order), loop_cycles([*found, *behind])))
    return min(fits, key=lambda fit: fit[1], default=None)


_WINDOWS = (6, 12, 24, 60)  # how far ahead of the oldest waiting instruction to look
_QUICK_WINDOWS = (24, 40)
_LONG_CODE = 100
_MOST_IDLE_CYCLES = 20  # more can only mean that all registers are taken


class _Issue:
    """One attempt to order code and give it registers."""

    def __init__(
        self,
        code: Sequence[Instruction],
        waits: Sequence[dict[int, int]],
        free: Sequence[str],
        ends: tuple[Mapping[str, str], Mapping[str, str]],  # `placed` and `kept`
        window: int,
        reserve: int,
    ) -> None:
        self.code, self.waits, self.window, self.reserve = code, waits, window, reserve
        self.place, self.kept = dict(ends[0]), ends[1]
        # What is kept finds its register free the sooner, the later others take it.
        wanted = set(self.kept.values())
        self.pool = deque(sorted((r for r in free if r not in self.place.values()), key=wanted.__contains__))
        self.uses: dict[str, int] = {}
        for one in code:
            for name in set(one.registers):
                self.uses[name] = self.uses.get(name, 0) + 1
        self.waiting = list(range(len(code)))
        self.issued: dict[int, int] = {}
        self.order: list[tuple[int, tuple[str, ...]]] = []

    def run(self, choice: Callable[[int], tuple[int, ...]]) -> list[tuple[int, tuple[str, ...]]] | None:
        cycle = idle = 0
        while self.waiting:
            older = self._best(cycle, None, choice)
            if older is not None:
                self._issue(older, cycle)
                younger = self._best(cycle, self.code[older], choice)
                if younger is not None:
                    self._issue(younger, cycle)
            idle = 0 if older is not None else idle + 1
            if idle > _MOST_IDLE_CYCLES:
                return None
            cycle += 1
        return self.order

    def _best(self, cycle: int, older: Instruction | None, choice: Callable[[int], tuple[int, ...]]) -> int | None:
        ready = [
            index
            for index in self.waiting[: self.window]
            if all(b in self.issued and self.issued[b] + wait <= cycle for b, wait in self.waits[index].items())
            and (older is None or can_pair(older, self.code[index]))
            and self._has_registers(index)
        ]
        return min(ready, key=choice, default=None)

    def _has_registers(self, index: int) -> bool:
        names = {name for name in self.code[index].registers if not is_physical(name)}
        wanted = [name for name in names if name not in self.place]
        if not wanted:
            return True
        free = [*self.pool, *(self.place[name] for name in names if name in self.place and self._ends_with_next(name))]
        kept_back = 0 if index == self.waiting[0] else self.reserve
        return len(wanted) + kept_back <= len(free) and all(self.kept.get(name, free[0]) in free for name in wanted)

    def _ends_with_next(self, name: str) -> bool:
        return self.uses[name] == 1 and name not in self.kept

    def _issue(self, index: int, cycle: int) -> None:
        one = self.code[index]
        names = [name for name in dict.fromkeys(one.registers) if not is_physical(name)]
        before = dict(self.place)
        for name in names:
            self.uses[name] -= 1
            if self._has_ended(name):  # read before written: the result may take its register
                self._release(name)
        for name in names:
            if name not in before:
                register = self.kept.get(name, self.pool[0])
                self.pool.remove(register)
                self.place[name] = before[name] = register
                if self._has_ended(name):
                    self._release(name)
        registers = tuple(name if is_physical(name) else before[name] for name in one.registers)
        self.order.append((index, registers))
        self.issued[index] = cycle
        self.waiting.remove(index)

    def _has_ended(self, name: str) -> bool:
        return self.uses[name] == 0 and name in self.place and name not in self.kept

    def _release(self, name: str) -> None:
        """The register that has been free longest comes first, those that are to be kept come last."""
        register = self.place.pop(name)
        if register in self.kept.values():
            self.pool.append(register)
        else:
            later = sum(one in self.kept.values() for one in self.pool)
            self.pool.insert(len(self.pool) - later, register)


def loop_cycles(code: Sequence[Instruction]) -> int:
    """Cycles of one round of a loop in its steady state, without its branch."""
    return _straight_cycles([*code, *code, *code]) - _straight_cycles([*code, *code])


def _straight_cycles(code: Sequence[Instruction]) -> int:
    writers: dict[str, tuple[int, Instruction]] = {}
    cycle, older = 0, None
    for one in code:
        ready = 0
        for position in one.reads:
            if one.registers[position] in writers:
                written_in, writer = writers[one.registers[position]]
                ready = max(ready, written_in + _delay(writer, one, position))
        pairs = older is not None and ready <= cycle and can_pair(older, one)
        if not pairs:
            cycle = max(cycle + (older is not None), ready)
        for register in one.written():
            writers[register] = (cycle, one)
        if pairs or one.pipe == "alone":
            cycle, older = cycle + 1, None
        else:
            older = one
    return cycle + (older is not None)
