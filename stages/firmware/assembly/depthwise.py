"""Inner loop of 3x3 depthwise convolutions: all channels of one, two or four neighbouring outputs.

Activations lie channel by channel in lines of words, each the int16 of two rows of the image, one above the other:
two such lines hold the four rows that two rows of outputs see (with stride 2, three of which one row of outputs sees).
SMLAD multiplies two rows at once, so that a column of taps takes two instructions for three products.

A channel's record: for each column of the window the weights of rows 0 and 1, then of rows 1 and 2 (as two int16),
then bias, multiplier, addend, right shift and mask; scaling as in assembly/dot.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.firmware.assembly.dot import function_start, scaled_and_limited
from stages.firmware.assembly.instructions import (
    Instruction,
    add,
    add_constant,
    allocated,
    compare,
    load,
    multiply,
    store_byte,
    store_byte_at,
)
from stages.firmware.assembly.schedule import scheduled

WINDOW = 3
RECORD_WORDS = 2 * WINDOW + 5
_BIAS, _MULTIPLIER, _ADDEND, _RIGHT, _MASK = (4 * (2 * WINDOW + i) for i in range(5))
# The caller's struct fast_depthwise_walk, copied to the stack.
_PITCH, _OUTPUTS, _ROW, _END = (4 * slot for slot in range(4))
_FRAME_BYTES = 16


@dataclass(frozen=True)
class DepthwiseShape:
    """What the code depends on."""

    rows: int  # of outputs at a time: 1, or 2 with stride 1
    columns: int  # of outputs at a time: 1 or 2
    stride: int  # from column to column
    lowest: int = -128
    highest: int = 127
    some_unshifted: bool = False

    @property
    def name(self) -> str:
        limits = "" if (self.lowest, self.highest) == (-128, 127) else f"_{self.lowest + 128}_{self.highest + 128}"
        unshifted = "_unshifted" if self.some_unshifted else ""
        return f"depthwise_{self.rows}x{self.columns}_{self.stride}{limits}{unshifted}"


def depthwise_function(shape: DepthwiseShape) -> str:
    """void name(const int32_t *upper, const int32_t *lower, int8_t *y, const struct fast_depthwise_walk *walk)"""
    body = [f"@ 3x3 depthwise, {shape.rows}x{shape.columns} outputs, horizontal stride {shape.stride}, every channel"]
    body += function_start(shape.name)
    body += [f"    sub sp, #{_FRAME_BYTES}", "    ldmia r3, {r3-r7}", "    stmia sp, {r4-r7}", "    .p2align 3", "1:"]
    # r0, r1: upper and lower line, r2: output, r3: record
    code = _products(shape)
    code += _stores(shape)
    code += [load("pitch", "sp", _PITCH), add("r0", "r0", "pitch"), add("r1", "r1", "pitch")]
    code += [*add_constant("r2", "r2", 1), *add_constant("r3", "r3", 4 * RECORD_WORDS)]
    code += [load("end", "sp", _END), compare("r3", "end")]
    free = [*(f"r{n}" for n in range(4, 13)), "lr"]
    body += [f"    {one}" for one in scheduled(allocated(code, free, {}))]
    body += ["    bne.w 1b", f"    add sp, #{_FRAME_BYTES}", "    pop {r4-r11, pc}"]
    body += [f"    .size {shape.name}, . - {shape.name}", ""]
    return "\n".join(body) + "\n"


def _products(shape: DepthwiseShape) -> list[Instruction]:
    """sum{row}{column} of every output."""
    code = [load("bias", "r3", _BIAS)]
    begun: set[str] = set()

    def product(name: str, total: str, x: str, w: str) -> None:
        code.append(multiply(name, total, x, w, total if total in begun else "bias"))
        begun.add(total)

    for column in range((shape.columns - 1) * shape.stride + WINDOW):
        upper, lower = f"upper{column}", f"lower{column}"
        code += [load(upper, "r0", 4 * column), load(lower, "r1", 4 * column)]
        for output in range(shape.columns):
            tap = column - output * shape.stride
            if not 0 <= tap < WINDOW:
                continue
            top, bottom = f"top{tap}_{output}", f"bottom{tap}_{output}"  # weights of rows 0, 1 and of rows 1, 2
            code += [load(top, "r3", 4 * tap), load(bottom, "r3", 4 * (WINDOW + tap))]
            product("smlad", f"sum0{output}", upper, top)
            if shape.rows == 2:
                product("smlatb", f"sum1{output}", upper, top)
            product("smlabt", f"sum0{output}", lower, bottom)
            if shape.rows == 2:
                product("smlad", f"sum1{output}", lower, bottom)
    return code


def _stores(shape: DepthwiseShape) -> list[Instruction]:
    code = [load("m", "r3", _MULTIPLIER), load("addend", "r3", _ADDEND), load("right", "r3", _RIGHT)]
    code += [load("mask", "r3", _MASK)] if shape.some_unshifted else []
    outputs = [(row, column) for row in range(shape.rows) for column in range(shape.columns)]
    limits = (shape.lowest, shape.highest)
    for row, column in outputs:
        scaling = ("m", "addend", "right", "mask" if shape.some_unshifted else "")
        code += scaled_and_limited(f"t{row}{column}", f"sum{row}{column}", scaling, limits)
    if shape.columns == 2:
        code.append(load("outputs", "sp", _OUTPUTS))
    if shape.rows == 2:
        code += [load("row", "sp", _ROW), add("below", "r2", "row")]
    for row, column in outputs:
        line = "r2" if row == 0 else "below"
        value = f"t{row}{column}"
        code.append(store_byte(value, line) if column == 0 else store_byte_at(value, line, "outputs"))
    return code
