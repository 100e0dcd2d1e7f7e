"""A graph cut into pieces that have to run one after the other, each described without regard to sizes.

The cuts are the ops that every other op comes before or after. Within a piece, ops are numbered anew, so that sets of
them are small bit masks.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.graph.memory.buffers import Buffers


@dataclass(frozen=True)
class Reader:
    """An operand of an op in a `Piece`."""

    buffer: int
    others: int  # mask of the other ops that read it
    fits: bool  # the op may write its result over it


@dataclass(frozen=True)
class PieceOp:
    """An op in a `Piece`: masks and numbers are within the piece."""

    before: int  # mask of the ops that have to run before
    after: int  # mask of those that wait for it
    reads: tuple[Reader, ...]  # those buffers that it may be the last to need; the others stay in any case
    writes: tuple[int, ...]
    unread: tuple[int, ...]  # of those it writes: what nobody needs even then
    only_follower: int | None  # the op that alone reads its only result, and reads nothing else


@dataclass(frozen=True)
class Piece:
    """Ops that always run after all before them and before all behind them; buffers are the graph's."""

    ops: tuple[PieceOp, ...]

    @property
    def every_op(self) -> int:
        return (1 << len(self.ops)) - 1


@dataclass(frozen=True)
class Part:
    """A piece of the graph and where it stands."""

    ops: tuple[int, ...]  # the graph's
    done: int  # mask of the graph's ops before it
    piece: Piece
    untouched: tuple[int, ...]  # buffers that are alive all the while, because of ops before and behind


def pieces_of(buffers: Buffers) -> list[Part]:
    """Cut the graph at every op that all others come before or after."""
    count = len(buffers.ops)
    before, after = [0] * count, [0] * count
    for number, op in enumerate(buffers.ops):
        for source in members(op.needs):
            before[number] |= before[source] | 1 << source
    for number in reversed(range(count)):
        for source in members(buffers.ops[number].needs):
            after[source] |= after[number] | 1 << number
    every_op = (1 << count) - 1
    cuts = [n for n in range(count) if before[n] | after[n] | 1 << n == every_op]
    parts, done = [], 0
    for cut in sorted(cuts, key=lambda n: before[n].bit_count()):
        for mask in (before[cut] & ~done, 1 << cut):
            if mask:
                parts.append(part_of(buffers, mask, done))
                done |= mask
    if done != every_op:
        parts.append(part_of(buffers, every_op & ~done, done))
    return parts


def _only_follower(buffers: Buffers, number: int, local: dict[int, int]) -> int | None:
    """The op of the piece that alone reads the only result of op `number`, and reads nothing else."""
    op = buffers.ops[number]
    if len(op.writes) != 1 or op.writes[0] in buffers.kept or buffers.readers[op.writes[0]].bit_count() != 1:
        return None
    reader = buffers.readers[op.writes[0]].bit_length() - 1
    other = buffers.ops[reader]
    is_alone = reader in local and other.reads == op.writes and other.needs == 1 << number
    return local[reader] if is_alone else None


def part_of(buffers: Buffers, mask: int, done: int) -> Part:
    """The ops in `mask` on their own, those in `done` having run."""
    numbers = members(mask)
    local = {number: position for position, number in enumerate(numbers)}
    behind = done | mask

    def local_mask(ops: int) -> int:
        return sum(1 << local[number] for number in members(ops & mask))

    def dies_inside(buffer: int) -> bool:
        return buffer not in buffers.kept and buffers.readers[buffer] & ~behind == 0

    needs = [local_mask(buffers.ops[number].needs) for number in numbers]
    ops = []
    for position, number in enumerate(numbers):
        op = buffers.ops[number]
        reads = tuple(
            Reader(b, local_mask(buffers.readers[b] & ~(1 << number)), b in op.may_replace)
            for b in op.reads
            if dies_inside(b)
        )
        waiting = sum(1 << p for p, mask_before in enumerate(needs) if mask_before >> position & 1)
        unread = tuple(b for b in op.writes if buffers.readers[b] == 0 and b not in buffers.kept)
        ops.append(PieceOp(needs[position], waiting, reads, op.writes, unread, _only_follower(buffers, number, local)))
    touched = {b for number in numbers for b in (*buffers.ops[number].reads, *buffers.ops[number].writes)}
    untouched = tuple(
        b for b in range(len(buffers.tensors)) if b not in touched and buffers.is_alive(b, done)
    )  # whatever is alive before and not touched is alive behind as well
    return Part(numbers, done, Piece(tuple(ops)), untouched)


def members(mask: int) -> tuple[int, ...]:
    """The numbers of the bits that are set."""
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return tuple(found)
