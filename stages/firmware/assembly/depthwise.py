"""Inner loops of depthwise convolutions of any window: a few columns of one or two rows of outputs, channel by channel.

Activations lie in lines of words, each the int16 of two rows of the image, one above the other; a line holds its
columns, a column its channels. SMLAD multiplies two rows at once, so that a column of 3 taps takes two instructions,
one of 5 three and one of 7 four. A channel's outputs are made in groups of two columns, in straight code; an odd last
column follows. The last group's sums are narrowed and stored among the products of the next channel. Before the first
channel that stores whatever there is, in places of the last one, which come right at the end.

A 3x3 window takes six products and one SMMLA an output, and a store, which does not issue beside a product: eight
cycles for nine MACs at least, and 53 instructions for four outputs, two a cycle.

A channel's record: for each column of the window the weights of rows 0 and 1, of rows 1 and 2 and so on (as two int16;
a window of one row: that weight alone), then bias, multiplier and addend, unless one shift serves all channels the
right shift, and, where wanted, a mask of the sign (see scaling.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from stages.firmware.assembly.dot import Requantisation
from stages.firmware.assembly.instructions import (
    Instruction,
    add_constant,
    compare,
    function_text,
    is_physical,
    lines_of,
    load,
    store_byte,
)
from stages.firmware.assembly.row_pairs import Order, column_products, column_words
from stages.firmware.assembly.scaling import narrowed, rescaled
from stages.firmware.assembly.schedule import Fit, fitted, scheduled

_LARGEST_OFFSET = 4095
MOST_BASES = 3  # pointers to lines
_MOST_TAPS = 30  # of the groups that follow one another in straight code, each counted once
_GROUP = 2  # columns
_RECORD, _OUTPUT, _FIRST_BASE = "r0", "r1", 2
_REGISTERS = [*(f"r{n}" for n in range(13)), "lr"]
_PLACE = re.compile(r"@([xyz])(\d+):(\d+)")


@dataclass(frozen=True)
class DepthwiseShape:
    """What the code depends on."""

    height: int  # of the window
    width: int
    stride_y: int
    stride_x: int
    rows: int  # of outputs at a time: 1 or 2
    columns: int  # of outputs side by side, at most `most_columns`
    pixel_bytes: int  # from column to column of a line
    line_bytes: int  # from line to line; 0: lines lie anywhere
    row_outputs: int  # from row to row of the output
    outputs: int  # from column to column of the output: its channels
    step: int = 1  # from channel to channel of the output: the depth multiplier
    scaling: Requantisation = Requantisation()

    @property
    def name(self) -> str:
        window = f"{self.height}x{self.width}_{self.stride_y}x{self.stride_x}_{self.rows}x{self.columns}"
        sizes = f"{self.pixel_bytes}_{self.line_bytes}_{self.row_outputs}_{self.outputs}_{self.step}"
        return f"depthwise_{window}_{sizes}{self.scaling.name}"

    @property
    def lines(self) -> int:
        """That the outputs see."""
        return ((self.rows - 1) * self.stride_y + self.height + 1) // 2


def record_words(height: int, width: int, scaling: Requantisation) -> int:
    """Words of one channel's record."""
    return width * column_words(height) + (3 if scaling.right else 5 if scaling.is_masked else 4)


