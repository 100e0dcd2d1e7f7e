"""Thumb-2 instructions with named registers: what they read and write, which pipe they take, how they are written.

A register is a physical name ('r0' ... 'r12', 'lr', 'sp', 'flags') or any other, to which `allocated` gives a free one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Pipe = Literal["alu", "shift", "field", "multiply", "load", "store", "branch", "alone"]
_PHYSICAL = frozenset([*(f"r{n}" for n in range(13)), "lr", "sp", "flags"])


@dataclass(frozen=True)
class Instruction:
    """One instruction; `{0}`, `{1}` ... in `text` stand for `registers`."""

    text: str
    registers: tuple[str, ...]
    pipe: Pipe
    writes: tuple[int, ...] = ()  # positions in `registers`
    reads: tuple[int, ...] = ()
    address: tuple[int, ...] = ()  # read first of all, by the address unit
    early: tuple[int, ...] = ()  # read before the ALU, by the shifter or the saturation unit
    accumulator: tuple[int, ...] = ()  # read last, behind the multiplier
    updated: tuple[int, ...] = ()  # written by the address unit
    latency: int = 1  # cycles until a late ALU can use the result
    offset: int | None = None  # of a load, from its base

    def written(self) -> frozenset[str]:
        return frozenset(self.registers[i] for i in self.writes)

    def read(self) -> frozenset[str]:
        return frozenset(self.registers[i] for i in self.reads)

    def __str__(self) -> str:
        return self.text.format(*self.registers)


def load(into: str, base: str, offset: int = 0) -> Instruction:
    text = f"ldr {{0}}, [{{1}}, #{offset}]" if offset else "ldr {0}, [{1}]"
    return Instruction(text, (into, base), "load", (0,), (1,), address=(1,), offset=offset)


def load_advancing(into: str, base: str, step: int) -> Instruction:
    """The base moves on by `step` first."""
    return Instruction(f"ldr {{0}}, [{{1}}, #{step}]!", (into, base), "load", (0, 1), (1,), address=(1,), updated=(1,))


def load_byte(into: str, base: str, offset: int) -> Instruction:
    """Not negative. Which bank its word is in matters as for any load."""
    return Instruction(f"ldrb {{0}}, [{{1}}, #{offset}]", (into, base), "load", (0,), (1,), address=(1,), offset=offset)


def load_signed_byte(into: str, base: str, offset: int) -> Instruction:
    text = f"ldrsb {{0}}, [{{1}}, #{offset}]"
    return Instruction(text, (into, base), "load", (0,), (1,), address=(1,), offset=offset)


def store(value: str, base: str, offset: int = 0) -> Instruction:
    text = f"str {{0}}, [{{1}}, #{offset}]" if offset else "str {0}, [{1}]"
    return Instruction(text, (value, base), "store", (), (0, 1), address=(1,))


def store_byte(value: str, base: str, offset: int = 0) -> Instruction:
    text = f"strb {{0}}, [{{1}}, #{offset}]" if offset else "strb {0}, [{1}]"
    return Instruction(text, (value, base), "store", (), (0, 1), address=(1,))


def store_byte_at(value: str, base: str, index: str) -> Instruction:
    return Instruction("strb {0}, [{1}, {2}]", (value, base, index), "store", (), (0, 1, 2), address=(1, 2))


def store_at(value: str, base: str, index: str) -> Instruction:
    return Instruction("str {0}, [{1}, {2}]", (value, base, index), "store", (), (0, 1, 2), address=(1, 2))


def load_many(base: str, into: Sequence[str]) -> Instruction:
    """LDM with write-back; `into` must be physical and ascending."""
    registers = (base, *into)
    return Instruction(
        "ldmia {0}!, {{" + ", ".join(f"{{{i}}}" for i in range(1, len(registers))) + "}}",
        *(registers, "alone", tuple(range(len(registers))), (0,)),
        address=(0,),
    )


def multiply(name: str, into: str, x: str, w: str, addend: str) -> Instruction:
    """SMLAD, SMLABB ..., SMMLAR: into = addend + x * w."""
    return Instruction(
        f"{name} {{0}}, {{1}}, {{2}}, {{3}}",
        *((into, x, w, addend), "multiply", (0,), (1, 2, 3)),
        accumulator=(3,),
        latency=2,
    )


def move(into: str, source: str) -> Instruction:
    return Instruction("mov {0}, {1}", (into, source), "alu", (0,), (1,))


def add(into: str, x: str, y: str) -> Instruction:
    return Instruction("add {0}, {1}, {2}", (into, x, y), "alu", (0,), (1, 2))


def subtract(into: str, x: str, y: str) -> Instruction:
    return Instruction("sub {0}, {1}, {2}", (into, x, y), "alu", (0,), (1, 2))


def add_constant(into: str, x: str, constant: int) -> list[Instruction]:
    """Any constant below 2^16 in magnitude: ADDW takes twelve bits."""
    steps = []
    sign, rest = ("addw", constant) if constant >= 0 else ("subw", -constant)
    while rest:
        step = min(rest, 4095)
        steps.append(Instruction(f"{sign} {{0}}, {{1}}, #{step}", (into, x), "alu", (0,), (1,)))
        x, rest = into, rest - step
    return steps


def add_sign(into: str, x: str, of: str) -> Instruction:
    """into = x - (of < 0)."""
    return Instruction("add {0}, {1}, {2}, asr #31", (into, x, of), "shift", (0,), (1, 2), early=(2,))


def add_twice(into: str, x: str, y: str) -> Instruction:
    """into = x + 2 * y."""
    return Instruction("add {0}, {1}, {2}, lsl #1", (into, x, y), "shift", (0,), (1, 2), early=(2,))


def pack_bottoms(into: str, low: str, high: str) -> Instruction:
    """The lower halves of two registers."""
    return Instruction("pkhbt {0}, {1}, {2}, lsl #16", (into, low, high), "field", (0,), (1, 2), early=(2,))


def pack_tops(into: str, high: str, low: str) -> Instruction:
    """The upper halves of two registers."""
    return Instruction("pkhtb {0}, {1}, {2}, asr #16", (into, high, low), "field", (0,), (1, 2), early=(2,))


def and_sign(into: str, x: str, of: str) -> Instruction:
    """into = x where `of` is negative, else 0."""
    return Instruction("and {0}, {1}, {2}, asr #31", (into, x, of), "shift", (0,), (1, 2), early=(2,))


def shift_right(into: str, x: str, by: str) -> Instruction:
    return Instruction("asr {0}, {1}, {2}", (into, x, by), "alu", (0,), (1, 2))


def shift_right_constant(into: str, x: str, bits: int) -> Instruction:
    return Instruction(f"asr {{0}}, {{1}}, #{bits}", (into, x), "alu", (0,), (1,))


def shift_left(into: str, x: str, by: str) -> Instruction:
    return Instruction("lsl {0}, {1}, {2}", (into, x, by), "alu", (0,), (1, 2))


def shift_left_constant(into: str, x: str, bits: int) -> Instruction:
    return Instruction(f"lsl {{0}}, {{1}}, #{bits}", (into, x), "alu", (0,), (1,))


def masked(into: str, mask: str, x: str, left_bits: int) -> Instruction:
    """into = mask & (x << left_bits)."""
    if left_bits:
        text = f"and {{0}}, {{1}}, {{2}}, lsl #{left_bits}"
        return Instruction(text, (into, mask, x), "shift", (0,), (1, 2), early=(2,))
    return Instruction("and {0}, {1}, {2}", (into, mask, x), "alu", (0,), (1, 2))


def saturate(into: str, x: str, right_bits: int) -> Instruction:
    """x shifted right by a constant, clipped to int8."""
    text = f"ssat {{0}}, #8, {{1}}, asr #{right_bits}" if right_bits else "ssat {0}, #8, {1}"
    return Instruction(text, (into, x), "field", (0,), (1,), early=(1,), latency=2)


def widen(into: str, x: str, rotate_bits: int) -> Instruction:
    """Bytes 0 and 2 of x, rotated right by 0 or 8 bits, as two int16."""
    text = "sxtb16 {0}, {1}, ror #8" if rotate_bits else "sxtb16 {0}, {1}"
    return Instruction(text, (into, x), "field", (0,), (1,))


def limit(x: str, bound: int, replace_when: Literal["lt", "gt"]) -> Instruction:
    """x = bound where x is below ('lt') or above ('gt') it. Three instructions that must stay together."""
    text = f"cmp {{0}}, #{bound}\n    it {replace_when}\n    mov{replace_when} {{0}}, #{bound}"
    return Instruction(text, (x, "flags"), "alone", (0, 1), (0,), latency=2)


def limited(x: str, limits: tuple[int, int]) -> list[Instruction]:
    """An int8 kept within the limits of a fused activation."""
    code = [limit(x, limits[0], "lt")] if limits[0] > -128 else []
    return code + ([limit(x, limits[1], "gt")] if limits[1] < 127 else [])


def limits_suffix(limits: tuple[int, int]) -> str:
    """Of the name of a function: nothing where all of int8 is left."""
    return "" if limits == (-128, 127) else f"_{limits[0] + 128}_{limits[1] + 128}"


def count_down(x: str) -> Instruction:
    """x = x - 1, and the flags say whether it is 0; nothing may change them before the branch."""
    return Instruction("subs {0}, {0}, #1", (x, "flags"), "alu", (0, 1), (0,))


def compare(x: str, y: str) -> Instruction:
    return Instruction("cmp {0}, {1}", (x, y, "flags"), "alu", (2,), (0, 1))


def lines_of(code: Iterable[Instruction]) -> list[str]:
    """As they stand in a function."""
    return [f"    {one}" for one in code]


def function_text(title: str, name: str, body: Sequence[str]) -> str:
    """A function with its saved registers; the body returns by restoring them."""
    lines = [
        f"@ {title}",
        f'    .section .text.{name}, "ax", %progbits',
        "    .p2align 3",
        f"    .global {name}",
        "    .thumb_func",
        f"    .type {name}, %function",
        f"{name}:",
        "    push {r4-r11, lr}",
        *body,
        f"    .size {name}, . - {name}",
    ]
    return "\n".join(lines) + "\n\n"


def is_physical(name: str) -> bool:
    return name in _PHYSICAL


def allocated(code: Sequence[Instruction], free: Sequence[str], placed: Mapping[str, str]) -> list[Instruction]:
    """Physical registers for all others, the one longest free first; a register is free again after its last use.

    `placed` says where the values live that exist before.
    """
    last_use = {name: index for index, one in enumerate(code) for name in one.registers}
    pool, place = deque(free), {**{name: name for name in _PHYSICAL}, **placed}
    result = []
    for index, one in enumerate(code):
        # Read before written: a result may take the register of an operand that ends here.
        pool.extend(
            place[n] for n in dict.fromkeys(one.registers) if last_use[n] == index and n not in _PHYSICAL and n in place
        )
        for name in one.registers:
            if name not in place:
                assert pool, f"no register left for {name} in {one.text}"
                place[name] = pool.popleft()
        result.append(replace(one, registers=tuple(place[name] for name in one.registers)))
    return result
