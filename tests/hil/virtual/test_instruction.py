"""What the issue model is told of an instruction, against facts told by hand."""

from __future__ import annotations

from typing import Any

import pytest
from capstone import arm

from hil.virtual.instruction import Decoder
from tests.hil.virtual.conftest import Assemble

USUAL = dict(
    is_load=False,
    is_store=False,
    is_return=False,
    is_conditional_branch=False,
    address_registers="",
    early_registers="",
    accumulators="",
    updated_base="",
    offset=None,
    cycles=1,
    latency=1,
)
FACTS: dict[str, dict[str, Any]] = {
    "add r0, r1, r2": {},
    "mov r0, pc": {},
    "bl .": {},
    "b .": {},
    "bx lr": dict(is_return=True),
    "blx r3": dict(is_return=True),
    "mov pc, r3": dict(is_return=True),
    "beq .": dict(is_conditional_branch=True),
    "cbnz r0, .+4": dict(is_conditional_branch=True),
    "tbb [pc, r0]": dict(is_return=True, address_registers="r0"),
    "pop {r4, pc}": dict(is_return=True, is_load=True),
    "pop {r4, r5, r6}": dict(is_load=True, cycles=2),
    "push {r4}": dict(is_store=True),
    "push {r4, r5, r6, lr}": dict(is_store=True, cycles=2),
    "ldm r1, {r2, pc}": dict(is_return=True, is_load=True, address_registers="r1"),
    "ldm r1!, {r2, r3, r4}": dict(is_load=True, address_registers="r1", cycles=2),
    "stm r1!, {r2, r3, r4, r5}": dict(is_store=True, address_registers="r1", cycles=2),
    "ldr pc, [r1]": dict(is_return=True, is_load=True, address_registers="r1", offset=("r1", 0)),
    "ldr r0, [r1, #8]": dict(is_load=True, address_registers="r1", offset=("r1", 8)),
    "ldr r0, [pc, #8]": dict(is_load=True, offset=("pc", 8)),
    "ldr r0, [r1, r2]": dict(is_load=True, address_registers="r1 r2"),
    "ldr r0, [r1], #4": dict(is_load=True, address_registers="r1", updated_base="r1", offset=("r1", 0)),
    "ldrd r0, r2, [r1]": dict(is_load=True, address_registers="r1"),
    "ldrsb r0, [r1]": dict(is_load=True, address_registers="r1", offset=("r1", 0), latency=2),
    "ldrh r0, [r1]": dict(is_load=True, address_registers="r1", offset=("r1", 0), latency=2),
    "strb r0, [r1], #1": dict(is_store=True, address_registers="r1", updated_base="r1"),
    "strd r0, r2, [r1]": dict(is_store=True, address_registers="r1"),
    "mul r0, r1, r2": dict(latency=2),
    "mla r0, r1, r2, r3": dict(latency=2, accumulators="r3"),
    "smull r0, r1, r2, r3": dict(latency=2),
    "smlal r0, r1, r2, r3": dict(latency=2, accumulators="r0 r1"),
    "smmlar r0, r1, r2, r3": dict(latency=2, accumulators="r3"),
    "udiv r0, r1, r2": dict(cycles=7),
    "ssat r0, #8, r1": dict(latency=2),  # capstone does not tell that it reads r1
    "rev r0, r1": dict(early_registers="r1"),
    "ubfx r0, r1, #3, #4": dict(early_registers="r1"),
    "uadd8 r0, r1, r2": {},
    "sxtab16 r0, r1, r2": dict(early_registers="r2"),
    "pkhbt r0, r1, r2, lsl #16": dict(early_registers="r2"),
    "sub r0, r1, r2, asr #31": dict(early_registers="r2"),
    "asr r0, r1, #3": {},
    "vadd.f32 s0, s1, s2": dict(latency=3),
    "vdiv.f32 s0, s1, s2": dict(latency=3, cycles=14),
    "vldr s0, [r1]": dict(is_load=True, address_registers="r1", offset=("r1", 0)),
}


def number(register: str) -> int:
    return int(getattr(arm, f"ARM_REG_{register.upper()}"))


@pytest.mark.parametrize("text", FACTS)
def test_instruction_is_told_by_its_facts(text: str, assemble: Assemble) -> None:
    found = Decoder(assemble(text)).block(0, 1)[0]
    for name, fact in {**USUAL, **FACTS[text]}.items():
        if name.endswith(("registers", "accumulators", "base")):
            fact = frozenset(map(number, fact.split()))
        elif name == "offset" and fact is not None:
            fact = (number(fact[0]), fact[1])
        assert getattr(found, name) == fact, name
