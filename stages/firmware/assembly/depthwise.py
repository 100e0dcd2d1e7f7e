"""Inner loops of depthwise convolutions of any window: one or two rows of outputs, channel by channel.

Activations lie in lines of words, each the int16 of two rows of the image, one above the other; a line holds its
columns, a column its channels. SMLAD multiplies two rows at once, so that a column of 3 taps takes two instructions,
one of 5 three and one of 7 four. A channel's row of outputs is made in groups of two columns, in straight code where it
is short, else in a loop; an odd last column follows.

A 3x3 window takes six products and one SMMLAR an output, and a store, which does not issue beside a product: eight
cycles for nine MACs at least, and 58 instructions for four outputs, two a cycle.

A channel's record: for each column of the window the weights of rows 0 and 1, of rows 1 and 2 and so on (as two int16;
a window of one row: that weight alone), then bias, multiplier, addend and right shift, and, where wanted, a mask of the
sign (see scaling.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from stages.firmware.assembly.dot import Requantisation
from stages.firmware.assembly.instructions import (
    Instruction,
    add_constant,
    compare,
    count_down,
    function_text,
    is_physical,
    lines_of,
    load,
    multiply,
    store_byte,
)
from stages.firmware.assembly.scaling import signed_scaling
from stages.firmware.assembly.schedule import Fit, fitted

_LARGEST_OFFSET = 4095
MOST_BASES = 3  # pointers to lines
_MOST_STRAIGHT_TAPS = 30  # of the groups that follow one another in straight code, each counted once
_GROUP = 2  # columns
_RECORD, _OUTPUT, _FIRST_BASE = "r0", "r1", 2
_REGISTERS = [*(f"r{n}" for n in range(13)), "lr"]
_PLACE = re.compile(r"@([xy])(\d+):(\d+)")


@dataclass(frozen=True)
class DepthwiseShape:
    """What the code depends on."""

    height: int  # of the window
    width: int
    stride_y: int
    stride_x: int
    rows: int  # of outputs at a time: 1 or 2
    columns: int  # of outputs side by side
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


def column_words(height: int) -> int:
    """Words of weights for one column of the window."""
    return max(1, height - 1)


def record_words(height: int, width: int, is_masked: bool) -> int:
    """Words of one channel's record."""
    return width * column_words(height) + (5 if is_masked else 4)


@dataclass(frozen=True)
class _Walk:
    """How the code goes along a row."""

    looped: int  # rounds
    round_groups: int  # of two columns each
    tail: tuple[int, ...]  # columns of the groups behind them
    bases: tuple[int, ...]  # for each line, which pointer it is reached from
    firsts: tuple[int, ...]  # the line where each of them points
    has_below: bool  # a pointer to the second row of outputs

    @property
    def round_columns(self) -> int:
        return _GROUP * self.round_groups


