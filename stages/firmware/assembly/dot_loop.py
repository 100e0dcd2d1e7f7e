"""A dot product as a loop over int8 weights: short code that layers share, for `weights: small`.

A block of weights serves four output channels: their biases, their multipliers, their right shifts less one (a byte
each), then their weights (a word holds taps 0, 2, 1, 3 of a channel). Taps are counted at run time (struct
small_dot_walk), so that one function serves layers of any shape. With two pixels, which lie side by side, pair of taps
by pair of taps, a round takes four taps; with one pixel sixteen. The last round of two pixels loads, but does not use,
up to two words behind its data. Sums are doubled at the end, then scaled as in assembly/scaling.py; a block in which a
channel has no right shift holds for each channel multiplier, addend, right shift and a mask of the sign instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from stages.firmware.assembly.instructions import (
    Instruction,
    add,
    add_constant,
    allocated,
    compare,
    count_down,
    function_text,
    limits_suffix,
    lines_of,
    load,
    load_advancing,
    load_byte,
    load_many,
    move,
    multiply,
    shift_left,
    store,
    store_byte,
    widen,
)
from stages.firmware.assembly.scaling import scaled_and_limited
from stages.firmware.assembly.schedule import fitted, loop_cycles, scheduled

CHANNELS = 4  # of a block
ACCUMULATORS = ("r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11")
_PIXELS, _WEIGHTS = ("r2", "r3"), ("r12", "lr")  # of two pixels, and of two channels at a time
_SCALING_WORDS = 4  # with unshifted channels: multiplier, addend, right shift, -1 where that is not 0
# The caller's struct small_dot_walk, copied to the stack, and where a group's activations end.
_X, _BLOCK, _Y, _OUTPUTS, _ZERO, _GROUP, _TAPS, _COUNT, _END = (4 * slot for slot in range(9))
_FRAME_BYTES = 40
_ROUND_WORDS = {1: 4, 2: 1}  # of weights of a channel, four taps each, by pixels


@dataclass(frozen=True)
class LoopShape:
    """What the code depends on."""

    pixels: int  # at a time: 1 or 2
    lowest: int = -128  # of the output, after a fused activation
    highest: int = 127
    some_unshifted: bool = False  # a channel with right shift 0, whose ties go upwards

    @property
    def name(self) -> str:
        limits = limits_suffix((self.lowest, self.highest))
        return f"dot_loop_{self.pixels}x{CHANNELS}{limits}{'_unshifted' if self.some_unshifted else ''}"


def header_words(some_unshifted: bool) -> int:
    """Of a block, before its weights."""
    return CHANNELS * (1 + _SCALING_WORDS) if some_unshifted else 2 * CHANNELS + 1


def round_taps(pixels: int) -> int:
    """Taps of a line come in multiples of these."""
    return 4 * _ROUND_WORDS[pixels]


@cache
def dot_loop_function(shape: LoopShape) -> str:
    """void name(const struct small_dot_walk *walk)"""
    body = [f"    sub sp, #{_FRAME_BYTES}", "    ldmia r0, {r1-r8}", "    stmia sp, {r1-r8}", "    .p2align 3", "1:"]
    body += lines_of(scheduled(_start_of_pixels(shape)))
    body += [f"    ldr r2, [sp, #{_GROUP}]", "    add r2, r0", f"    str r2, [sp, #{_END}]"]
    body += _two_pixels() if shape.pixels == 2 else _one_pixel()
    body += ["    bne.w 3b"]
    body += lines_of(_end_of_pixels(shape))
    body += ["    bne.w 1b", f"    add sp, #{_FRAME_BYTES}", "    pop {r4-r11, pc}"]
    return function_text(f"{shape.pixels} pixel(s) x {CHANNELS} channels, any number of taps", shape.name, body)


def _two_pixels() -> list[str]:
    """As in dot.py, eight products in nine cycles; what a round begins with is loaded at the end of the one before."""
    (a, b), (f, g) = _PIXELS, _WEIGHTS
    pair_bytes, apart = 8, 4
    ahead = [load(a, "r0"), load(f, "r1"), load(b, "r0", apart)]
    second = [[load(a, "r0", pair_bytes)], [load(g, "r1")], [load(b, "r0", apart + pair_bytes)]]
    code = _eight_products((f, g), 0, _channels(f, g), second)
    next_round = [[load_advancing(a, "r0", 2 * pair_bytes)], [load_advancing(f, "r1", 4 * CHANNELS)]]
    code += _eight_products((g, f), 8, _channels(g, f), [*next_round, [load(b, "r0", apart)]])
    code += [load(g, "sp", _END), compare("r0", g)]
    return [*lines_of(ahead), "    .p2align 3", "3:", *lines_of(code)]


def _channels(f: str, g: str) -> list[list[Instruction]]:
    """Weights of all channels but the first."""
    return [[load(register, "r1", 4 * channel)] for channel, register in enumerate((g, f, g), start=1)]


def _one_pixel() -> list[str]:
    words = _ROUND_WORDS[1]
    code: list[Instruction] = []
    for word in range(words):
        for half, turn in ((0, 0), (1, 8)):
            x = f"x{word}_{half}"
            code.append(load(x, "r0", 8 * word + 4 * half))
            for channel, accumulator in enumerate(ACCUMULATORS[:CHANNELS]):
                raw, wide = f"raw{word}_{channel}", f"wide{word}_{channel}_{half}"
                code += [load(raw, "r1", 4 * (CHANNELS * word + channel))] if half == 0 else []
                code += [widen(wide, raw, turn), multiply("smlad", accumulator, x, wide, accumulator)]
    code += [*add_constant("r0", "r0", 8 * words), *add_constant("r1", "r1", 4 * CHANNELS * words)]
    code += [load("end", "sp", _END), compare("r0", "end")]
    fit = fitted(code, ["r2", "r3", *ACCUMULATORS[CHANNELS:], "r12", "lr"], {})
    assert fit is not None
    return ["    .p2align 3", "3:", *lines_of(fit.code)]


def _start_of_pixels(shape: LoopShape) -> list[Instruction]:
    """The accumulators begin with the biases; r0 at the pixel, r1 at the weights."""
    first = list(ACCUMULATORS[:CHANNELS])
    code = [load("r1", "sp", _BLOCK), load_many("r1", first), load("r0", "sp", _X), load("r1", "sp", _TAPS)]
    if shape.pixels == 2:
        code += [move(b, a) for a, b in zip(first, ACCUMULATORS[CHANNELS:], strict=True)]
    return code


def _eight_products(
    registers: tuple[str, str], turn: int, weights: list[list[Instruction]], following: list[list[Instruction]]
) -> list[Instruction]:
    """A pair of taps of two pixels and four channels; the first channel's weights are in the first of `registers`.

    `weights` loads those of the other channels; `following` what the next pair begins with: the first pixel, weights
    into the second of `registers`, the second pixel.
    """
    (a, b), (f, g) = _PIXELS, registers
    near, far = ACCUMULATORS[:CHANNELS], ACCUMULATORS[CHANNELS:]

    def product(pixel: str, weight: str, accumulator: str) -> Instruction:
        return multiply("smlad", accumulator, pixel, weight, accumulator)

    code = [widen(f, f, turn), *weights[0], widen(g, g, turn), product(a, f, near[0]), product(b, f, far[0])]
    code += [*weights[1], widen(f, f, turn), product(a, g, near[1]), product(b, g, far[1])]
    code += [*weights[2], widen(g, g, turn), product(a, f, near[2]), product(a, g, near[3])]
    return [*code, *following[0], product(b, g, far[3]), *following[1], product(b, f, far[2]), *following[2]]


def _scaling(shape: LoopShape, channel: int) -> tuple[list[Instruction], tuple[str, str, str, str]]:
    """Loads of one channel's scaling, and the registers that hold it."""
    names = (f"m{channel}", f"add{channel}", f"shift{channel}", f"mask{channel}" if shape.some_unshifted else "")
    if shape.some_unshifted:
        at = 4 * (CHANNELS + _SCALING_WORDS * channel)
        return [load(name, "block", at + 4 * word) for word, name in enumerate(names)], names
    code = [load(names[0], "block", 4 * (CHANNELS + channel)), load_byte(names[2], "block", 8 * CHANNELS + channel)]
    return [*code, shift_left(names[1], "zero", names[2])], names


