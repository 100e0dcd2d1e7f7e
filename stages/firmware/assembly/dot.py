"""Inner loop of convolutions and FULLY_CONNECTED: pixels of int16 activations times four output channels.

A block of weights serves four output channels: their doubled biases, their multipliers, their right shifts less one (a
byte each), then their weights, two int16 a word, for each pair of taps the four channels in turn. One or two pixels run
at a time: with two, SMLAD keeps the multiplier busy in every cycle and six loads in eight cycles feed it. Activations
lie in lines of equal pitch, of which a pixel takes `pairs` words from each. int8 weights (a word holds taps 0, 2, 1, 3
of a channel) cost a ninth cycle and are half as long; their sums are doubled at the end.

Scaling (TensorFlow Lite Micro's double rounding in five instructions): weights and bias are doubled, so that
SMMLAR gives the rounding doubling high product, plus half of the last place and the zero point, which together are
2 * zero point + 1 shifted left by one less than the right shift; adding the sign makes ties go away from zero; then
shift, saturate (which shifts once more), store. A block in which a channel has no right shift, so that its ties go
upwards, holds for each channel multiplier, addend, right shift and a mask of the sign instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from stages.firmware.assembly.instructions import (
    Instruction,
    add,
    add_constant,
    add_sign,
    allocated,
    and_sign,
    count_down,
    function_text,
    limited,
    limits_suffix,
    lines_of,
    load,
    load_byte,
    load_many,
    move,
    multiply,
    saturate,
    shift_left,
    shift_right,
    store,
    store_byte,
    widen,
)
from stages.firmware.assembly.schedule import fitted, loop_cycles, scheduled

CHANNELS = 4  # of a block
_SCALING_WORDS = 4  # with unshifted channels: multiplier, addend, right shift, -1 where that is not 0
_MOST_UNROLLED_PAIRS = 80  # 4.5 KB of code; the instruction cache has 16 KB
_LARGEST_OFFSET = 4095 - 8
ACCUMULATORS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
PIXELS, WEIGHTS = ("r2", "r3"), ("r12", "lr")  # of two pixels, and of two channels at a time


@dataclass(frozen=True)
class Frame:
    """Where the arguments lie on the stack, below the saved registers."""

    x: int
    block: int
    y: int
    outputs: int
    zero: int
    count: int
    bytes_: int
    group: int | None = None  # bytes from pixels to the next ones, where the code does not know them
    weights: int | None = None  # where they do not follow the block's header


_FRAME = Frame(x=0, block=4, y=8, outputs=12, zero=16, count=32 + 36, bytes_=32)  # count: above nine saved registers
_LINES, _PARTS = 20, 24  # counters


@dataclass(frozen=True)
class DotShape:
    """What the code of a dot product depends on."""

    pixels: int  # at a time: 1 or 2
    lines: int
    pairs: int  # of int16 in a line
    pitch_bytes: int  # from line to line
    pixel_bytes: int  # from pixel to pixel
    lowest: int = -128  # of the output, after a fused activation
    highest: int = 127
    some_unshifted: bool = False  # a channel with right shift 0, whose ties go upwards
    weight_bytes: int = 2  # int16 pairs; 1: int8, four taps a word
    looped: bool = False  # see assembly/dot_loop.py; all other sizes are then 0 here

    @property
    def name(self) -> str:
        limits = limits_suffix((self.lowest, self.highest))
        sizes = f"_{self.lines}_{self.pairs}_{self.pitch_bytes}_{self.pixel_bytes}"
        kind = "dot_loop" if self.looped else "dot" if self.weight_bytes == 2 else "dot8"
        shape = f"{kind}_{self.pixels}x{CHANNELS}{'' if self.looped else sizes}"
        return f"{shape}{limits}{'_unshifted' if self.some_unshifted else ''}"


def header_words(some_unshifted: bool) -> int:
    """Of a block, before its weights."""
    return CHANNELS * (1 + _SCALING_WORDS) if some_unshifted else 2 * CHANNELS + 1


@cache
def dot_function(shape: DotShape) -> str:
    """void name(const int16_t *x, const int32_t *block, int8_t *y, const struct fast_dot *dot, int32_t count)"""
    unroll_lines = shape.lines * shape.pairs <= _MOST_UNROLLED_PAIRS
    parts = 1 if unroll_lines else -(-shape.pairs // _MOST_UNROLLED_PAIRS)
    part_pairs = shape.pairs // parts // 2 * 2 if parts > 1 else shape.pairs
    rest_pairs = shape.pairs - parts * part_pairs
    body = [
        f"    sub sp, #{_FRAME.bytes_}",
        "    strd r0, r1, [sp]",
        "    ldrd r3, r4, [r3]",  # outputs and 2 * zero point + 1
        "    strd r2, r3, [sp, #8]",
        f"    str r4, [sp, #{_FRAME.zero}]",
        "    .p2align 3",
        "1:",
    ]
    body += lines_of(scheduled(start_of_pixels(shape, _FRAME)))
    if unroll_lines:
        taps = [(line * shape.pitch_bytes, shape.pairs) for line in range(shape.lines)]
        body += lines_of(_products(shape, taps))
    else:
        body += _counter(_LINES, shape.lines) if shape.lines > 1 else []
        body += ["2:"] if shape.lines > 1 else []
        body += _counter(_PARTS, parts) if parts > 1 else []
        body += ["3:"] if parts > 1 else []
        body += lines_of(_products(shape, [(0, part_pairs)]))
        body += lines_of(
            [*add_constant("r0", "r0", 4 * part_pairs), *add_constant("r1", "r1", _block_bytes(shape, part_pairs))]
        )
        body += _repeat(_PARTS, "3b") if parts > 1 else []
        if rest_pairs:
            body += lines_of(_products(shape, [(0, rest_pairs)]))
            body += lines_of(add_constant("r1", "r1", _block_bytes(shape, rest_pairs)))
        if shape.lines > 1:
            body += lines_of(add_constant("r0", "r0", shape.pitch_bytes - 4 * parts * part_pairs))
            body += _repeat(_LINES, "2b")
    body += lines_of(end_of_pixels(shape, _FRAME))
    body += ["    bne.w 1b", f"    add sp, #{_FRAME.bytes_}", "    pop {r4-r11, pc}"]
    title = f"{shape.pixels} pixel(s) x {CHANNELS} channels, {shape.lines} line(s) of {shape.pairs} pairs of taps"
    return function_text(title, shape.name, body)


def _block_bytes(shape: DotShape, pairs: int) -> int:
    """Of the weights for so many pairs of taps of a line; int8 weights take a word for each two pairs begun."""
    return 4 * CHANNELS * (pairs if shape.weight_bytes == 2 else -(-pairs // 2))


def _counter(slot: int, count: int) -> list[str]:
    return [f"    mov r2, #{count}", f"    str r2, [sp, #{slot}]"]


def _repeat(slot: int, label: str) -> list[str]:
    return [f"    ldr r2, [sp, #{slot}]", "    subs r2, #1", f"    str r2, [sp, #{slot}]", f"    bne.w {label}"]


def start_of_pixels(shape: DotShape, frame: Frame) -> list[Instruction]:
    """The accumulators begin with the biases; r0 at the pixel, r1 at the weights."""
    first = list(ACCUMULATORS[:CHANNELS])
    code = [load("r1", "sp", frame.block), load_many("r1", first), load("r0", "sp", frame.x)]
    behind_header = add_constant("r1", "r1", 4 * (header_words(shape.some_unshifted) - CHANNELS))
    code += behind_header if frame.weights is None else [load("r1", "sp", frame.weights)]
    if shape.pixels == 2:
        code += [move(b, a) for a, b in zip(first, ACCUMULATORS[CHANNELS:], strict=True)]
    return code


def _products(shape: DotShape, taps: list[tuple[int, int]]) -> list[Instruction]:
    """All products of the lines given by (offset, pairs); r0 and r1 are as before at the end."""
    words = [offset + 4 * pair for offset, pairs in taps for pair in range(pairs)]
    if shape.weight_bytes == 1:
        halves = []
        for line, (offset, pairs) in enumerate(taps):
            start = line * _block_bytes(shape, pairs)
            halves += [(offset + 4 * p, start + 4 * CHANNELS * (p // 2), 8 * (p % 2)) for p in range(pairs)]
        return (_two_pixels_int8 if shape.pixels == 2 else _one_pixel_int8)(halves, shape.pixel_bytes)
    return (_two_pixels if shape.pixels == 2 else _one_pixel)(words, shape.pixel_bytes)


class _Base:
    """A pointer that is moved on where an offset gets too large for a load."""

    def __init__(self, register: str) -> None:
        self.register = register
        self.moved = 0

    def load(self, into: str, offset: int) -> Iterator[Instruction]:
        if not 0 <= offset - self.moved <= _LARGEST_OFFSET:
            yield from add_constant(self.register, self.register, offset - self.moved)
            self.moved = offset
        yield load(into, self.register, offset - self.moved)

    def back(self) -> list[Instruction]:
        return add_constant(self.register, self.register, -self.moved)


def _two_pixels(words: list[int], pixel_bytes: int) -> list[Instruction]:
    """Eight products in eight cycles; each load stands two cycles before its first use."""
    x, w = _Base("r0"), _Base("r1")
    (a, b), (u, v) = PIXELS, WEIGHTS
    near, far = ACCUMULATORS[:CHANNELS], ACCUMULATORS[CHANNELS:]
    code = [*x.load(a, words[0]), *w.load(u, 0), *x.load(b, words[0] + pixel_bytes)]

    def product(pixel: str, weight: str, accumulator: str) -> None:
        code.append(multiply("smlad", accumulator, pixel, weight, accumulator))

    for index in range(len(words)):
        at, following = 16 * index, words[index + 1 : index + 2]
        product(a, u, near[0])
        code += w.load(v, at + 4)
        product(b, u, far[0])
        code += w.load(u, at + 8)
        product(a, v, near[1])
        product(b, v, far[1])
        code += w.load(v, at + 12)
        product(a, u, near[2])
        product(a, v, near[3])
        for offset in following:
            code += x.load(a, offset)
        product(b, u, far[2])
        if following:
            code += w.load(u, at + 16)
        product(b, v, far[3])
        for offset in following:
            code += x.load(b, offset + pixel_bytes)
    return [*code, *x.back(), *w.back()]


def _one_pixel(words: list[int], _pixel_bytes: int) -> list[Instruction]:
    """Four products and five loads in five cycles; loads run four to five products ahead."""
    x, w = _Base("r0"), _Base("r1")
    values = ("r2", "r3")
    pool = (*ACCUMULATORS[CHANNELS:], "r12", "lr")
    code: list[Instruction] = []
    loads: list[tuple[str, int, int]] = []  # register, pair, channel (-1: the pixel)
    turn = 0
    for index in range(len(words)):
        loads.append((values[index % 2], index, -1))
        for channel in range(CHANNELS):
            loads.append((pool[turn % len(pool)], index, channel))
            turn += 1
    products = [entry for entry in loads if entry[2] >= 0]
    position = 0

    def issue_load() -> None:
        nonlocal position
        if position < len(loads):
            register, index, channel = loads[position]
            code.extend(x.load(register, words[index]) if channel < 0 else w.load(register, 16 * index + 4 * channel))
            position += 1

    for _ in range(1 + CHANNELS):
        issue_load()
    for register, index, channel in products:
        accumulator = ACCUMULATORS[channel]
        code.append(multiply("smlad", accumulator, values[index % 2], register, accumulator))
        issue_load()
        if channel == CHANNELS - 1:
            issue_load()
    return [*code, *x.back(), *w.back()]


def _two_pixels_int8(halves: list[tuple[int, int, int]], pixel_bytes: int) -> list[Instruction]:
    """Eight products in nine cycles: a word of weights is loaded for each pair of taps it holds, and widened.

    `halves`: where the pixel's pair and the first channel's weights lie, and by how many bits to rotate these.
    """
    x, w = _Base("r0"), _Base("r1")
    (a, b), (f, g) = PIXELS, WEIGHTS
    code = [*x.load(a, halves[0][0]), *w.load(f, halves[0][1]), *x.load(b, halves[0][0] + pixel_bytes)]
    for index, (_, at, turn) in enumerate(halves):
        weights = [[*w.load(register, at + 4 * n)] for n, register in enumerate((g, f, g), start=1)]
        following: list[list[Instruction]] = [[], [], []]
        for offset, start, _ in halves[index + 1 : index + 2]:
            following = [[*x.load(a, offset)], [*w.load(g, start)], [*x.load(b, offset + pixel_bytes)]]
        code += eight_products((f, g), turn, weights, following)
        f, g = g, f
    return [*code, *x.back(), *w.back()]


def eight_products(
    registers: tuple[str, str], turn: int, weights: list[list[Instruction]], following: list[list[Instruction]]
) -> list[Instruction]:
    """A pair of taps of two pixels and four channels; the first channel's weights are in the first of `registers`.

    `weights` loads those of the other channels; `following` what the next pair begins with: the first pixel, weights
    into the second of `registers`, the second pixel.
    """
    (a, b), (f, g) = PIXELS, registers
    near, far = ACCUMULATORS[:CHANNELS], ACCUMULATORS[CHANNELS:]

    def product(pixel: str, weight: str, accumulator: str) -> Instruction:
        return multiply("smlad", accumulator, pixel, weight, accumulator)

    code = [widen(f, f, turn), *weights[0], widen(g, g, turn), product(a, f, near[0]), product(b, f, far[0])]
    code += [*weights[1], widen(f, f, turn), product(a, g, near[1]), product(b, g, far[1])]
    code += [*weights[2], widen(g, g, turn), product(a, f, near[2]), product(a, g, near[3])]
    return [*code, *following[0], product(b, g, far[3]), *following[1], product(b, f, far[2]), *following[2]]


def _one_pixel_int8(halves: list[tuple[int, int, int]], _pixel_bytes: int) -> list[Instruction]:
    """Four products in four cycles and their loads in two more: widening stands one product ahead and pairs with it."""
    x, w = _Base("r0"), _Base("r1")
    values, raw, wide = ("r2", "r3"), ACCUMULATORS[CHANNELS:], ("r12", "lr")
    code: list[Instruction] = []
    for index, (offset, _, _) in enumerate(halves[:2]):
        code += x.load(values[index], offset)
    for channel in range(CHANNELS):
        code += w.load(raw[channel], halves[0][1] + 4 * channel)
    waiting: list[Instruction] = []  # the last product, and what may be loaded only behind it
    for index, (_, _, turn) in enumerate(halves):
        value = values[index % 2]
        for channel, accumulator in enumerate(ACCUMULATORS[:CHANNELS]):
            code += [widen(wide[channel % 2], raw[channel], turn), *waiting]
            waiting = [multiply("smlad", accumulator, value, wide[channel % 2], accumulator)]
            for _, start, next_turn in halves[index + 1 : index + 2]:
                if next_turn == 0 and channel % 2 == 1:  # two loads from different banks go together
                    code += w.load(raw[channel - 1], start + 4 * channel - 4)
                    code += w.load(raw[channel], start + 4 * channel)
        for offset, _, _ in halves[index + 2 : index + 3]:
            waiting += x.load(value, offset)
    return [*code, *waiting, *x.back(), *w.back()]


def scaled_and_limited(
    into: str, total: str, scaling: tuple[str, str, str, str], limits: tuple[int, int]
) -> list[Instruction]:
    """int8 from a doubled sum, which is lost; `scaling` are registers: multiplier, addend, shift, mask or ''.

    Without a mask the shift is one less than the right shift.
    """
    multiplier, addend, shift, mask = scaling
    code = [multiply("smmlar", into, total, multiplier, addend)]
    code += [and_sign(total, mask, total), add(into, into, total)] if mask else [add_sign(into, into, total)]
    code += [shift_right(into, into, shift), saturate(into, into, 0 if mask else 1)]
    return code + limited(into, limits)


def _scaling(shape: DotShape, channel: int) -> tuple[list[Instruction], tuple[str, str, str, str]]:
    """Loads of one channel's scaling, and the registers that hold it."""
    names = (f"m{channel}", f"add{channel}", f"shift{channel}", f"mask{channel}" if shape.some_unshifted else "")
    if shape.some_unshifted:
        at = 4 * (CHANNELS + _SCALING_WORDS * channel)
        return [load(name, "block", at + 4 * word) for word, name in enumerate(names)], names
    code = [load(names[0], "block", 4 * (CHANNELS + channel)), load_byte(names[2], "block", 8 * CHANNELS + channel)]
    return [*code, shift_left(names[1], "zero", names[2])], names


