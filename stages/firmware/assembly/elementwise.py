"""Loops over single elements: ADD, int8 to int16, and two rows of an image as one line of words."""

from __future__ import annotations

from functools import cache

from stages.firmware.assembly.instructions import (
    Instruction,
    add,
    add_constant,
    add_twice,
    compare,
    count_down,
    function_text,
    limited,
    limits_suffix,
    lines_of,
    load,
    load_signed_byte,
    masked,
    multiply,
    pack_bottoms,
    pack_tops,
    saturate,
    shift_left_constant,
    store,
    store_at,
    store_byte,
    widen,
)
from stages.firmware.assembly.schedule import fitted

ADD_ELEMENTS = 8  # of a round
INTERLEAVED_CHANNELS = 8  # of a round
WIDENED_VALUES = 16  # of a round


def add_name(right: int, limits: tuple[int, int]) -> str:
    return f"add_{right}{limits_suffix(limits)}"


@cache
def add_function(right: int, limits: tuple[int, int]) -> str:
    """void name(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *y, const int8_t *end)

    `right`: shift of the result, at least 1; `end`: of the first operand, a whole number of rounds away.
    """
    # r1, r2: operands, r3: output, r4, r5: multipliers, r6: addend, r7: the highest byte, r8: end
    body = ["    ldmia r0, {r4-r6}", "    mov r7, #0xff000000", "    ldr r8, [sp, #36]"]
    code: list[Instruction] = []
    for n in range(ADD_ELEMENTS):
        for base, four in (("r1", f"a{n // 4}"), ("r2", f"b{n // 4}")):
            code += [load(four, base, n)] if n % 4 == 0 else []
            code += [
                shift_left_constant(f"{four}_{n}", four, 24)
                if n % 4 == 0
                else masked(f"{four}_{n}", "r7", four, 24 - 8 * (n % 4))
            ]
        total = f"t{n}"
        code += [
            multiply("smmla", total, f"a{n // 4}_{n}", "r4", "r6"),
            multiply("smmla", total, f"b{n // 4}_{n}", "r5", total),
        ]
        code += [saturate(total, total, right), *limited(total, limits), store_byte(total, "r3", n)]
    code += [one for register in ("r1", "r2", "r3") for one in add_constant(register, register, ADD_ELEMENTS)]
    body += _loop([*code, compare("r1", "r8")], ["r0", "r9", "r10", "r11", "r12", "lr"])
    title = f"sums of {ADD_ELEMENTS} pairs, right shift {right}"
    return function_text(title, add_name(right, limits), body)


WIDEN_NAME = "widen_by_four"


