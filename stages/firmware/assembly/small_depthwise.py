"""Inner loops of depthwise convolutions of any window, shared by the layers of `weights: small`: all channels of one,
two or four neighbouring outputs, then the next ones in the row.

Activations lie channel by channel in lines of words, each the int16 of two rows of the image, one above the other: the
lines from the window's first row on hold the rows that one or two rows of outputs see (two only with stride 1). SMLAD
multiplies two rows at once, so that a column of 3 taps takes two instructions, one of 5 three and one of 7 four.

A channel's record: for each column of the window the weights of rows 0 and 1, of rows 1 and 2 and so on (as two int16;
a window of one row: that weight alone), then bias, multiplier and right shift less one; or, in a layer with a channel
that has no right shift, bias, multiplier, addend, right shift and mask. Scaling as in assembly/dot.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from stages.firmware.assembly.instructions import (
    Instruction,
    add,
    add_constant,
    compare,
    function_text,
    limits_suffix,
    lines_of,
    load,
    shift_left,
    store_byte,
    store_byte_at,
)
from stages.firmware.assembly.row_pairs import Order, column_products, column_words
from stages.firmware.assembly.scaling import scaled_and_limited
from stages.firmware.assembly.schedule import Fit, fitted

MOST_LINES = 4  # pointers that there are registers for: windows of up to 8 rows, one row of outputs, or 7, two rows
MOST_LINES_OF_TWO_COLUMNS = 3  # with four, two columns of outputs would run out of registers
# The caller's struct small_depthwise_walk, copied to the stack.
_RECORDS, _PITCH, _OUTPUTS, _ROW, _ZERO, _END, _NEXT_COLUMN, _NEXT_OUTPUT, _COUNT = (4 * slot for slot in range(9))
_FRAME_BYTES = 40


@dataclass(frozen=True)
class SmallDepthwiseShape:
    """What the code depends on."""

    height: int  # of the window
    width: int
    rows: int  # of outputs at a time: 1, or 2 with vertical stride 1
    columns: int  # of outputs at a time: 1 or 2
    stride: int  # from column to column
    step: int = 1  # from channel to channel of the output: the depth multiplier
    lowest: int = -128
    highest: int = 127
    some_unshifted: bool = False

    @property
    def name(self) -> str:
        limits = limits_suffix((self.lowest, self.highest))
        unshifted = "_unshifted" if self.some_unshifted else ""
        shape = f"{self.height}x{self.width}_{self.rows}x{self.columns}_{self.stride}_{self.step}"
        return f"small_depthwise_{shape}{limits}{unshifted}"

    @property
    def lines(self) -> int:
        """That the outputs see."""
        return (self.height + self.rows) // 2


def record_words(height: int, width: int, some_unshifted: bool) -> int:
    """Words of one channel's record."""
    return width * column_words(height) + (5 if some_unshifted else 3)


def is_possible(shape: SmallDepthwiseShape) -> bool:
    """Whether there are registers enough; wide windows at wide strides with limits of their own may lack some."""
    return shape.lines <= MOST_LINES and _loop(shape) is not None


def _lines(shape: SmallDepthwiseShape) -> list[str]:
    """In the loop r0 is the record, r1 the output, r2 and on the lines."""
    return [f"r{2 + line}" for line in range(shape.lines)]


@cache
def _loop(shape: SmallDepthwiseShape) -> Fit | None:
    """The fastest way through the products, if one fits the registers."""
    lines = _lines(shape)
    free = [*(f"r{n}" for n in range(2 + shape.lines, 13)), "lr"]
    rest = [*_stores(shape), load("pitch", "sp", _PITCH), *(add(line, line, "pitch") for line in lines)]
    rest += [*add_constant("r1", "r1", shape.step)]
    rest += [*add_constant("r0", "r0", 4 * record_words(shape.height, shape.width, shape.some_unshifted))]
    rest += [load("end", "sp", _END), compare("r0", "end")]
    fits = (fitted([*_products(shape, lines, order), *rest], free, {}) for order in _orders(shape))
    return min((fit for fit in fits if fit), key=lambda fit: fit.cycles, default=None)


