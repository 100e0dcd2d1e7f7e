"""Inner loop of convolutions and FULLY_CONNECTED: pixels of int16 activations times four output channels.

A block of weights serves four output channels. Its header: their doubled biases, multipliers and addends, unless one
shift serves all of them their right shifts (a byte each), and, where wanted, masks of the sign (see scaling.py); then
their weights, two int16 a word, for each pair of taps the four channels in turn. One or two pixels run at a time: with
two, SMLAD keeps the multiplier busy in every cycle and six loads in eight cycles feed it. Activations lie in lines of
equal pitch, of which a pixel takes `pairs` words from each; the second pixel lies beside the first, or below it.
Between two groups of pixels stand 42 instructions or, with shifts and signs, up to 68; r0 and r1 stay where they are,
at the pixel and at the weights, if at all possible.

A pixel alone has `vector_function`: block after block, for weights that are read once and so come as int8. A word holds
a pair of taps of two channels, one in the low bytes and the other in the high ones: as two int16 it is 256 * high +
low. One SMLAD takes it as it is, one after SXTB16 takes the low bytes; the difference of the two sums is 256 times that
of the high ones, which must stay below 2^23. Nine instructions for eight products, where widening both would take 11.
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
    load_byte,
    multiply,
    shift_right_constant,
    store,
    store_byte,
    subtract,
    widen,
)
from stages.firmware.assembly.scaling import signed_scaling
from stages.firmware.assembly.schedule import fitted

CHANNELS = 4  # of a block
_MOST_UNROLLED_PAIRS = 160  # 9 KB of code; the instruction cache has 16 KB
_LARGEST_OFFSET = 4095 - 8
LARGEST_STORE_OFFSET = 4095
ACCUMULATORS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
_PIXELS, _WEIGHTS = ("r2", "r3"), ("r12", "lr")  # of two pixels, and of two channels at a time
_Y, _END, _LINES, _PARTS, _X, _FRAME_BYTES = 0, 4, 8, 12, 16, 24
_MULTIPLIERS, _ADDENDS, _SHIFTS, _MASKS = CHANNELS, 2 * CHANNELS, 3 * CHANNELS, 3 * CHANNELS + 1  # words of a header


@dataclass(frozen=True)
class Requantisation:
    """What the code of the end of a sum depends on."""

    lowest: int = -128  # of the output, after a fused activation
    highest: int = 127
    is_signed: bool = True  # the lowest value lies below the zero point
    is_masked: bool = False  # and a channel has no right shift, so that its ties go upwards
    right: int = 0  # shift of all channels, where one serves them; only without signs

    @property
    def name(self) -> str:
        limits = limits_suffix((self.lowest, self.highest))
        common = f"_by_{self.right}" if self.right else ""
        return f"{limits}{'' if self.is_signed else '_above'}{common}{'_masked' if self.is_masked else ''}"


@dataclass(frozen=True)
class DotShape:
    """What the code of a dot product depends on."""

    pixels: int  # at a time: 1 or 2
    lines: int
    pairs: int  # of int16 in a line
    pitch_bytes: int  # from line to line
    far_bytes: int  # from the first pixel to the second
    step_bytes: int  # to the next pixels
    far_outputs: int  # likewise
    step_outputs: int
    stored: int = CHANNELS  # channels; fewer only where a layer has fewer
    scaling: Requantisation = Requantisation()

    @property
    def name(self) -> str:
        sizes = f"{self.lines}_{self.pairs}_{self.pitch_bytes}_{self.far_bytes}_{self.step_bytes}"
        places = f"{self.far_outputs}_{self.step_outputs}"
        return f"dot_{self.pixels}x{self.stored}_{sizes}_{places}{self.scaling.name}"


@dataclass(frozen=True)
class VectorShape:
    """What the code of `vector_function` depends on."""

    pairs: int  # of taps, an even number
    stored: int = CHANNELS
    scaling: Requantisation = Requantisation()

    @property
    def name(self) -> str:
        return f"vector_{self.stored}_{self.pairs}{self.scaling.name}"


def header_words(scaling: Requantisation) -> int:
    """Of a block, before its weights."""
    return _SHIFTS if scaling.right else _MASKS + (CHANNELS if scaling.is_masked else 0)


@cache
def dot_function(shape: DotShape) -> str:
    """void name(const int16_t *x, const int32_t *block, int8_t *y, const void *end)

    Pixels from `x` on until one begins at `end`; outputs of one block.
    """
    unroll_lines = shape.lines * shape.pairs <= _MOST_UNROLLED_PAIRS
    header = -4 * header_words(shape.scaling)
    body = [f"    sub sp, #{_FRAME_BYTES}", "    strd r2, r3, [sp]", f"    add r1, #{-header}"]
    biases = [load(ACCUMULATORS[c], "r1", header + 4 * c) for c in range(CHANNELS)]
    body += [*lines_of(biases), "    .p2align 3", "1:"]
    if unroll_lines:
        taps = [(line * shape.pitch_bytes, shape.pairs) for line in range(shape.lines)]
        body += lines_of(_products(shape, taps, are_first=True))
    else:
        body += _looped_products(shape)
    body += lines_of(_end_of_pixels(shape))
    body += ["    bne.w 1b", f"    add sp, #{_FRAME_BYTES}", "    pop {r4-r11, pc}"]
    title = f"{shape.pixels} pixel(s) x {shape.stored} channels, {shape.lines} line(s) of {shape.pairs} pairs of taps"
    return function_text(title, shape.name, body)


def _looped_products(shape: DotShape) -> list[str]:
    """Too many for straight code: line by line, and a long line in parts. r0 and r1 end as they began."""
    parts = -(-shape.pairs // _MOST_UNROLLED_PAIRS)
    part_pairs = shape.pairs // parts // 2 * 2 if parts > 1 else shape.pairs
    rest_pairs = shape.pairs - parts * part_pairs
    body = [f"    mov {far}, {near}" for near, far in zip(ACCUMULATORS[:4], ACCUMULATORS[4:], strict=True)]
    body = body if shape.pixels == 2 else []
    body += _counter(_LINES, shape.lines) if shape.lines > 1 else []
    body += ["2:"] if shape.lines > 1 else []
    body += _counter(_PARTS, parts) if parts > 1 else []
    body += ["3:"] if parts > 1 else []
    body += lines_of(_products(shape, [(0, part_pairs)]))
    body += lines_of([*add_constant("r0", "r0", 4 * part_pairs), *add_constant("r1", "r1", _block_bytes(part_pairs))])
    body += _repeat(_PARTS, "3b") if parts > 1 else []
    if rest_pairs:
        body += lines_of(_products(shape, [(0, rest_pairs)]))
        body += lines_of(add_constant("r1", "r1", _block_bytes(rest_pairs)))
    if shape.lines > 1:
        body += lines_of(add_constant("r0", "r0", shape.pitch_bytes - 4 * parts * part_pairs))
        body += _repeat(_LINES, "2b")
    moved = shape.lines * shape.pitch_bytes if shape.lines > 1 else 4 * parts * part_pairs
    back = add_constant("r0", "r0", -moved), add_constant("r1", "r1", -_block_bytes(shape.lines * shape.pairs))
    return body + lines_of([*back[0], *back[1]])


def _block_bytes(pairs: int) -> int:
    """Of the weights for so many pairs of taps."""
    return 4 * CHANNELS * pairs


def _counter(slot: int, count: int) -> list[str]:
    return [f"    mov r2, #{count}", f"    str r2, [sp, #{slot}]"]


def _repeat(slot: int, label: str) -> list[str]:
    return [f"    ldr r2, [sp, #{slot}]", "    subs r2, #1", f"    str r2, [sp, #{slot}]", f"    bne.w {label}"]


def _products(shape: DotShape, taps: list[tuple[int, int]], are_first: bool = False) -> list[Instruction]:
    """All products of the lines given by (offset, pairs); r0 and r1 are as before at the end."""
    words = [offset + 4 * pair for offset, pairs in taps for pair in range(pairs)]
    return _two_pixels(words, shape.far_bytes, are_first) if shape.pixels == 2 else _one_pixel(words)


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


def _two_pixels(words: list[int], far_bytes: int, are_first: bool) -> list[Instruction]:
    """Eight products in eight cycles; each load stands two cycles before its first use.

    The far pixel's come first: in the `are_first` ones its sums begin with the biases in the near pixel's.
    """
    x, w = _Base("r0"), _Base("r1")
    (a, b), (u, v) = _PIXELS, _WEIGHTS
    near, far = ACCUMULATORS[:CHANNELS], ACCUMULATORS[CHANNELS:]
    code = [*x.load(b, words[0] + far_bytes), *w.load(u, 0), *x.load(a, words[0])]
    for index in range(len(words)):
        at, following = 16 * index, words[index + 1 : index + 2]
        begun = near if are_first and index == 0 else far
        first = [multiply("smlad", far[c], b, w_c, begun[c]) for c, w_c in enumerate((u, v, u, v))]
        second = [multiply("smlad", near[c], a, w_c, near[c]) for c, w_c in enumerate((u, v, u, v))]
        code += [first[0], *w.load(v, at + 4), second[0], *w.load(u, at + 8), first[1], second[1]]
        code += [*w.load(v, at + 12), first[2], first[3]]
        for offset in following:
            code += x.load(b, offset + far_bytes)
        code += [second[2], *(w.load(u, at + 16) if following else ()), second[3]]
        for offset in following:
            code += x.load(a, offset)
    return [*code, *x.back(), *w.back()]


def _one_pixel(words: list[int]) -> list[Instruction]:
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


def _end_of_pixels(shape: DotShape) -> list[Instruction]:
    """Scale and store the outputs, go on to the next pixels with the biases; the flags say whether there are any."""
    header = -4 * header_words(shape.scaling)
    sums = [[ACCUMULATORS[CHANNELS * p + c] for p in range(shape.pixels)] for c in range(CHANNELS)]
    code = [load("y", "sp", _Y)]
    for c in range(CHANNELS):
        if c < shape.stored:
            places = [shape.far_outputs * p + c for p in range(shape.pixels)]
            code += _scaled_and_stored(shape.scaling, c, sums[c], places, header)
        code += [load(sums[c][0], "r1", header + 4 * c)]
    code += [*add_constant("y", "y", shape.step_outputs), store("y", "sp", _Y)]
    free = ["r2", "r3", "r12", "lr"] + ([] if shape.pixels == 2 else list(ACCUMULATORS[CHANNELS:]))
    behind = _products(shape, [(0, 2)])[:24]
    stays = [*add_constant("r0", "r0", shape.step_bytes), load("end", "sp", _END), compare("r0", "end")]
    fit = fitted([*code, *stays], free, {}, behind)
    if fit is not None:
        return list(fit.code)
    leaves = [*add_constant("x", "x", shape.step_bytes), store("x", "sp", _X), *code]
    fit = fitted(leaves, free, {"x": "r0"}, behind)
    assert fit is not None, f"{shape}: too few registers"
    return [*fit.code, load("r0", "sp", _X), load("r2", "sp", _END), compare("r0", "r2")]


def _scaled_and_stored(
    scaling: Requantisation, channel: int, sums: list[str], places: list[int], header: int
) -> list[Instruction]:
    """One channel of each pixel; the header's words lie at `header` from r1."""
    names = (f"m{channel}", f"add{channel}", f"shift{channel}", f"mask{channel}" if scaling.is_masked else "")
    code = [load(names[0], "r1", header + 4 * (_MULTIPLIERS + channel))]
    code += [load(names[1], "r1", header + 4 * (_ADDENDS + channel))]
    code += [load(names[3], "r1", header + 4 * (_MASKS + channel))] if scaling.is_masked else []
    code += [] if scaling.right else [load_byte(names[2], "r1", header + 4 * _SHIFTS + channel)]
    for pixel, (total, place) in enumerate(zip(sums, places, strict=True)):
        between = f"t{channel}_{pixel}" if scaling.is_signed else ""
        code += signed_scaling(total, between, names, (scaling.lowest, scaling.highest), scaling.right)
        code += [store_byte(total, "y", place)]
    return code


