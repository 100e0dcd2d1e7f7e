"""What model_invoke itself touches in each op of a linked image: its instructions, and constants that lie among them.

Calls in the bench look alike but are not as long to the byte, and a line more or less is what a short op waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capstone import arm

from hil.virtual.instruction import Decoder, Instruction, Pipe
from hil.virtual.program import Program
from hil.virtual.replay.lines import CODE, LOAD

INVOKE = 0x70000000  # where it is said to have been traced
_MARK = "prof_mark_at"  # where marks are not inline
_PAGE = 1024  # where QEMU ends a block, too; an M-profile core's are as small as its MPU's regions may be
_CALL = 0  # in place of an event: here the kernel runs


@dataclass(frozen=True)
class OwnEvents:
    """Events of plugin/trace_model.h before and behind those of the kernel."""

    before: bytes
    behind: bytes


def own_events(program: Program, invoke: int, ops: int) -> tuple[OwnEvents, ...]:
    """Of every op; of none where the code is not understood.

    It runs straight from mark to mark: a store, inline or in a function, that begins the next op. The plugin sees the
    code of a block when that begins, so what stands between the store and the block's end counts for the op before.
    """
    decoder, address = Decoder(program), invoke
    marks = {symbol.address for symbol in program.functions if symbol.name == _MARK}
    found: list[list[int]] = [[]]
    following: list[int] | None = None
    seen: set[int] = set()
    while address not in seen:  # a loop between marks is not understood
        seen.add(address)
        (one,) = decoder.block(address, 1)
        end = address + one.size_bytes
        is_mark = one.target in marks
        if following is not None and address // _PAGE < (end - 1) // _PAGE:  # it begins a block of its own
            found.append(following)
            following = None
        found[-1] += _code(one, invoke)
        (found[-1] if following is None else following).extend(_literal(one, invoke))
        if one.mnemonic == "bl" and not is_mark:
            found[-1].append(_CALL)
        if is_mark or (one.mnemonic == "str" and arm.ARM_REG_SP not in one.address_registers):
            following = []
        if following is not None and (one.pipe is Pipe.BRANCH or one.is_return or address // _PAGE < end // _PAGE):
            found.append(following)
            following = None
        if one.is_return or (is_mark and one.mnemonic == "b"):  # the last mark may be where it ends
            parts = found[1:-1]  # before the first mark and behind the last is no op
            return tuple(map(_split, parts)) if len(parts) == ops else ()
        address = one.target if one.target is not None and one.mnemonic == "b" else end
    return ()


def _code(one: Instruction, invoke: int) -> list[int]:
    return [INVOKE + at - invoke & ~3 | CODE for at in (one.address, one.address + one.size_bytes - 1)]


def _literal(one: Instruction, invoke: int) -> list[int]:
    """The constant among the instructions that it loads, if it does."""
    if one.offset is None or one.offset[0] != arm.ARM_REG_PC:
        return []
    return [INVOKE + (one.address + 4 & ~3) + one.offset[1] - invoke | LOAD]


def packed(events: Sequence[int]) -> bytes:
    """As a trace has them."""
    return b"".join(event.to_bytes(4, "little") for event in events)


def _split(events: Sequence[int]) -> OwnEvents:
    at = events.index(_CALL) if _CALL in events else len(events)
    return OwnEvents(packed(events[:at]), packed([event for event in events[at:] if event != _CALL]))
