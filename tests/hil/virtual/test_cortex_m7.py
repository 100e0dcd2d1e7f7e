"""The cycle model on hand-written code whose cycles can be counted on one's fingers."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from hil.virtual.cortex_m7 import CycleModel, Edge, straight_cycles
from hil.virtual.instruction import Decoder, Instruction, Pipe
from hil.virtual.program import Program
from pipeline.errors import ToolError
from tests.hil.virtual.conftest import Assemble


def decoded(program: Program, count: int) -> tuple[Instruction, ...]:
    return Decoder(program).block(0, count)


SNIPPETS = [
    ("independent additions go two a cycle", "add r0, r1, r2\n add r3, r4, r5\n add r6, r7, r8\n add r9, r10, r11", 2),
    ("a chain of additions goes one a cycle", "add r0, r0, r1\n add r0, r0, r1\n add r0, r0, r1\n add r0, r0, r1", 4),
    ("accumulators chain every cycle", "smlad r0, r1, r2, r0\n smlad r0, r3, r4, r0\n smlad r0, r5, r6, r0", 3),
    ("one multiplier only", "smlad r0, r1, r2, r0\n smlad r3, r1, r2, r3", 2),
    ("a multiply pairs with a load", "smlad r0, r1, r2, r0\n ldr r3, [r4]", 1),
    ("a multiply does not pair with a store", "smlad r0, r1, r2, r0\n str r3, [r4]", 2),
    ("a loaded value reaches the multiplier after two cycles", "ldr r1, [r4]\n smlad r0, r1, r2, r0", 3),
    ("a product reaches the ALU after two cycles", "mul r0, r1, r2\n add r3, r0, r4", 3),
    ("SIMD extension takes the older slot", "sxtb16 r0, r1\n add r2, r3, r4", 1),
    ("SIMD extension does not take the younger slot", "add r2, r3, r4\n sxtb16 r0, r1", 2),
    ("loads from even and odd words pair", "ldr r0, [r2]\n ldr r1, [r2, #4]", 1),
    ("loads from the same bank do not pair", "ldr r0, [r2]\n ldr r1, [r2, #8]", 2),
    ("loads from unknown banks do not pair", "ldr r0, [r2]\n ldr r1, [r3, #4]", 2),
    ("one store a cycle", "str r0, [r2]\n str r1, [r2, #4]", 2),
    ("a double load issues alone", "ldrd r0, r1, [r4]\n add r2, r3, r5", 2),
    ("eight registers take four cycles", "ldm r12, {r0-r7}", 4),
    ("compare and branch pair", "cmp r0, r1\n beq .", 1),
    ("nothing pairs behind a branch", "beq .\n add r0, r1, r2", 2),
    ("shifted operands share one shifter", "add r0, r1, r2, lsl #2\n add r3, r4, r5, lsl #2", 2),
    ("a plain sum can be an address one cycle later", "add r0, r1, r2\n ldr r3, [r0]", 2),
    ("a loaded value can be an address two cycles later", "ldr r0, [r1]\n ldr r3, [r0]", 3),
    ("an updated base is ready for the next load", "ldr r0, [r1], #4\n ldr r2, [r1], #4", 2),
    ("a sum can be stored in the same cycle", "add r0, r1, r2\n str r0, [r3]", 1),
    ("a slow division keeps its slot beside an addition", "vdiv.f32 s0, s1, s2\n add r0, r1, r2", 14),
    ("an updated base can be added to one cycle later", "ldr r0, [r1], #4\n add r2, r1, r3", 2),
    ("a sum can be shifted one cycle later", "add r1, r2, r3\n add r0, r4, r1, lsl #2", 2),
    ("a loaded value can be shifted two cycles later", "ldr r1, [r4]\n add r0, r2, r1, lsl #2", 3),
    ("a loaded byte can be accumulated one cycle later", "ldrsb r0, [r4]\n smlad r3, r1, r2, r0", 2),
    ("saturation is ready after two cycles", "ssat r0, #8, r1\n add r2, r0, r3", 3),
]


@pytest.mark.parametrize(("text", "cycles"), [pytest.param(*rest, id=name) for name, *rest in SNIPPETS])
def test_snippet_takes(text: str, cycles: int, assemble: Assemble) -> None:
    assert straight_cycles(decoded(assemble(text), text.count("\n") + 1)) == cycles


@pytest.mark.parametrize(
    ("text", "pipe"),
    [
        ("smull r0, r1, r2, r3", Pipe.MULTIPLY),
        ("smmlar r0, r1, r2, r3", Pipe.MULTIPLY),
        ("pkhbt r0, r1, r2, lsl #16", Pipe.FIELD),
        ("uadd8 r0, r1, r2", Pipe.FIELD),
        ("asr r0, r1, #3", Pipe.ALU),
        ("sub r0, r1, r2, asr #31", Pipe.SHIFT),
        ("ldrsb r0, [r1, r2]", Pipe.LOAD),
        ("strb r0, [r1], #1", Pipe.STORE),
        ("bic r0, r1, r2", Pipe.ALU),
        ("bl .", Pipe.BRANCH),
        ("bx lr", Pipe.BRANCH),
        ("cbz r0, .+4", Pipe.BRANCH),
        ("push {r4, lr}", Pipe.ALONE),
        ("udiv r0, r1, r2", Pipe.ALONE),
        ("vadd.f32 s0, s1, s2", Pipe.FLOAT),
    ],
)
def test_pipe_of_an_instruction(text: str, pipe: Pipe, assemble: Assemble) -> None:
    assert decoded(assemble(text), 1)[0].pipe is pipe


LOOP = """
    movs r0, #0
    1: ldr r2, [r1], #4
    subs r3, #1
    bne 1b
    bx lr