@cache
def small_depthwise_function(shape: SmallDepthwiseShape) -> str:
    """void name(const int32_t *const *lines, int8_t *y, const struct small_depthwise_walk *walk)"""
    best = _loop(shape)
    assert best is not None, f"{shape}: too few registers; ask `is_possible` first"
    lines = _lines(shape)
    body = [f"    sub sp, #{_FRAME_BYTES}", "    ldmia r2, {r3-r11}", "    stmia sp, {r3-r11}"]
    body += [f"    ldr {line}, [r0, #{4 * number}]" for number, line in enumerate(lines)]
    body += [f"    ldr r0, [sp, #{_RECORDS}]", "    .p2align 3", "1:"]
    body += lines_of(best.code)
    body += ["    bne.w 1b", f"    ldr r12, [sp, #{_NEXT_COLUMN}]", f"    ldr lr, [sp, #{_NEXT_OUTPUT}]"]
    body += [f"    ldr r0, [sp, #{_RECORDS}]", *(f"    add {line}, r12" for line in lines), "    add r1, lr"]
    body += [f"    ldr r12, [sp, #{_COUNT}]", "    subs r12, #1", f"    str r12, [sp, #{_COUNT}]", "    bne.w 1b"]
    body += [f"    add sp, #{_FRAME_BYTES}", "    pop {r4-r11, pc}"]
    title = f"{shape.height}x{shape.width} depthwise, {shape.rows}x{shape.columns} outputs, every channel"
    return function_text(title, shape.name, body)


def _orders(shape: SmallDepthwiseShape) -> Iterator[Order]:
    """Output by output, the first can be scaled while the second is summed; tap by tap, they share the weights."""
    outputs, taps = range(shape.columns), range(shape.width)
    by_output = tuple((output, tap) for output in outputs for tap in taps)
    yield Order(by_output)
    if shape.columns == 2:
        yield Order(by_output, activations_again=True)
        columns = range(shape.stride + shape.width)
        places = ((output, column - output * shape.stride) for column in columns for output in outputs)
        yield Order(tuple((output, tap) for output, tap in places if tap in taps))
        yield Order(tuple((output, tap) for tap in taps for output in outputs), weights_again=False)


def _products(shape: SmallDepthwiseShape, lines: list[str], order: Order) -> Iterator[Instruction]:
    """sum{row}{column} of every output."""

    def load_of(x: str, line: int, column: int) -> Instruction:
        return load(x, lines[line], 4 * column)

    return column_products((shape.height, shape.width), (1, shape.stride), shape.rows, order, load_of)


def _stores(shape: SmallDepthwiseShape) -> Iterator[Instruction]:
    at = 4 * column_words(shape.height) * shape.width
    yield load("m", "r0", at + 4)
    if shape.some_unshifted:
        yield from (load("addend", "r0", at + 8), load("shift", "r0", at + 12), load("mask", "r0", at + 16))
    else:
        yield from (load("zero", "sp", _ZERO), load("shift", "r0", at + 8), shift_left("addend", "zero", "shift"))
    outputs = [(row, column) for column in range(shape.columns) for row in range(shape.rows)]
    if shape.rows == 2:
        yield load("row", "sp", _ROW)
        yield add("below", "r1", "row")
    if shape.columns == 2:
        yield load("outputs", "sp", _OUTPUTS)
    for row, column in outputs:
        scaling = ("m", "addend", "shift", "mask" if shape.some_unshifted else "")
        value, line = f"t{row}{column}", "r1" if row == 0 else "below"
        yield from scaled_and_limited(value, f"sum{row}{column}", scaling, (shape.lowest, shape.highest))
        yield store_byte(value, line) if column == 0 else store_byte_at(value, line, "outputs")
