"""The dot product of assembly/dot.py as a loop over int8 weights: short code that layers share, for `weights: small`.

Lines and taps are counted at run time (struct fast_dot), so that one function serves layers of any depth. With two
pixels a round takes four taps; the two pixels lie `pixel_bytes` apart, or, where that is 0, side by side, pair of taps
by pair of taps. With one pixel a round takes sixteen taps. Taps are filled up with weights of 0; the last round
loads, but does not use, up to a word behind its data.
"""

from __future__ import annotations

from functools import cache

from stages.firmware.assembly.dot import (
    ACCUMULATORS,
    CHANNELS,
    DotShape,
    Frame,
    end_of_pixels,
    function_start,
    start_of_pixels,
)
from stages.firmware.assembly.instructions import (
    Instruction,
    add_constant,
    compare,
    load,
    load_advancing,
    multiply,
    widen,
)
from stages.firmware.assembly.schedule import fitted, scheduled

SIDE_BY_SIDE = 0  # stands for the distance of two pixels that lie pair by pair beside each other
_FRAME = Frame(x=0, block=4, y=8, outputs=12, zero=16, group=32, bytes_=48)
_ALL_LINES, _LINE_BYTES, _LINE_STEP, _LINES, _END = 20, 24, 28, 36, 40
_ROUND_WORDS = {1: 4, 2: 1}  # of weights of a channel, four taps each, by pixels


def round_taps(pixels: int) -> int:
    """Taps of a line come in multiples of these."""
    return 4 * _ROUND_WORDS[pixels]


@cache
def dot_loop_function(shape: DotShape) -> str:
    """void name(const int16_t *x, const int32_t *block, int8_t *y, const struct fast_dot *dot, int32_t count)"""
    body = [f"@ {shape.pixels} pixel(s) x {CHANNELS} channels, any lines of any length"]
    body += function_start(shape.name)
    body += [f"    sub sp, #{_FRAME.bytes_}", "    strd r0, r1, [sp]", "    str r2, [sp, #8]"]
    # outputs, zero, lines, bytes of a line, from there to the next one, from group to group
    body += [
        "    ldmia r3, {r3-r8}",
        f"    add r2, sp, #{_FRAME.outputs}",
        "    stmia r2, {r3-r8}",
        "    .p2align 3",
        "1:",
    ]
    body += _text(scheduled(start_of_pixels(shape, _FRAME)))
    body += [f"    ldr r2, [sp, #{_ALL_LINES}]", f"    str r2, [sp, #{_LINES}]", "2:"]
    body += [f"    ldr r2, [sp, #{_LINE_BYTES}]", "    add r2, r0", f"    str r2, [sp, #{_END}]"]
    body += _two_pixels(shape) if shape.pixels == 2 else _one_pixel()
    body += ["    bne.w 3b", f"    ldr r2, [sp, #{_LINE_STEP}]", "    add r0, r2"]
    body += [f"    ldr r2, [sp, #{_LINES}]", "    subs r2, #1", f"    str r2, [sp, #{_LINES}]", "    bne.w 2b"]
    body += _text(end_of_pixels(shape, _FRAME))
    body += ["    bne.w 1b", f"    add sp, #{_FRAME.bytes_}", "    pop {r4-r11, pc}"]
    body += [f"    .size {shape.name}, . - {shape.name}", ""]
    return "\n".join(body) + "\n"


def _text(code: list[Instruction]) -> list[str]:
    return [f"    {one}" for one in code]


def _two_pixels(shape: DotShape) -> list[str]:
    """As in dot.py, eight products in nine cycles; what a round begins with is loaded at the end of the one before."""
    (a, b), (f, g) = ("r2", "r3"), ("r12", "lr")
    near, far = ACCUMULATORS[:CHANNELS], ACCUMULATORS[CHANNELS:]
    pair_bytes, apart = (8, 4) if shape.pixel_bytes == SIDE_BY_SIDE else (4, shape.pixel_bytes)
    ahead = [load(a, "r0"), load(f, "r1"), load(b, "r0", apart)]
    code: list[Instruction] = []

    def product(pixel: str, weight: str, accumulator: str) -> None:
        code.append(multiply("smlad", accumulator, pixel, weight, accumulator))

    for turn, is_last in ((0, False), (8, True)):
        code += [widen(f, f, turn), load(g, "r1", 4), widen(g, g, turn)]
        product(a, f, near[0])
        product(b, f, far[0])
        code += [load(f, "r1", 8), widen(f, f, turn)]
        product(a, g, near[1])
        product(b, g, far[1])
        code += [load(g, "r1", 12), widen(g, g, turn)]
        product(a, f, near[2])
        product(a, g, near[3])
        code.append(load_advancing(a, "r0", 2 * pair_bytes) if is_last else load(a, "r0", pair_bytes))
        product(b, g, far[3])
        code.append(load_advancing(g, "r1", 4 * CHANNELS) if is_last else load(g, "r1"))
        product(b, f, far[2])
        code.append(load(b, "r0", apart + (0 if is_last else pair_bytes)))
        f, g = g, f
    return [*_text(ahead), "    .p2align 3", "3:", *_text(code), *_text([load(g, "sp", _END), compare("r0", g)])]


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
    return ["    .p2align 3", "3:", *_text(list(fit.code))]