"""


def test_loop_costs_its_rounds_and_one_misprediction(assemble: Assemble) -> None:
    program = assemble(LOOP)
    prologue, body = (0, 1), (2, 3)
    end = (2 + sum(i.size_bytes for i in Decoder(program).block(*body)), 1)
    edges = [Edge(None, prologue, 1), Edge(prologue, body, 1), Edge(body, body, 99), Edge(body, end, 1)]
    # One cycle is shared by prologue and first load; a round is load + subtraction, then the branch.
    expected = 1 + (2 - 1) + 99 * 2 + 1 + 8
    assert abs(CycleModel(Decoder(program)).cycles(edges) - expected) <= 1


DOTS = """
    1: ldr r2, [r1], #4
    ldr r3, [r0], #4
    smlad r6, r2, r3, r6
    mul r7, r6, r6
    subs r5, #1
    bne 1b
    bx lr
"""


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
def test_a_loop_that_lies_across_a_page_takes_as_long_as_elsewhere(assemble: Assemble, first: int) -> None:
    program = assemble(DOTS)
    decoder = Decoder(program)
    sizes = [one.size_bytes for one in decoder.block(0, 6)]
    whole, end = (0, 6), (sum(sizes), 1)
    uncut = [Edge(None, whole, 1), Edge(whole, whole, 99), Edge(whole, end, 1)]
    head, tail = (0, first), (sum(sizes[:first]), 6 - first)  # QEMU ends a block where a page ends
    cut = [Edge(None, head, 1), Edge(head, tail, 100), Edge(tail, head, 99), Edge(tail, end, 1)]
    assert CycleModel(decoder).cycles(cut) == CycleModel(decoder).cycles(uncut)
    assert CycleModel(decoder).multiplies(cut) == 200


def test_the_ways_of_a_branch_count_together_whichever_block_ends_with_it(assemble: Assemble) -> None:
    program = assemble(LOOP)
    decoder = Decoder(program)
    body = (2, 3)
    end = (2 + sum(one.size_bytes for one in decoder.block(*body)), 1)
    entry = (0, 4)  # from the top into the loop: another block for QEMU, but the same branch
    edges = [Edge(None, entry, 10), Edge(entry, body, 10), Edge(body, body, 80), Edge(body, end, 10)]
    again = [Edge(None, entry, 10), Edge(entry, body, 4), Edge(entry, end, 6), Edge(body, body, 86), Edge(body, end, 4)]
    model = CycleModel(decoder)
    assert model._branch_cycles(edges) == model._branch_cycles(again) == 10 * 8


def test_branch_that_goes_both_ways_is_mispredicted_as_often_as_its_rarer_way(assemble: Assemble) -> None:
    program = assemble("cmp r0, r1\n beq 1f\n add r2, r3, r4\n 1: add r5, r6, r7")
    test, other, target = (0, 2), (4, 1), (8, 1)
    model = CycleModel(Decoder(program))
    one_way = [Edge(test, target, 100)]
    both_ways = [Edge(test, target, 70), Edge(test, other, 30)]
    assert model.cycles(one_way) == 100
    assert model.cycles(both_ways) == 100 + 30 * 8


def test_return_costs_its_own_cycles(assemble: Assemble) -> None:
    program = assemble("bx lr\n add r0, r1, r2")
    assert CycleModel(Decoder(program)).cycles([Edge((0, 1), (2, 1), 10)]) == 10 * (1 + 3)


def test_address_outside_the_image_is_refused(assemble: Assemble) -> None:
    with pytest.raises(ToolError, match="no known instruction at 0x100000 .outside the image"):
        Decoder(assemble("nop")).block(0x100000, 1)


INNER_LOOPS = {
    "multiply_accumulate": "smlad r4, r0, r1, r4; ldr r2, [r10, #4]; smlad r5, r0, r2, r5; ldr r1, [r11, #8]",
    "extend": "ldr r0, [r10]; sxtb16 r1, r0; sxtb16 r2, r0, ror #8; smlad r4, r1, r8, r4; smlad r5, r2, r9, r5",
    "requantise": "smmlar r0, r4, r8, r9; add r0, r0, r4, asr #31; asr r0, r0, r11; ssat r0, #8, r0; strb r0, [r10]",
}


@pytest.mark.skipif(shutil.which("llvm-mca") is None, reason="a second opinion; enable with: apt-get install llvm")
@pytest.mark.parametrize("name", INNER_LOOPS)
def test_steady_state_is_near_that_of_llvm_mca(name: str, assemble: Assemble) -> None:
    body, rounds = INNER_LOOPS[name].split("; "), 100
    ours = straight_cycles(decoded(assemble("\n".join(body * rounds)), len(body) * rounds))
    argv = ["llvm-mca", "-mtriple=thumbv7em-none-eabi", "-mcpu=cortex-m7", f"-iterations={rounds}"]
    done = subprocess.run(argv, input="\n".join(body) + "\n", capture_output=True, text=True, check=True)
    theirs = int(re.search(r"Total Cycles:\s+(\d+)", done.stdout)[1])
    assert ours == pytest.approx(theirs, rel=0.3)