def end_of_pixels(shape: DotShape, frame: Frame) -> list[Instruction]:
    """Scale and store the outputs, go on to the next pixels; the flags say whether there are any."""
    pixels = range(shape.pixels)
    sums = {f"sum{p}{c}": ACCUMULATORS[4 * p + c] for p in pixels for c in range(CHANNELS)}
    code = [load("block", "sp", frame.block)]
    code += [] if shape.some_unshifted else [load("zero", "sp", frame.zero)]
    for c in range(CHANNELS):
        loads, scaling = _scaling(shape, c)
        code += loads
        for p in pixels:
            code += [add(f"sum{p}{c}", f"sum{p}{c}", f"sum{p}{c}")] if shape.weight_bytes == 1 else []
            code += scaled_and_limited(f"t{p}{c}", f"sum{p}{c}", scaling, (shape.lowest, shape.highest))
        if c == 0:
            code.append(load("y", "sp", frame.y))
            code += [load("step", "sp", frame.outputs), add("y1", "y", "step")] if shape.pixels == 2 else []
        code += [store_byte(f"t{p}{c}", "y" if p == 0 else "y1", c) for p in pixels]
    code += [load("outputs", "sp", frame.outputs), add("next", "y1" if shape.pixels == 2 else "y", "outputs")]
    code += [store("next", "sp", frame.y)]
    code += [load("x", "sp", frame.x), *_next_pixels(shape, frame), store("x", "sp", frame.x)]
    code += [load("count", "sp", frame.count), count_down("count")]
    code += [store("count", "sp", frame.count)]
    free = ["r0", "r1", "r2", "r3", "r12", "lr"] + ([] if shape.pixels == 2 else list(ACCUMULATORS[CHANNELS:]))
    start = scheduled(start_of_pixels(shape, frame))
    fit = fitted(code, free, sums, start)
    assert fit is not None
    greedy = scheduled(allocated(code, free, sums))
    return list(fit.code) if fit.cycles <= loop_cycles([*greedy, *start]) else greedy


def _next_pixels(shape: DotShape, frame: Frame) -> list[Instruction]:
    if frame.group is not None:
        return [load("group", "sp", frame.group), add("x", "x", "group")]
    return add_constant("x", "x", shape.pixels * shape.pixel_bytes)
