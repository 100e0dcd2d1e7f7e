"""The generated inner loops in plain C, for the host: what stands around them then runs under sanitizers.

Everything is read off a function's name (stages/firmware/assembly); the arithmetic is the text books', in 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHARED = """
#include <stdint.h>
#include <string.h>

#include "kernels/fast_depthwise.h"
#include "kernels/fast_dot.h"

static int64_t int16_at(const void *base, int64_t byte)
{
    int16_t value;
    memcpy(&value, (const char *)base + byte, sizeof value);
    return value;
}

/* scaling: multiplier, addend, right shift, mask */
static int8_t scaled(int64_t doubled, const int32_t *scaling, int lowest, int highest)
{
    const int64_t high = (doubled * scaling[0] + (INT64_C(1) << 31)) >> 32;
    const int64_t away = doubled < 0 && scaling[2] > 0 ? 1 : 0;
    const int64_t value = (high + scaling[1] - away) >> scaling[2];
    return (int8_t)(value < lowest ? lowest : value > highest ? highest : value);
}

static void dot(const int16_t *x, const int32_t *block, int8_t *y, int32_t outputs, int32_t groups, const int *shape)
{
    const int pixels = shape[0], lines = shape[1], pairs = shape[2], pitch = shape[3], pixel_bytes = shape[4];
    const int weight_bytes = shape[7];
    const int line_taps = weight_bytes == 2 ? 2 * pairs : (2 * pairs + 3) / 4 * 4;
    for (int pixel = 0; pixel < groups * pixels; pixel++) {
        for (int channel = 0; channel < 4; channel++) {
            int64_t sum = block[channel];
            for (int line = 0; line < lines; line++) {
                for (int tap = 0; tap < 2 * pairs; tap++) {
                    const int at = line * line_taps + tap;
                    int64_t weight;
                    if (weight_bytes == 2) {
                        weight = int16_at(&block[20 + 4 * (at / 2) + channel], 2 * (at % 2));
                    } else {
                        static const int place[] = {0, 2, 1, 3};
                        weight = ((const int8_t *)&block[20 + 4 * (at / 4) + channel])[place[at % 4]];
                    }
                    sum += weight * int16_at(x, pixel * pixel_bytes + line * pitch + 2 * tap);
                }
            }
            y[pixel * outputs + channel] =
                scaled(weight_bytes == 2 ? sum : 2 * sum, &block[4 + 4 * channel], shape[5], shape[6]);
        }
    }
}

static void depthwise(const int32_t *upper, const int32_t *lower, int8_t *y, const struct fast_depthwise_walk *walk,
                      const int *shape)
{
    int channel = 0;
    for (const int32_t *record = walk->records; record != walk->end; record += 11) {
        for (int row = 0; row < shape[0]; row++) {
            for (int column = 0; column < shape[1]; column++) {
                int64_t sum = record[6];
                for (int tap = 0; tap < 9; tap++) {
                    const int tap_row = tap / 3, tap_column = tap % 3, at = row + tap_row;
                    const int32_t *line = at < 2 ? upper : lower;
                    const int64_t byte = (int64_t)channel * walk->pitch_bytes + 4 * (column * shape[2] + tap_column);
                    const int64_t weight = tap_row == 0 ? int16_at(&record[tap_column], 0)
                                                        : int16_at(&record[3 + tap_column], 2 * (tap_row - 1));
                    sum += weight * int16_at(line, byte + 2 * (at % 2));
                }
                y[channel + column * walk->outputs + row * walk->row_bytes] =
                    scaled(sum, &record[7], shape[3], shape[4]);
            }
        }
        channel++;
    }
}
"""

_DOT = re.compile(r"(dot|dot8)_([12])x4_(\d+)_(\d+)_(\d+)_(\d+)(?:_(\d+)_(\d+))?(?:_unshifted)?")
_DEPTHWISE = re.compile(r"depthwise_([12])x([12])_([12])(?:_(\d+)_(\d+))?(?:_unshifted)?")


def plain_inner_loops(names: Iterable[str]) -> str:
    """C source that defines the functions of these names."""
    return _SHARED + "\n".join(map(_function, sorted(set(names))))


def _function(name: str) -> str:
    if found := _DOT.fullmatch(name):
        kind, *sizes, lowest, highest = found.groups()
        shape = [*map(int, sizes), *_limits(lowest, highest), 2 if kind == "dot" else 1]
        arguments = "const int16_t *x, const int32_t *block, int8_t *y, int32_t outputs, int32_t count"
        return _wrapper(name, "fast_dot_function", arguments, "dot(x, block, y, outputs, count, shape);", shape)
    found = _DEPTHWISE.fullmatch(name)
    assert found, name
    *sizes, lowest, highest = found.groups()
    arguments = "const int32_t *upper, const int32_t *lower, int8_t *y, const struct fast_depthwise_walk *walk"
    shape = [*map(int, sizes), *_limits(lowest, highest)]
    return _wrapper(name, "fast_depthwise_function", arguments, "depthwise(upper, lower, y, walk, shape);", shape)


def _limits(lowest: str | None, highest: str | None) -> tuple[int, int]:
    return int(lowest or 0) - 128, int(highest or 255) - 128


def _wrapper(name: str, c_type: str, arguments: str, call: str, shape: list[int]) -> str:
    numbers = ", ".join(map(str, shape))
    body = f"    static const int shape[] = {{{numbers}}};\n    {call}\n"
    return f"{c_type} {name};\nvoid {name}({arguments})\n{{\n{body}}}\n"