def most_columns(height: int, width: int, stride_x: int, pixel_bytes: int, outputs: int) -> int:
    """Of outputs, in one function: its code stays short, its offsets reach."""
    across = (_LARGEST_OFFSET // pixel_bytes - width + 1) // stride_x
    return max(1, min(_GROUP * max(1, _MOST_TAPS // (height * width)), across, _LARGEST_OFFSET // outputs) + 1)


@dataclass(frozen=True)
class _Key:
    """All that the order of instructions depends on; offsets come later."""

    height: int
    width: int
    stride_y: int
    stride_x: int
    rows: int
    columns: int
    step: int
    odd_pixels: bool  # words: neighbouring columns then lie in different banks
    odd_lines: bool
    bases: tuple[int, ...]  # for each line, which pointer it is reached from
    has_below: bool  # a pointer to the second row of outputs
    is_late: bool  # the last group is stored by the next channel
    scaling: Requantisation

    @property
    def groups(self) -> tuple[int, ...]:
        """Columns of each."""
        pairs, odd = divmod(self.columns, _GROUP)
        return (_GROUP,) * pairs + (1,) * odd

    @property
    def pointers(self) -> list[str]:
        """To lines."""
        return [f"r{_FIRST_BASE + n}" for n in range(self.bases[-1] + 1)]

    @property
    def below(self) -> str:
        return f"r{_FIRST_BASE + len(self.pointers)}" if self.has_below else _OUTPUT

    @property
    def free(self) -> list[str]:
        return _REGISTERS[_FIRST_BASE + len(self.pointers) + self.has_below :]

    @property
    def late(self) -> dict[tuple[int, int], str]:
        """By row and column, the registers of the outputs that the next channel stores."""
        first = self.columns - self.groups[-1]
        places = [(row, column) for column in range(first, self.columns) for row in range(self.rows)]
        return dict(zip(places, reversed(self.free), strict=False)) if self.is_late else {}


def _key(shape: DepthwiseShape) -> tuple[_Key, tuple[int, ...]] | None:
    """Also the lines that the pointers point to; None where offsets do not reach."""
    span = ((shape.columns - 1) * shape.stride_x + shape.width - 1) * shape.pixel_bytes
    bases, firsts = [], [0]
    for line in range(shape.lines):
        if line and ((line - firsts[-1]) * shape.line_bytes + span > _LARGEST_OFFSET or not shape.line_bytes):
            firsts.append(line)
        bases.append(len(firsts) - 1)
    last_column = (shape.columns - 1) * shape.outputs
    if max(span, last_column) > _LARGEST_OFFSET or len(firsts) > MOST_BASES:
        return None
    has_below = shape.rows == 2 and shape.row_outputs + last_column > _LARGEST_OFFSET
    window = (shape.height, shape.width, shape.stride_y, shape.stride_x, shape.rows, shape.columns, shape.step)
    odd = shape.pixel_bytes // 4 % 2 == 1, shape.line_bytes // 4 % 2 == 1
    is_late = shape.columns > _GROUP and shape.outputs > shape.step
    return _Key(*window, *odd, tuple(bases), has_below, is_late, shape.scaling), tuple(firsts)


@cache
def _fit(key: _Key) -> Fit | None:
    """The fastest way through the products, if one fits the registers."""
    placed = {_late_name(*place): register for place, register in key.late.items()}
    group = len(key.groups) - 1
    first = key.columns - key.groups[-1]
    kept = {f"sum{row}{column - first}_{group}": register for (row, column), register in key.late.items()}
    for is_quick in (True, False):  # all ways only where registers are short
        fits = [fitted(code, key.free, placed, kept=kept, is_quick=is_quick) for code in _codes(key)]
        if any(fits):
            break
    return min((fit for fit in fits if fit), key=lambda fit: fit.cycles, default=None)


def _late_name(row: int, column: int) -> str:
    return f"late{row}{column}"


def _codes(key: _Key) -> Iterator[list[Instruction]]:
    """The groups, one after the other, each in the same way."""
    ways = [_orders(key, columns) for columns in key.groups]
    for number in range(max(len(each) for each in ways)):
        code = [one for place in key.late for one in _late_store(key, place, _late_name(*place))]
        column = 0
        for group, (columns, orders) in enumerate(zip(key.groups, ways, strict=True)):
            own = [*_products(key, orders[number % len(orders)], column), *_stores(key, columns, column)]
            code += (_of_group(one, group) for one in own)
            column += columns
        yield [*code, *_next_channel(key)]


def _late_store(key: _Key, place: tuple[int, int], value: str) -> list[Instruction]:
    """One of the last group's outputs, when the pointers are at the next channel."""
    stored = store_byte(value, _OUTPUT if place[0] == 0 else key.below)
    stored = replace(stored, text=f"strb {{0}}, [{{1}}, @z{place[0]}:{place[1]}]")
    return [*narrowed(value, (key.scaling.lowest, key.scaling.highest), key.scaling.right), stored]


def _next_channel(key: _Key) -> list[Instruction]:
    """The flags say whether there is one."""
    moves = [(_RECORD, 4 * record_words(key.height, key.width, key.scaling)), (_OUTPUT, key.step)]
    moves += [(base, 4) for base in key.pointers] + ([(key.below, key.step)] if key.has_below else [])
    code = [one for pointer, distance in moves for one in add_constant(pointer, pointer, distance)]
    return [load("end", "sp"), *code, compare(_RECORD, "end")]


def _of_group(one: Instruction, group: int) -> Instruction:
    names = (name if is_physical(name) else f"{name}_{group}" for name in one.registers)
    return replace(one, registers=tuple(names))


def _orders(key: _Key, columns: int) -> list[Order]:
    """Output by output, the first can be scaled while the second is summed; tap by tap, they share the weights."""
    outputs, taps = range(columns), range(key.width)
    by_output = Order(tuple((output, tap) for output in outputs for tap in taps))
    if columns == 1:
        return [by_output]
    by_tap = Order(tuple((output, tap) for tap in taps for output in outputs), weights_again=False)
    return [by_output, replace(by_output, activations_again=True), by_tap]


def _products(key: _Key, order: Order, first_column: int) -> Iterator[Instruction]:
    """sum{row}{column} of every output of a group."""

    def load_of(x: str, line: int, column: int) -> Instruction:
        return _load_placed(key, x, key.bases[line], line, first_column * key.stride_x + column)

    return column_products((key.height, key.width), (key.stride_y, key.stride_x), key.rows, order, load_of)


def _load_placed(key: _Key, x: str, base: int, line: int, column: int) -> Instruction:
    """An offset that is not known yet; the bank is, as far as it differs from those beside it."""
    bank = (line * key.odd_lines + column * key.odd_pixels) % 2
    found = load(x, f"r{_FIRST_BASE + base}", 4 * bank)
    return replace(found, text=f"ldr {{0}}, [{{1}}, @x{line}:{column}]")


def _stores(key: _Key, columns: int, first_column: int) -> Iterator[Instruction]:
    at = 4 * column_words(key.height) * key.width + 4
    scaling = ("m", "addend", "" if key.scaling.right else "shift", "mask" if key.scaling.is_masked else "")
    yield from (load(name, _RECORD, at + 4 * word) for word, name in enumerate(filter(None, scaling)))
    for column in range(columns):
        for row in range(key.rows):
            total = f"sum{row}{column}"
            between = f"t{row}{column}" if key.scaling.is_signed else ""
            yield from rescaled(total, between, scaling, key.scaling.right)
            if (row, first_column + column) not in key.late:
                yield from narrowed(total, (key.scaling.lowest, key.scaling.highest), key.scaling.right)
                stored = store_byte(total, _OUTPUT if row == 0 else key.below)
                yield replace(stored, text=f"strb {{0}}, [{{1}}, @y{row}:{first_column + column}]")


class _Code:
    """The function of a shape, if offsets reach and there are registers enough."""

    def __init__(self, shape: DepthwiseShape, key: _Key, firsts: tuple[int, ...], fit: Fit) -> None:
        self.shape, self.key, self.firsts, self.fit = shape, key, firsts, fit

    def text(self) -> str:
        shape, key = self.shape, self.key
        body = ["    sub sp, #8", "    str r3, [sp]", "    mov r12, r0", "    mov r0, r2"]
        body += [f"    ldr {base}, [r12, #{4 * line}]" for base, line in zip(key.pointers, self.firsts, strict=True)]
        body += lines_of(add_constant(key.below, _OUTPUT, shape.row_outputs)) if key.has_below else []
        body += ["    .p2align 3", "1:", *self._placed(self.fit.code), "    bne.w 1b"]
        late = [one for place, register in key.late.items() for one in _late_store(key, place, register)]
        body += [*self._placed(scheduled(late)), "    add sp, #8", "    pop {r4-r11, pc}"]
        title = f"{shape.height}x{shape.width} depthwise, {shape.rows} row(s) of {shape.columns}, every channel"
        return function_text(title, shape.name, body)

    def _placed(self, code: Iterable[Instruction]) -> list[str]:
        return [_PLACE.sub(lambda found: f"#{self._offset(found)}", line) for line in lines_of(code)]

    def _offset(self, found: re.Match[str]) -> int:
        first, second = int(found[2]), int(found[3])
        if found[1] == "x":
            line = first - self.firsts[self.key.bases[first]]
            return line * self.shape.line_bytes + second * self.shape.pixel_bytes
        row = 0 if self.key.has_below else first * self.shape.row_outputs
        return row + second * self.shape.outputs - (self.shape.step if found[1] == "z" else 0)


@cache
def _best(shape: DepthwiseShape) -> _Code | None:
    found = _key(shape)
    fit = found and _fit(found[0])
    return _Code(shape, *found, fit) if found and fit else None


def is_possible(shape: DepthwiseShape) -> bool:
    """Whether there are registers enough, and whether offsets reach."""
    return _best(shape) is not None


@cache
def depthwise_function(shape: DepthwiseShape) -> str:
    """void name(const int32_t *const *lines, int8_t *y, const int32_t *records, const int32_t *end)

    All channels of some columns of a row of outputs, or of two; `end` is where the records end.
    """
    best = _best(shape)
    assert best is not None, f"{shape}: ask `is_possible` first"
    return best.text()
