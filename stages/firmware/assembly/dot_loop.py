"""The dot product of assembly/dot.py as a loop over int8 weights: short code that layers share, for `weights: small`.

Taps are counted at run time (struct small_dot_walk), so that one function serves layers of any shape. With two pixels,
which lie side by side, pair of taps by pair of taps, a round takes four taps; with one pixel sixteen. The last round of
two pixels loads, but does not use, up to two words behind its data.
"""

from __future__ import annotations

from functools import cache

from stages.firmware.assembly.dot import (
    ACCUMULATORS,
    CHANNELS,
    PIXELS,
    WEIGHTS,
    DotShape,
    Frame,
    eight_products,
    end_of_pixels,
    start_of_pixels,
)
from stages.firmware.assembly.instructions import (
    Instruction,
    add_constant,
    compare,
    function_text,
    lines_of,
    load,
    load_advancing,
    multiply,
    widen,
)
from stages.firmware.assembly.schedule import fitted, scheduled

# The caller's struct small_dot_walk, copied to the stack, and where a group's activations end.
_FRAME = Frame(x=0, block=4, y=8, outputs=12, zero=16, group=20, weights=24, count=28, bytes_=40)
_GROUP, _END = 20, 32
_ROUND_WORDS = {1: 4, 2: 1}  # of weights of a channel, four taps each, by pixels


def round_taps(pixels: int) -> int:
    """Taps of a line come in multiples of these."""
    return 4 * _ROUND_WORDS[pixels]


@cache
def dot_loop_function(shape: DotShape) -> str:
    """void name(const struct small_dot_walk *walk)"""
    body = [f"    sub sp, #{_FRAME.bytes_}", "    ldmia r0, {r1-r8}", "    stmia sp, {r1-r8}", "    .p2align 3", "1:"]
    body += lines_of(scheduled(start_of_pixels(shape, _FRAME)))
    body += [f"    ldr r2, [sp, #{_GROUP}]", "    add r2, r0", f"    str r2, [sp, #{_END}]"]
    body += _two_pixels() if shape.pixels == 2 else _one_pixel()
    body += ["    bne.w 3b"]
    body += lines_of(end_of_pixels(shape, _FRAME))
    body += ["    bne.w 1b", f"    add sp, #{_FRAME.bytes_}", "    pop {r4-r11, pc}"]
    return function_text(f"{shape.pixels} pixel(s) x {CHANNELS} channels, any number of taps", shape.name, body)


def _two_pixels() -> list[str]:
    """As in dot.py, eight products in nine cycles; what a round begins with is loaded at the end of the one before."""
    (a, b), (f, g) = PIXELS, WEIGHTS
    pair_bytes, apart = 8, 4
    ahead = [load(a, "r0"), load(f, "r1"), load(b, "r0", apart)]
    second = [[load(a, "r0", pair_bytes)], [load(g, "r1")], [load(b, "r0", apart + pair_bytes)]]
    code = eight_products((f, g), 0, _channels(f, g), second)
    next_round = [[load_advancing(a, "r0", 2 * pair_bytes)], [load_advancing(f, "r1", 4 * CHANNELS)]]
    code += eight_products((g, f), 8, _channels(g, f), [*next_round, [load(b, "r0", apart)]])
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