def _end_of_pixels(shape: LoopShape) -> list[Instruction]:
    """Scale and store the outputs, go on to the next pixels; the flags say whether there are any."""
    pixels = range(shape.pixels)
    sums = {f"sum{p}{c}": ACCUMULATORS[4 * p + c] for p in pixels for c in range(CHANNELS)}
    code = [load("block", "sp", _BLOCK)]
    code += [] if shape.some_unshifted else [load("zero", "sp", _ZERO)]
    for c in range(CHANNELS):
        loads, scaling = _scaling(shape, c)
        code += loads
        for p in pixels:
            code.append(add(f"sum{p}{c}", f"sum{p}{c}", f"sum{p}{c}"))
            code += scaled_and_limited(f"t{p}{c}", f"sum{p}{c}", scaling, (shape.lowest, shape.highest))
        if c == 0:
            code.append(load("y", "sp", _Y))
            code += [load("step", "sp", _OUTPUTS), add("y1", "y", "step")] if shape.pixels == 2 else []
        code += [store_byte(f"t{p}{c}", "y" if p == 0 else "y1", c) for p in pixels]
    code += [load("outputs", "sp", _OUTPUTS), add("next", "y1" if shape.pixels == 2 else "y", "outputs")]
    code += [store("next", "sp", _Y)]
    code += [load("x", "sp", _X), load("group", "sp", _GROUP), add("x", "x", "group"), store("x", "sp", _X)]
    code += [load("count", "sp", _COUNT), count_down("count")]
    code += [store("count", "sp", _COUNT)]
    free = ["r0", "r1", "r2", "r3", "r12", "lr"] + ([] if shape.pixels == 2 else list(ACCUMULATORS[CHANNELS:]))
    start = scheduled(_start_of_pixels(shape))
    fit = fitted(code, free, sums, start)
    assert fit is not None
    greedy = scheduled(allocated(code, free, sums))
    return list(fit.code) if fit.cycles <= loop_cycles([*greedy, *start]) else greedy
