"""A cycle model of the Cortex-M7: in order, two instructions a cycle, with memory that answers at once.

Turns how often each code block followed each other (from the profiler) into cycles. The rules are the public ones:
one multiply-accumulate pipe with an accumulator that chains every cycle; SIMD extension, packing and saturation in
the older slot only; two loads together only from different banks; one store, one branch, one shifter; LDM, STM, LDRD,
STRD and divisions alone; a load's value reaches a multiplier after two cycles; a multiply does not pair with a store.
A block costs what it adds behind its predecessor; blocks that QEMU cut where a page ends are joined again: a core knows
of no pages. A conditional branch is taken to be mispredicted as often as it takes its rarer way. Line fills are no part
of this: see `profiler.py`.

How far off it is, area by area, is in `model_error.py`: against published latencies of other software on the H743 this
zero-wait part alone gives 0.87 to 1.01 of them, nine networks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hil.virtual.instruction import FLAGS, FP_FLAGS, CoreParameters, Decoder, Instruction, Pipe

_ONE_OF_A_KIND = (Pipe.MULTIPLY, Pipe.STORE, Pipe.BRANCH, Pipe.FLOAT, Pipe.SHIFT)


Block = tuple[int, int]  # address, instructions


@dataclass(frozen=True)
class Edge:
    """Block `to` was executed `times` times right after block `before` (None: nothing known before it)."""

    before: Block | None
    to: Block
    times: int


@dataclass
class _Pipeline:
    """What is in flight: the cycle, the instruction in its older slot, and who wrote which register when."""

    core: CoreParameters
    cycle: float = 0
    older: Instruction | None = None
    writers: dict[int, tuple[float, Instruction]] = field(default_factory=dict)

    def issue(self, instruction: Instruction) -> None:
        ready = max((self._ready(instruction, register) for register in instruction.reads), default=0)
        if self.older is not None:
            if ready <= self.cycle and can_pair(self.older, instruction):
                self._note(instruction)
                self.cycle += max(self.older.cycles, instruction.cycles)
                self.older = None
                return
            self.drain()
        self.cycle = max(self.cycle, ready)
        self._note(instruction)
        if instruction.pipe is Pipe.ALONE:
            self.cycle += instruction.cycles
        else:
            self.older = instruction

    def drain(self) -> None:
        """Let the cycle end in which only the older slot is taken."""
        if self.older is not None:
            self.cycle += self.older.cycles
            self.older = None

    def _note(self, instruction: Instruction) -> None:
        for register in instruction.writes:
            self.writers[register] = (self.cycle, instruction)

    def _ready(self, reader: Instruction, register: int) -> float:
        if register not in self.writers:
            return 0
        written_in, writer = self.writers[register]
        return written_in + delay(writer, reader, register, self.core)


def delay(writer: Instruction, reader: Instruction, register: int, core: CoreParameters) -> float:
    """Cycles from the issue of `writer` until `reader` can issue, for the value in `register`; 0: they may pair."""
    if register in (FLAGS, FP_FLAGS):
        return 0 if reader.pipe is Pipe.BRANCH else 1
    from_address_unit = register in writer.updated_base
    if register in reader.address_registers:
        return 1 if writer.is_simple or from_address_unit else writer.latency + 1
    if from_address_unit:
        return 1
    if register in reader.early_registers:
        return writer.latency if writer.is_simple else writer.latency + 1
    if reader.pipe is Pipe.MULTIPLY:
        if register in reader.accumulators:
            return 1 if writer.pipe is Pipe.MULTIPLY else writer.latency - 1
        return max(core.load_to_multiply, writer.latency) if writer.is_load else writer.latency
    if reader.is_store:  # the datum is wanted a stage later than an ALU operand
        return writer.latency - 1
    return writer.latency


def can_pair(older: Instruction, younger: Instruction) -> bool:
    """May these two issue in one cycle, as far as the pipes are concerned?"""
    pipes = {older.pipe, younger.pipe}
    if Pipe.ALONE in pipes or younger.pipe is Pipe.FIELD or older.pipe is Pipe.BRANCH:
        return False
    if older.pipe is younger.pipe and older.pipe in _ONE_OF_A_KIND:
        return False
    if pipes in ({Pipe.MULTIPLY, Pipe.STORE}, {Pipe.FIELD, Pipe.SHIFT}):
        return False
    if older.pipe is younger.pipe is Pipe.LOAD and not _different_banks(older, younger):
        return False
    return not (older.writes & younger.writes) - {FLAGS}


def _different_banks(older: Instruction, younger: Instruction) -> bool:
    """Even and odd words lie in different banks; only constant offsets from one register can be told apart here."""
    if older.offset is None or younger.offset is None or older.offset[0] != younger.offset[0]:
        return False
    return bool((older.offset[1] ^ younger.offset[1]) & 4)


def straight_cycles(
    instructions: Iterable[Instruction],
    core: CoreParameters = CoreParameters(),  # noqa: B008 (frozen)
) -> float:
    """Cycles of a straight run of instructions, from an empty pipeline."""
    pipeline = _Pipeline(core)
    for instruction in instructions:
        pipeline.issue(instruction)
    pipeline.drain()
    return pipeline.cycle


class CycleModel:
    """Cycles of profiled code of one program; what a pair of blocks costs is computed once."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._added: dict[tuple[Block | None, Block], float] = {}

    def cycles(self, edges: Sequence[Edge]) -> int:
        """Cycles of everything that `edges` says was executed, with memory that answers at once."""
        edges = self._joined(edges)
        issue = sum(edge.times * self._cycles_added(edge) for edge in edges)
        return round(issue + self._branch_cycles(edges))

    def multiplies(self, edges: Sequence[Edge]) -> int:
        """Instructions of the multiplier, which takes one a cycle."""
        times: Counter[Block] = Counter()
        for edge in edges:
            times[edge.to] += edge.times
        return sum(
            count * sum(one.pipe is Pipe.MULTIPLY for one in self._decoder.block(*block))
            for block, count in times.items()
        )

    def _joined(self, edges: Sequence[Edge]) -> list[Edge]:
        """With blocks that always follow each other, without a branch between them, as one."""
        into: dict[Block, Counter[Block | None]] = defaultdict(Counter)
        out: dict[Block, Counter[Block]] = defaultdict(Counter)
        for edge in edges:
            into[edge.to][edge.before] += edge.times
            if edge.before is not None:
                out[edge.before][edge.to] += edge.times
        following = {
            block: behind
            for block, successors in out.items()
            for behind, times in successors.items()
            if into[behind].total() == times == into[block].total() and self._runs_into(block, behind)
        }
        tails = set(following.values())
        wholes, last_of = {}, {}
        for head in following.keys() - tails:
            block, count = head, head[1]
            while block in following:
                block = following[block]
                count += block[1]
            wholes[head] = last_of[block] = (head[0], count)
        return [
            Edge(
                last_of.get(edge.before, edge.before) if edge.before else None, wholes.get(edge.to, edge.to), edge.times
            )
            for edge in edges
            if edge.to not in tails
        ]

    def _runs_into(self, block: Block, behind: Block) -> bool:
        last = self._decoder.block(*block)[-1]
        is_jump = last.pipe is Pipe.BRANCH or last.is_return
        return not is_jump and last.address + last.size_bytes == behind[0]

    def _cycles_added(self, edge: Edge) -> float:
        key = (edge.before, edge.to)
        if key not in self._added:
            before = () if edge.before is None else self._decoder.block(*edge.before)
            after = self._decoder.block(*edge.to)
            self._added[key] = straight_cycles((*before, *after), self._decoder.core) - straight_cycles(
                before, self._decoder.core
            )
        return self._added[key]

    def _branch_cycles(self, edges: Sequence[Edge]) -> float:
        ways: dict[int, Counter[int]] = defaultdict(Counter)  # of each branch, whichever block ends with it
        lasts = {}
        for edge in edges:
            if edge.before is not None:
                last = self._decoder.block(*edge.before)[-1]
                lasts[last.address] = last
                ways[last.address][edge.to[0]] += edge.times
        total, core = 0.0, self._decoder.core
        for address, successors in ways.items():
            if lasts[address].is_return:
                total += core.return_cycles * successors.total()
            elif lasts[address].is_conditional_branch:
                total += core.mispredicted_cycles * (successors.total() - max(successors.values()))
        return total