@cache
def vector_function(shape: VectorShape) -> str:
    """void name(const int16_t *x, const int32_t *block, int8_t *y, const void *end)

    Outputs of the blocks from `block` to `end` for one pixel.
    """
    words = header_words(shape.scaling)
    parts = -(-shape.pairs // _MOST_UNROLLED_PAIRS)
    part_pairs = shape.pairs // parts // 2 * 2
    rest_pairs = shape.pairs - parts * part_pairs
    body = [
        f"    sub sp, #{_FRAME_BYTES}",
        "    strd r2, r3, [sp]",
        f"    add r1, #{4 * words}",
        "    .p2align 3",
        "1:",
    ]
    body += lines_of(load(ACCUMULATORS[c], "r1", 4 * (c - words)) for c in range(CHANNELS))
    if parts > 1:
        body += [*_counter(_PARTS, parts), "3:", *lines_of(_both_halves(part_pairs))]
        body += lines_of([*add_constant("r0", "r0", 4 * part_pairs), *add_constant("r1", "r1", 8 * part_pairs)])
        body += _repeat(_PARTS, "3b")
        body += lines_of(_both_halves(rest_pairs)) if rest_pairs else []
        body += lines_of(add_constant("r0", "r0", -4 * parts * part_pairs))
        body += lines_of(add_constant("r1", "r1", -8 * parts * part_pairs))
    else:
        body += lines_of(_both_halves(shape.pairs))
    body += lines_of(_end_of_block(shape))
    body += ["    bne.w 1b", f"    add sp, #{_FRAME_BYTES}", "    pop {r4-r11, pc}"]
    title = f"a pixel of {shape.pairs} pairs of taps x {shape.stored} channels, block after block"
    return function_text(title, shape.name, body)


def _both_halves(pairs: int) -> list[Instruction]:
    """Two pairs of taps of four channels in nine cycles; what the next two need is loaded on the way."""
    raw, (low, other), (x, z) = ACCUMULATORS[CHANNELS:], ("r12", "lr"), ("r2", "r3")
    first, first_low, second, second_low = ACCUMULATORS[:CHANNELS]

    def product(total: str, value: str, weights: str) -> Instruction:
        return multiply("smlad", total, value, weights, total)

    code = [load(x, "r0"), load(z, "r0", 4), *(load(raw[n], "r1", 4 * n) for n in range(CHANNELS))]
    for pair in range(0, pairs, 2):
        at = pair + 2
        goes_on = at < pairs
        following = [load(raw[n], "r1", 8 * at + 4 * n) for n in range(CHANNELS)] if goes_on else []
        values = [load(x, "r0", 4 * at), load(z, "r0", 4 * at + 4)] if goes_on else []
        code += [widen(low, raw[0], 0), product(first, x, raw[0]), widen(other, raw[1], 0), product(second, x, raw[1])]
        code += [product(first_low, x, low), *following[:1], product(second_low, x, other), *values[:1]]
        code += [widen(low, raw[2], 0), product(first, z, raw[2]), widen(other, raw[3], 0), product(second, z, raw[3])]
        code += [product(first_low, z, low), *following[3:], product(second_low, z, other), *values[1:]]
        code += following[1:3]
    return code


def _end_of_block(shape: VectorShape) -> list[Instruction]:
    words = header_words(shape.scaling)
    sums = ACCUMULATORS[:CHANNELS]
    code = [load("y", "sp", _Y)]
    for c in (1, 0, 3, 2):  # the high half needs the low one, which is then doubled
        both, low = sums[c // 2 * 2], sums[c // 2 * 2 + 1]
        if c % 2:
            code += [subtract(both, both, low), shift_right_constant(both, both, 7)]
        else:
            code += [add(low, low, low)]
        if c < shape.stored:
            code += _scaled_and_stored(shape.scaling, c, [both if c % 2 else low], [c], -4 * words)
    code += [*add_constant("y", "y", CHANNELS), store("y", "sp", _Y)]
    code += [*add_constant("r1", "r1", 8 * shape.pairs), load("end", "sp", _END), compare("r1", "end")]
    fit = fitted(code, ["r2", "r3", "r12", "lr", *ACCUMULATORS[CHANNELS:]], {}, ())
    assert fit is not None
    return [*fit.code, *add_constant("r1", "r1", 4 * words)]
