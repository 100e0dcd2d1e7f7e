"""Small loops whose cycles tell the parameters of the cycle model apart, as a model.c that any of our firmware can run.

Each loop stands between two marks where an operator would: `layers%` times it on a board, the profiler counts it on the
twin. Every loop runs `ROUNDS` times over a body that repeats one pattern: pairs that may or may not issue together, a
value that is waited for, a branch that goes both ways, lines that are fetched or written back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ROUNDS = 200
_REPEATS = 8
BUFFER_BYTES = 64 * 1024  # four times the largest data cache


@dataclass(frozen=True)
class Loop:
    """One loop: what it is for, and its body in Thumb-2; r0 counts, r1 to r8 are free, r9 points to `memory`."""

    name: str
    body: str
    memory: str = "dtcm"  # what r9 points to: dtcm, ram, flash
    rounds: int = ROUNDS


def loops() -> tuple[Loop, ...]:
    """About sixty of them."""
    return (*_issue(), *_waits(), *_branches(), *_lines())


def _repeated(text: str, times: int = _REPEATS) -> str:
    return "\n".join([text] * times)


def _issue() -> Iterator[Loop]:
    pairs = {
        "alu_alu": "add r1, r2, r3\nadd r4, r5, r6",
        "alu_chain": "add r1, r1, r2\nadd r1, r1, r3",
        "mac_mac": "smlad r1, r2, r3, r1\nsmlad r4, r5, r6, r4",
        "mac_alu": "smlad r1, r2, r3, r1\nadd r4, r5, r6",
        "mac_load": "smlad r1, r2, r3, r1\nldr r4, [r9]",
        "mac_store": "smlad r1, r2, r3, r1\nstr r4, [r9]",
        "field_alu": "sxtb16 r1, r2\nadd r4, r5, r6",
        "alu_field": "add r4, r5, r6\nsxtb16 r1, r2",
        "load_load": "ldr r1, [r9]\nldr r2, [r9, #4]",
        "load_same_bank": "ldr r1, [r9]\nldr r2, [r9, #8]",
        "store_store": "str r1, [r9]\nstr r2, [r9, #4]",
        "load_double": "ldrd r2, r3, [r9]\nadd r4, r5, r6",
        "load_many": "ldm r9, {r1-r4}\nadd r5, r6, r7",
        "shift_shift": "add r1, r2, r3, lsl #2\nadd r4, r5, r6, lsl #2",
    }
    for name, text in pairs.items():
        yield Loop(f"issue_{name}", _repeated(text))


def _waits() -> Iterator[Loop]:
    waits = {
        "product_to_alu": "mul r1, r2, r3\nadd r4, r1, r5",
        "product_to_product": "mul r1, r2, r3\nmul r4, r1, r5",
        "product_chain": "mul r1, r1, r2\nadd r1, r1, r3",
        "product_to_address": "mul r1, r2, r3\nand r1, r1, #0\nldr r4, [r9, r1]",
        "product_to_store": "mul r1, r2, r3\nstr r1, [r9]",
        "byte_to_alu": "ldrsb r1, [r9]\nadd r4, r1, r5",
        "byte_chain": "ldrb r1, [r9]\nadd r2, r2, r1",
        "half_to_alu": "ldrsh r1, [r9]\nadd r4, r1, r5",
        "half_to_product": "ldrsh r1, [r9]\nmul r4, r1, r5",
        "word_to_product": "ldr r1, [r9]\nsmlad r4, r1, r5, r4",
        "word_to_product_twice": "ldr r1, [r9]\nsmuad r4, r1, r5\nadd r6, r4, r7",
        "word_to_alu": "ldr r1, [r9]\nadd r4, r1, r5",
        "saturated_to_alu": "ssat r1, #8, r2\nadd r4, r1, r5",
        "saturated_chain": "ssat r1, #8, r1\nadd r1, r1, r2",
        "saturated_to_store": "ssat r1, #8, r2\nstrb r1, [r9]",
        "float_chain": "vadd.f32 s0, s0, s1\nvadd.f32 s0, s0, s2",
        "float_product": "vmul.f32 s0, s1, s2\nvadd.f32 s3, s0, s4",
        "float_to_store": "vadd.f32 s0, s1, s2\nvstr s0, [r9]",
        "divide": "sdiv r1, r2, r8\nadd r4, r5, r6",
        "divide_unsigned": "udiv r1, r2, r8",
        "divide_chain": "udiv r2, r2, r8\nadd r2, r2, r3",
        "float_divide": "vdiv.f32 s0, s1, s2",
        "float_divide_alu": "vdiv.f32 s0, s1, s2\nadd r1, r2, r3",
    }
    for name, text in waits.items():
        yield Loop(f"wait_{name}", _repeated(text))


def _branches() -> Iterator[Loop]:
    for period in (2, 3, 4, 8):
        body = f"udiv r1, r0, r7\nmls r1, r1, r7, r0\ncbz r1, 5f\nadd r2, r2, #1\n5: add r3, r3, #1\nmovs r7, #{period}"
        yield Loop(f"branch_one_in_{period}", body)
    yield Loop("branch_taken", _repeated("b 5f\n5: add r1, r2, r3", 1))
    for depth in (1, 2, 4):
        yield Loop(f"return_{depth}", _repeated("bl loop_leaf", depth))


def _lines() -> Iterator[Loop]:
    """A pass over a buffer larger than the cache touches every line anew; strides differ in lines for each look."""
    for memory in ("ram", "flash"):
        for stride in (32, 64, 96):
            yield Loop(
                f"load_{memory}_{stride}", _pass(f"ldr r1, [r9], #{stride}"), memory, BUFFER_BYTES // 4 // stride
            )
    for stride in (32, 64, 96):
        yield Loop(f"store_ram_{stride}", _pass(f"str r1, [r9], #{stride}"), "ram", BUFFER_BYTES // 4 // stride)
        both = f"ldr r1, [r9]\nstr r2, [r9], #{stride}"
        yield Loop(f"update_ram_{stride}", _pass(both), "ram", BUFFER_BYTES // 4 // stride)
    for offset in (0, 1, 3):
        yield Loop(f"load_dtcm_{offset}", _repeated(f"ldr r1, [r9, #{4 * offset}]\nldr r2, [r9, #{4 * offset + 8}]"))


def _pass(text: str) -> str:
    return _repeated(text, 4)