@cache
def widen_function() -> str:
    """void name(const int8_t *source, int16_t *wide, int32_t rounds)

    Of each four values 0 and 2, then 1 and 3, as SXTB16 gives them; the weights that meet them are stored likewise.
    """
    code: list[Instruction] = []
    for n in range(WIDENED_VALUES // 4):
        four = f"four{n}"
        code += [load(four, "r0", 4 * n)]
        for half, turn in ((0, 0), (1, 8)):
            code += [widen(f"{four}_{half}", four, turn), store(f"{four}_{half}", "r1", 4 * (2 * n + half))]
    code += [*add_constant("r0", "r0", WIDENED_VALUES), *add_constant("r1", "r1", 2 * WIDENED_VALUES)]
    loop = _loop([*code, count_down("r2")], [*(f"r{n}" for n in range(3, 13)), "lr"])
    return function_text(f"{WIDENED_VALUES} int8 to int16 a round", WIDEN_NAME, loop)


WIDEN_IN_ORDER_NAME = "widen_in_order"


@cache
def widen_in_order_function() -> str:
    """The same, each value in its place."""
    code: list[Instruction] = []
    for n in range(WIDENED_VALUES // 4):
        four = f"four{n}"
        code += [load(four, "r0", 4 * n), widen(f"even{n}", four, 0), widen(f"odd{n}", four, 8)]
        code += [pack_bottoms(f"low{n}", f"even{n}", f"odd{n}"), store(f"low{n}", "r1", 8 * n)]
        code += [pack_tops(f"high{n}", f"odd{n}", f"even{n}"), store(f"high{n}", "r1", 8 * n + 4)]
    code += [*add_constant("r0", "r0", WIDENED_VALUES), *add_constant("r1", "r1", 2 * WIDENED_VALUES)]
    loop = _loop([*code, count_down("r2")], [*(f"r{n}" for n in range(3, 13)), "lr"])
    return function_text(f"{WIDENED_VALUES} int8 to int16 a round, in order", WIDEN_IN_ORDER_NAME, loop)


MOST_PIXEL_DEPTH = 64  # straight code of 0.4 KB; longer pixels are widened in rounds


def widen_pixels_name(depth: int) -> str:
    return f"widen_pixels_{depth}"


@cache
def widen_pixels_function(depth: int) -> str:
    """The same as `widen_function`, a pixel a round: behind an odd number of values there is room for one more.

    What does not make four stands in order.
    """
    code: list[Instruction] = []
    for n in range(depth // 4):
        code += [load(f"four{n}", "r0", 4 * n)]
        for half, turn in ((0, 0), (4, 8)):
            code += [widen(f"four{n}_{half}", f"four{n}", turn), store(f"four{n}_{half}", "r1", 8 * n + half)]
    for n in range(depth // 4 * 4, depth, 2):
        code += [load_signed_byte(f"one{n}", "r0", n)]
        if n + 1 < depth:
            code += [load_signed_byte(f"one{n + 1}", "r0", n + 1), pack_bottoms(f"one{n}", f"one{n}", f"one{n + 1}")]
        code += [store(f"one{n}", "r1", 2 * n)]
    code += [*add_constant("r0", "r0", depth), *add_constant("r1", "r1", 2 * (depth + depth % 2))]
    loop = _loop([*code, count_down("r2")], [*(f"r{n}" for n in range(3, 13)), "lr"])
    return function_text(f"pixels of {depth} int8 to int16", widen_pixels_name(depth), loop)


INTERLEAVE_NAME = "depthwise_interleave"


@cache
def interleave_function() -> str:
    """void name(const int8_t *upper, const int8_t *lower, int32_t *line, int32_t pitch_bytes, int32_t rounds)

    The channels of a pixel and of the one below it as words, an int16 of each; they go `pitch_bytes` apart.
    """
    code: list[Instruction] = []
    for n in range(INTERLEAVED_CHANNELS // 4):
        above, below = f"above{n}", f"below{n}"
        code += [load(above, "r0", 4 * n), load(below, "r1", 4 * n)]
        for half, turn in (("even", 0), ("odd", 8)):
            code += [widen(f"{above}_{half}", above, turn), widen(f"{below}_{half}", below, turn)]
        code += [pack_bottoms(f"w{n}_0", f"{above}_even", f"{below}_even"), store(f"w{n}_0", "r2")]
        code += [pack_bottoms(f"w{n}_1", f"{above}_odd", f"{below}_odd"), store_at(f"w{n}_1", "r2", "r3")]
        code += [add_twice("r2", "r2", "r3")]
        code += [pack_tops(f"w{n}_2", f"{below}_even", f"{above}_even"), store(f"w{n}_2", "r2")]
        code += [pack_tops(f"w{n}_3", f"{below}_odd", f"{above}_odd"), store_at(f"w{n}_3", "r2", "r3")]
        code += [add_twice("r2", "r2", "r3")]
    code += [*add_constant("r0", "r0", INTERLEAVED_CHANNELS), *add_constant("r1", "r1", INTERLEAVED_CHANNELS)]
    body = ["    ldr r4, [sp, #36]", *_loop([*code, count_down("r4")], [*(f"r{n}" for n in range(5, 13)), "lr"])]
    return function_text(f"two rows as words, {INTERLEAVED_CHANNELS} channels a round", INTERLEAVE_NAME, body)


PAIR_ROWS_NAME = "pair_rows"


@cache
def pair_rows_function() -> str:
    """void name(const int8_t *upper, const int8_t *lower, int32_t *line, const int32_t *end, const int32_t *steps)

    Values of a row and those below them as words, an int16 of each, side by side; `steps` are the bytes, of each row,
    from a round to the next: those of a round, or none, so that it is repeated.
    """
    code: list[Instruction] = []
    for n in range(INTERLEAVED_CHANNELS // 4):
        above, below, low, high = f"above{n}", f"below{n}", f"low{n}", f"high{n}"
        code += [load(above, "r0", 4 * n), load(below, "r1", 4 * n)]
        code += [pack_bottoms(low, above, below), pack_tops(high, below, above)]
        for half, four in ((0, low), (2, high)):
            for turn in (0, 8):
                word = f"word{n}_{half}_{turn}"
                code += [widen(word, four, turn), store(word, "r2", 4 * (4 * n + half + turn // 8))]
    code += [add("r0", "r0", "r4"), add("r1", "r1", "r5"), *add_constant("r2", "r2", 4 * INTERLEAVED_CHANNELS)]
    body = ["    ldr r4, [sp, #36]", "    ldrd r4, r5, [r4]"]
    body += _loop([*code, compare("r2", "r3")], [*(f"r{n}" for n in range(6, 13)), "lr"])
    return function_text(f"two rows as words, {INTERLEAVED_CHANNELS} values a round", PAIR_ROWS_NAME, body)


def _loop(code: list[Instruction], free: list[str]) -> list[str]:
    fit = fitted(code, free, {})
    assert fit is not None
    return ["    .p2align 3", "1:", *lines_of(fit.code), "    bne.w 1b", "    pop {r4-r11, pc}"]