def _walks(shape: DepthwiseShape) -> Iterator[_Walk]:
    """In straight code if that is short, else in rounds of two groups or of one; where offsets reach."""
    groups, odd = divmod(shape.columns, _GROUP)
    most = max(1, _MOST_STRAIGHT_TAPS // (shape.height * shape.width))
    if groups <= most:
        yield from _reaching(shape, 0, 0, (_GROUP,) * groups + (1,) * odd)
    for size in (2, 1):
        if size <= most and groups // size > 1:
            yield from _reaching(shape, groups // size, size, (_GROUP,) * (groups % size) + (1,) * odd)


def _reaching(shape: DepthwiseShape, looped: int, round_groups: int, tail: tuple[int, ...]) -> Iterator[_Walk]:
    at_once = max(_GROUP * round_groups, sum(tail), 1)
    span = ((at_once - 1) * shape.stride_x + shape.width - 1) * shape.pixel_bytes
    bases, firsts = [], [0]
    for line in range(shape.lines):
        if line and ((line - firsts[-1]) * shape.line_bytes + span > _LARGEST_OFFSET or not shape.line_bytes):
            firsts.append(line)
        bases.append(len(firsts) - 1)
    last_column = (at_once - 1) * shape.outputs
    if span > _LARGEST_OFFSET or last_column > _LARGEST_OFFSET or len(firsts) > MOST_BASES:
        return
    has_below = shape.rows == 2 and shape.row_outputs + last_column > _LARGEST_OFFSET
    yield _Walk(looped, round_groups, tail, tuple(bases), tuple(firsts), has_below)


@dataclass(frozen=True)
class _Key:
    """All that the order of instructions of neighbouring groups depends on; offsets come later."""

    height: int
    width: int
    stride_y: int
    stride_x: int
    rows: int
    groups: tuple[int, ...]  # columns of each
    odd_pixels: bool  # words: neighbouring columns then lie in different banks
    odd_lines: bool
    bases: tuple[int, ...]
    registers: int  # of pointers and counters
    below: str  # the register that the second row of outputs is reached from
    scaling: Requantisation


@cache
def _fit(key: _Key) -> Fit | None:
    """The fastest way through the products, if one fits the registers."""
    free = _REGISTERS[key.registers :]
    for is_quick in (True, False):  # all ways only where registers are short
        fits = [fitted(code, free, {}, is_quick=is_quick) for code in _codes(key)]
        if any(fits):
            break
    return min((fit for fit in fits if fit), key=lambda fit: fit.cycles, default=None)


def _codes(key: _Key) -> Iterator[list[Instruction]]:
    """The groups, one after the other, each in the same way."""
    ways = [_orders(key, columns) for columns in key.groups]
    for number in range(max(len(each) for each in ways)):
        code: list[Instruction] = []
        column = 0
        for group, (columns, orders) in enumerate(zip(key.groups, ways, strict=True)):
            own = [*_products(key, orders[number % len(orders)], column), *_stores(key, columns, column)]
            code += (_of_group(one, group) for one in own)
            column += columns
        yield code


def _of_group(one: Instruction, group: int) -> Instruction:
    names = (name if is_physical(name) else f"{name}_{group}" for name in one.registers)
    return replace(one, registers=tuple(names))


@dataclass(frozen=True)
class Order:
    """A way to go through the products; what is loaded again needs no register in between."""

    products: tuple[tuple[int, int], ...]  # output column, tap
    activations_again: bool = False  # for each output
    weights_again: bool = True


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
    words = column_words(key.height)
    yield load("bias", _RECORD, 4 * words * key.width)
    begun: set[str] = set()
    loaded: set[str] = set()
    for output, tap in order.products:
        column = output * key.stride_x + tap
        for line, base in enumerate(key.bases):
            x = f"x{column}_{line}" + (f"_{output}" if order.activations_again else "")
            if x not in loaded and any(_product(key.height, 2 * line - r * key.stride_y) for r in range(key.rows)):
                loaded.add(x)
                yield _load_placed(key, x, base, line, first_column * key.stride_x + column)
            for row in range(key.rows):
                found = _product(key.height, 2 * line - row * key.stride_y)
                if found is None:
                    continue
                name, pair = found
                weights, total = f"w{tap}_{pair}" + (f"_{output}" if order.weights_again else ""), f"sum{row}{output}"
                if weights not in loaded:
                    loaded.add(weights)
                    yield load(weights, _RECORD, 4 * (words * tap + pair))
                yield multiply(name, total, x, weights, total if total in begun else "bias")
                begun.add(total)


def _load_placed(key: _Key, x: str, base: int, line: int, column: int) -> Instruction:
    """An offset that is not known yet; the bank is, as far as it differs from those beside it."""
    bank = (line * key.odd_lines + column * key.odd_pixels) % 2
    found = load(x, f"r{_FIRST_BASE + base}", 4 * bank)
    return replace(found, text=f"ldr {{0}}, [{{1}}, @x{line}:{column}]")


def _product(height: int, first: int) -> tuple[str, int] | None:
    """Which instruction multiplies a word whose lower half meets row `first` of the window, and with which weights."""
    if 0 <= first < height - 1:
        return "smlad", first
    if first == -1:
        return "smlatb", 0
    if first == height - 1:
        return ("smlabt", first - 1) if height > 1 else ("smlabb", 0)
    return None


def _stores(key: _Key, columns: int, first_column: int) -> Iterator[Instruction]:
    at = 4 * column_words(key.height) * key.width + 4
    scaling = ("m", "addend", "shift", "mask" if key.scaling.is_masked else "")
    yield from (load(name, _RECORD, at + 4 * word) for word, name in enumerate(scaling) if name)
    for column in range(columns):
        for row in range(key.rows):
            total = f"sum{row}{column}"
            between = f"t{row}{column}" if key.scaling.is_signed else ""
            yield from signed_scaling(total, between, scaling, (key.scaling.lowest, key.scaling.highest))
            stored = store_byte(total, _OUTPUT if row == 0 else key.below)
            yield replace(stored, text=f"strb {{0}}, [{{1}}, @y{row}:{first_column + column}]")


class _Code:
    """The function of a shape, if there are registers enough."""

    def __init__(self, shape: DepthwiseShape, walk: _Walk) -> None:
        self.shape, self.walk = shape, walk
        self.bases = [f"r{_FIRST_BASE + n}" for n in range(len(walk.firsts))]
        names = iter(_REGISTERS[_FIRST_BASE + len(self.bases) :])
        self.below = next(names) if walk.has_below else _OUTPUT
        self.counter = next(names) if walk.looped else ""
        self.taken = _FIRST_BASE + len(self.bases) + walk.has_below + bool(walk.looped)
        self.runs = [groups for groups in ((_GROUP,) * walk.round_groups, walk.tail) if groups]
        self.fits = {groups: _fit(self._key(groups)) for groups in self.runs}

    def _key(self, groups: tuple[int, ...]) -> _Key:
        shape = self.shape
        odd = shape.pixel_bytes // 4 % 2 == 1, shape.line_bytes // 4 % 2 == 1
        window = (shape.height, shape.width, shape.stride_y, shape.stride_x, shape.rows)
        return _Key(*window, groups, *odd, self.walk.bases, self.taken, self.below, shape.scaling)

    @property
    def cycles(self) -> float | None:
        """Of a row of a channel, about; None if it does not fit."""
        found = [self.fits[groups] for groups in self.runs]
        if any(fit is None for fit in found):
            return None
        rounds = [self.walk.looped, 1][-len(found) :] if self.walk.tail else [self.walk.looped]
        around = self.walk.looped * (2 + len(self.bases) / 2)
        return around + sum(n * fit.cycles for n, fit in zip(rounds, found, strict=True) if fit)

    def text(self) -> str:
        shape, walk = self.shape, self.walk
        body = ["    sub sp, #8", "    str r3, [sp]", "    mov r12, r0", "    mov r0, r2"]
        body += [f"    ldr {base}, [r12, #{4 * line}]" for base, line in zip(self.bases, walk.firsts, strict=True)]
        body += lines_of(add_constant(self.below, _OUTPUT, shape.row_outputs)) if walk.has_below else []
        body += ["    .p2align 3", "1:"]
        if walk.looped:
            body += [f"    mov {self.counter}, #{walk.looped}", "    .p2align 3", "2:"]
            body += self._run((_GROUP,) * walk.round_groups)
            body += [*self._advance(walk.round_columns), *lines_of([count_down(self.counter)]), "    bne.w 2b"]
        body += self._run(walk.tail) if walk.tail else []
        body += self._next_channel(walk.looped * walk.round_columns)
        body += ["    bne.w 1b", "    add sp, #8", "    pop {r4-r11, pc}"]
        title = f"{shape.height}x{shape.width} depthwise, {shape.rows} row(s) of {shape.columns}, every channel"
        return function_text(title, shape.name, body)

    def _run(self, groups: tuple[int, ...]) -> list[str]:
        fit = self.fits[groups]
        assert fit is not None
        return [_PLACE.sub(lambda found: f"#{self._offset(found)}", line) for line in lines_of(fit.code)]

    def _offset(self, found: re.Match[str]) -> int:
        first, second = int(found[2]), int(found[3])
        if found[1] == "y":
            row = 0 if self.walk.has_below else first * self.shape.row_outputs
            return row + second * self.shape.outputs
        line = first - self.walk.firsts[self.walk.bases[first]]
        return line * self.shape.line_bytes + second * self.shape.pixel_bytes

    def _advance(self, columns: int) -> list[str]:
        across = columns * self.shape.stride_x * self.shape.pixel_bytes
        return self._moves(across, columns * self.shape.outputs)

    def _moves(self, across: int, outputs: int) -> list[str]:
        rows = [_OUTPUT, *([self.below] if self.walk.has_below else [])]
        code = [one for base in self.bases for one in add_constant(base, base, across)]
        return lines_of([*code, *(one for row in rows for one in add_constant(row, row, outputs))])

    def _next_channel(self, columns: int) -> list[str]:
        shape = self.shape
        across = 4 - columns * shape.stride_x * shape.pixel_bytes
        body = [f"    ldr {_REGISTERS[-1]}, [sp]"]
        body += lines_of(add_constant(_RECORD, _RECORD, 4 * record_words(*self._record)))
        body += self._moves(across, shape.step - columns * shape.outputs)
        return body + lines_of([compare(_RECORD, _REGISTERS[-1])])

    @property
    def _record(self) -> tuple[int, int, bool]:
        return self.shape.height, self.shape.width, self.shape.scaling.is_masked


@cache
def _best(shape: DepthwiseShape) -> _Code | None:
    codes = [_Code(shape, walk) for walk in _walks(shape)]
    return min((code for code in codes if code.cycles is not None), key=lambda code: code.cycles or 0, default=None)


def is_possible(shape: DepthwiseShape) -> bool:
    """Whether there are registers enough, and whether offsets reach."""
    return _best(shape) is not None


@cache
def depthwise_function(shape: DepthwiseShape) -> str:
    """void name(const int32_t *const *lines, int8_t *y, const int32_t *records, const int32_t *end)

    All channels of a row of outputs, or of two; `end` is where the records end.
    """
    best = _best(shape)
    assert best is not None, f"{shape}: ask `is_possible` first"
    return best.text()
