"""The generated inner loops: how many cycles a round takes by the scheduler, by the cycle model and by llvm-mca."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from hil.virtual.cortex_m7 import straight_cycles
from hil.virtual.instruction import Decoder
from hil.virtual.program import Program
from stages.firmware.assembly.depthwise import DepthwiseShape, depthwise_function
from stages.firmware.assembly.dot import DotShape, Requantisation, VectorShape, dot_function, vector_function
from stages.firmware.assembly.dot_loop import LoopShape, dot_loop_function
from stages.firmware.assembly.elementwise import (
    add_function,
    interleave_function,
    pair_rows_function,
    widen_function,
    widen_in_order_function,
)
from stages.firmware.assembly.instructions import add, load, move, multiply
from stages.firmware.assembly.schedule import fitted, loop_cycles
from stages.firmware.assembly.small_depthwise import SmallDepthwiseShape, small_depthwise_function

_ABOVE = Requantisation(is_signed=False)


def _rows_of(columns: int, height: int, width: int, stride: int, channels: int) -> str:
    sizes = (4 * channels, 0 if height < 4 else 4 * channels * columns, columns * channels, channels)
    return depthwise_function(DepthwiseShape(height, width, stride, stride, 2, columns, *sizes, 1, _ABOVE))


def _shared(*window: int) -> str:
    return small_depthwise_function(SmallDepthwiseShape(*window, 1))


# Cycles of a round by the model, and the multiply-accumulates (or elements) of a round.
LOOPS = {
    # Of the multiplier 60 and of the stores 10, none of which go together; 152 instructions, two a cycle.
    "depthwise 3x3, two rows of five": (_rows_of(5, 3, 3, 1, 64), 1, 98, 90),
    "depthwise 3x3, two rows of six, stride 2": (_rows_of(6, 3, 3, 2, 32), 1, 136, 108),
    "depthwise 10x1, two rows": (_rows_of(1, 10, 1, 1, 16), 1, 28, 20),
    "shared depthwise 3x3, four outputs": (_shared(3, 3, 2, 2), 1, 43, 36),
    "shared depthwise 5x5, four outputs": (_shared(5, 5, 2, 2), 1, 85, 100),
    "shared depthwise 7x7, two outputs": (_shared(7, 7, 2, 1), 1, 80, 98),
    "eight values of two rows": (pair_rows_function(), 1, 15, 8),
    "sixteen values to int16, in order": (widen_in_order_function(), 1, 19, 16),
    # 256 cycles of the multiplier, and the end of eight sums.
    "64 taps of two pixels": (dot_function(DotShape(2, 1, 32, 0, 128, 256, 64, 128, 4, _ABOVE)), 1, 289, 512),
    "64 taps of a pixel": (dot_function(DotShape(1, 1, 32, 0, 0, 128, 0, 64, 4, _ABOVE)), 1, 183, 256),
    "128 taps of a vector": (vector_function(VectorShape(64, 4, _ABOVE)), 1, 319, 512),
    "four taps of two pixels": (dot_loop_function(LoopShape(2)), 3, 20, 32),
    "sixteen taps of a pixel": (dot_loop_function(LoopShape(1)), 3, 51, 64),
    "eight sums": (add_function(9, (-128, 127)), 1, 33, 8),
    "eight channels of two rows": (interleave_function(), 1, 22, 8),
    "sixteen values to int16": (widen_function(), 1, 13, 16),
}


def body(text: str, label: int) -> list[str]:
    """The instructions of the loop that ends with a branch back to `label`."""
    start = text.index(f"\n{label}:\n") + len(f"\n{label}:\n")
    return [line.strip() for line in text[start : text.index(f"bne.w {label}b", start)].splitlines() if line.strip()]


def model_cycles(lines: list[str], folder: Path, rounds: int) -> int:
    source, product = folder / "code.S", folder / "code.o"
    source.write_text("\n".join([".syntax unified", ".thumb", ".cpu cortex-m7", ".text", *lines * rounds, ""]))
    argv = ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", "-c", str(source), "-o", str(product)]
    subprocess.run(argv, check=True)
    with product.open("rb") as stream:
        code = ELFFile(stream).get_section_by_name(".text").data()
    return straight_cycles(Decoder(Program(((0, code),), {}, {})).block(0, len(lines) * rounds))


@pytest.mark.parametrize("name", LOOPS)
def test_a_round_takes_what_the_scheduler_promised(name: str, tmp_path: Path) -> None:
    text, label, most, _ = LOOPS[name]
    lines = body(text, label)
    (tmp_path / "one").mkdir()
    steady = (model_cycles(lines, tmp_path, 11) - model_cycles(lines, tmp_path / "one", 1)) / 10
    assert steady <= most + 1


@pytest.mark.skipif(shutil.which("llvm-mca") is None, reason="a second opinion; enable with: apt-get install llvm")
@pytest.mark.parametrize("name", LOOPS)
def test_a_round_takes_about_what_llvm_mca_says(name: str, tmp_path: Path) -> None:
    text, label, *_ = LOOPS[name]
    lines, rounds = body(text, label), 100
    ours = model_cycles(lines, tmp_path, rounds)
    argv = ["llvm-mca", "-mtriple=thumbv7em-none-eabi", "-mcpu=cortex-m7", f"-iterations={rounds}"]
    done = subprocess.run(argv, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    assert found
    assert ours == pytest.approx(int(found[1]), rel=0.3)


def test_the_fitted_order_reads_every_value_before_its_register_is_used_again() -> None:
    """Run on numbers: the loop body in its old and in its new order and registers leaves the same sums."""
    code = []
    for n in range(6):
        code += [load(f"x{n}", "r0", 4 * n), load(f"w{n}", "r1", 4 * n)]
        code += [multiply("mla", f"sum{n % 2}", f"x{n}", f"w{n}", f"sum{n % 2}")]
    code += [add("r2", "sum0", "sum1")]
    placed = {"sum0": "r4", "sum1": "r5"}
    fit = fitted(code, ["r6", "r7", "r8", "r9"], placed)
    assert fit is not None
    memory = {"r0": [3, -5, 7, 11, -13, 17], "r1": [2, 4, -6, 8, 10, -12]}
    registers = {"r4": 100, "r5": -50}
    for one in fit.code:
        if one.pipe == "load":
            assert one.offset is not None
            registers[one.registers[0]] = memory[one.registers[1]][one.offset // 4]
        elif one.pipe == "multiply":
            into, x, w, total = one.registers
            registers[into] = registers[x] * registers[w] + registers[total]
        else:
            registers[one.registers[0]] = registers[one.registers[1]] + registers[one.registers[2]]
    assert registers["r2"] == 50 + sum(x * w for x, w in zip(memory["r0"], memory["r1"], strict=True))
    assert fit.cycles == loop_cycles(fit.code)
    assert fit.cycles <= 14  # twelve loads, one a cycle as they come from two bases, and the end of the chain


def test_an_instruction_left_alone_at_the_end_takes_its_cycle() -> None:
    code = [move("r1", "r2"), move("r3", "r4"), move("r5", "r6")]
    assert loop_cycles(code) == 2  # nine take five cycles, six take three
    assert loop_cycles(code[:2]) == 1


def test_code_that_needs_more_registers_than_there_are_is_given_up() -> None:
    code = [load(f"x{n}", "r0", 4 * n) for n in range(4)]
    code += [multiply("mla", "r2", "x0", "x1", "x2"), add("r2", "r2", "x3")]
    assert fitted(code, ["r6", "r7"], {}) is None
    assert fitted(code, ["r6", "r7", "r8", "r9"], {}) is not None
