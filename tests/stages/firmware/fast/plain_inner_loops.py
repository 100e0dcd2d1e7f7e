"""The generated inner loops in plain C, for the host: what stands around them then runs under sanitizers.

Everything is read off a function's name (stages/firmware/assembly); the arithmetic is the text books', in 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHARED = """
#include <stdint.h>
#include <string.h>

#include "kernels/add.h"
#include "kernels/fast_depthwise.h"
#include "kernels/inner/fast_dot.h"
#include "kernels/small_depthwise.h"
#include "kernels/small_dot.h"

static int64_t int16_at(const void *base, int64_t byte)
{
    int16_t value;
    memcpy(&value, (const char *)base + byte, sizeof value);
    return value;
}

static int8_t scaled(int64_t doubled, int32_t multiplier, int64_t addend, int right, const int *limits)
{
    const int64_t high = (doubled * multiplier + (INT64_C(1) << 31)) >> 32;
    const int64_t away = doubled < 0 && right > 0 ? 1 : 0;
    const int64_t value = (high + addend - away) >> right;
    return (int8_t)(value < limits[0] ? limits[0] : value > limits[1] ? limits[1] : value);
}

/* int8 from the sum of output `channel` of a block with this header. */
static int8_t finished(const int32_t *header, int channel, int64_t doubled, int32_t zero, int is_long,
                       const int *limits)
{
    const int32_t *own = is_long ? &header[4 + 4 * channel] : &header[4 + channel];
    const int right = is_long ? own[2] : ((const uint8_t *)&header[8])[channel] + 1;
    const int64_t addend = is_long ? own[1] : (int64_t)zero * (INT64_C(1) << (right - 1));
    return scaled(doubled, own[0], addend, right, limits);
}

static int64_t int8_tap(const int32_t *weights, int channel, int tap)
{
    static const int place[] = {0, 2, 1, 3}; /* bytes 0 and 2 meet a pair of activations */
    return ((const int8_t *)&weights[4 * (tap / 4) + channel])[place[tap % 4]];
}

/* shape: pixels, limits, some unshifted */
static void dot_loop(const struct small_dot_walk *walk, const int *shape)
{
    const int pixels = shape[0], taps = walk->group_bytes / (2 * pixels);
    for (int pixel = 0; pixel < walk->count * pixels; pixel++) {
        for (int channel = 0; channel < 4; channel++) {
            int64_t sum = walk->header[channel];
            for (int tap = 0; tap < taps; tap++) {
                const int word = (pixel / pixels * (taps / 2) + tap / 2) * pixels + pixel % pixels;
                sum += int8_tap(walk->weights, channel, tap) * int16_at(walk->x, 4 * word + 2 * (tap % 2));
            }
            walk->y[pixel * walk->outputs + channel] =
                finished(walk->header, channel, 2 * sum, walk->zero, shape[3], &shape[1]);
        }
    }
}

/* The same with the shift of all channels, whose two roundings are in the addend. */
static int8_t shifted(int64_t sum, int32_t multiplier, int64_t addend, int right, const int *limits)
{
    const int64_t value = (((sum * multiplier) >> 32) + addend) >> right;
    return (int8_t)(value < limits[0] ? limits[0] : value > limits[1] ? limits[1] : value);
}

/* int8 of output `channel` of a block of dot() or vector(); ends: common shift or 0, is masked, limits. */
static int8_t requantised(const int32_t *block, int channel, int64_t doubled, const int *ends)
{
    const int32_t multiplier = block[4 + channel], addend = block[8 + channel];
    return ends[0] ? shifted(doubled, multiplier, addend, ends[0], &ends[2])
                   : scaled(doubled, multiplier, addend, ((const uint8_t *)&block[12])[channel], &ends[2]);
}

static int header_of(const int *ends)
{
    return ends[0] ? 12 : ends[1] ? 17 : 13;
}

/* shape: pixels, stored channels, lines, pairs, bytes from line to line, to the far pixel and to the next pixels,
   outputs likewise, ends */
static void dot(const int16_t *x, const int32_t *block, int8_t *y, const void *end, const int *shape)
{
    const int32_t *weights = &block[header_of(&shape[9])];
    const char *pixel = (const char *)x;
    for (; pixel != (const char *)end; pixel += shape[6], y += shape[8]) {
        for (int far = 0; far < shape[0]; far++) {
            for (int channel = 0; channel < shape[1]; channel++) {
                int64_t sum = block[channel];
                for (int pair = 0; pair < shape[2] * shape[3]; pair++) {
                    const int64_t at = far * shape[5] + pair / shape[3] * shape[4] + 4 * (pair % shape[3]);
                    for (int tap = 0; tap < 2; tap++) {
                        sum += int16_at(&weights[4 * pair + channel], 2 * tap) * int16_at(pixel, at + 2 * tap);
                    }
                }
                y[far * shape[7] + channel] = requantised(block, channel, sum, &shape[9]);
            }
        }
    }
}

/* shape: stored channels, pairs, ends */
static void vector(const int16_t *x, const int32_t *block, int8_t *y, const void *end, const int *shape)
{
    const int header = header_of(&shape[2]);
    for (; block != (const int32_t *)end; block += header + 2 * shape[1], y += 4) {
        for (int channel = 0; channel < shape[0]; channel++) {
            const int64_t low_bias = block[channel / 2 * 2 + 1];
            const int64_t high_bias = (int32_t)((uint32_t)block[channel / 2 * 2] - (uint32_t)low_bias) >> 8;
            int64_t sum = channel % 2 ? high_bias : low_bias;
            for (int tap = 0; tap < 2 * shape[1]; tap++) {
                const int64_t both = int16_at(&block[header + 2 * (tap / 2) + channel / 2], 2 * (tap % 2));
                const int64_t low = (int8_t)(both & 255);
                sum += (channel % 2 ? (both - low) >> 8 : low) * int16_at(x, 2 * tap);
            }
            y[channel] = requantised(block, channel, 2 * sum, &shape[2]);
        }
    }
}

/* shape: window height and width, rows and columns of outputs, stride, step, limits, some unshifted */
static void small_depthwise_rows(const int32_t *const *lines, int8_t *y, const struct small_depthwise_walk *walk,
                                 const int *shape)
{
    const int height = shape[0], width = shape[1], pairs = height > 1 ? height - 1 : 1;
    for (int round = 0; round < walk->count; round++) {
    int channel = 0;
    for (const int32_t *record = walk->records; record != walk->end; record += width * pairs + (shape[8] ? 5 : 3)) {
        const int32_t *own = &record[width * pairs + 1];
        const int right = shape[8] ? own[2] : own[1] + 1;
        const int64_t addend = shape[8] ? own[1] : (int64_t)walk->zero * (INT64_C(1) << (right - 1));
        for (int row = 0; row < shape[2]; row++) {
            for (int column = 0; column < shape[3]; column++) {
                int64_t sum = record[width * pairs];
                for (int tap = 0; tap < height * width; tap++) {
                    const int tap_row = tap / width, tap_column = tap % width, at = row + tap_row;
                    const int64_t byte = (int64_t)channel * walk->pitch_bytes +
                                         4 * ((round * shape[3] + column) * shape[4] + tap_column);
                    const int32_t *weights = &record[tap_column * pairs];
                    const int64_t weight = tap_row == 0 ? int16_at(weights, 0) : int16_at(&weights[tap_row - 1], 2);
                    sum += weight * int16_at(lines[at / 2], byte + 2 * (at % 2));
                }
                y[channel * shape[5] + (round * shape[3] + column) * walk->outputs + row * walk->row_bytes] =
                    scaled(sum, own[0], addend, right, &shape[6]);
            }
        }
        channel++;
    }
    }
}

/* shape: window height and width, strides, rows and columns of outputs, bytes from column to column and line to line,
   outputs from row to row, from column to column and from channel to channel, ends */
static void depthwise(const int32_t *const *lines, int8_t *y, const int32_t *record, const int32_t *end,
                      const int *shape)
{
    const int height = shape[0], width = shape[1], pairs = height > 1 ? height - 1 : 1, ends = width * pairs;
    const int right = shape[11], words = ends + (right ? 3 : shape[12] ? 5 : 4);
    for (int channel = 0; record != end; channel++, record += words) {
        for (int output = 0; output < shape[4] * shape[5]; output++) {
            const int row = output / shape[5], column = output % shape[5];
            int64_t sum = record[ends];
            for (int tap = 0; tap < height * width; tap++) {
                const int tap_row = tap / width, tap_column = tap % width, at = row * shape[2] + tap_row;
                const int64_t byte = 4 * channel + (int64_t)(column * shape[3] + tap_column) * shape[6];
                const int32_t *weights = &record[tap_column * pairs];
                const int64_t weight = tap_row == 0 ? int16_at(weights, 0) : int16_at(&weights[tap_row - 1], 2);
                sum += weight * int16_at(lines[at / 2], byte + 2 * (at % 2));
            }
            y[channel * shape[10] + row * shape[8] + column * shape[9]] =
                right ? shifted(sum, record[ends + 1], record[ends + 2], right, &shape[13])
                      : scaled(sum, record[ends + 1], record[ends + 2], record[ends + 3], &shape[13]);
        }
    }
}

static void pair(const int8_t *upper, const int8_t *lower, int32_t *line, const int32_t *end, const int32_t *steps)
{
    for (; line != end; upper += steps[0], lower += steps[1]) {
        for (int index = 0; index < 8; index++) {
            *line++ = (int32_t)(((uint32_t)upper[index] & 0xffffu) | (uint32_t)lower[index] << 16);
        }
    }
}

static void widen_in_turn(const int8_t *source, int16_t *wide, int32_t rounds)
{
    for (int32_t index = 0; index < 16 * rounds; index++) {
        wide[index] = source[index];
    }
}

static void interleave(const int8_t *upper, const int8_t *lower, int32_t *line, int32_t pitch_bytes, int32_t rounds)
{
    for (int32_t channel = 0; channel < 8 * rounds; channel++) {
        const uint32_t word = ((uint32_t)upper[channel] & 0xffffu) | (uint32_t)lower[channel] << 16;
        line[channel * (pitch_bytes / 4)] = (int32_t)word;
    }
}

static void widen_all(const int8_t *source, int16_t *wide, int32_t rounds)
{
    static const int place[] = {0, 2, 1, 3};
    for (int32_t index = 0; index < 16 * rounds; index++) {
        wide[index / 4 * 4 + place[index % 4]] = source[index];
    }
}

/* shape: values of a pixel */
static void widen_pixels(const int8_t *source, int16_t *wide, int32_t pixels, const int *shape)
{
    static const int place[] = {0, 2, 1, 3};
    for (int32_t pixel = 0; pixel < pixels; pixel++, source += shape[0], wide += shape[0] + shape[0] % 2) {
        for (int index = 0; index < shape[0]; index++) {
            const int is_of_four = index < shape[0] / 4 * 4;
            wide[is_of_four ? index / 4 * 4 + place[index % 4] : index] = source[index];
        }
    }
}

/* shape: right shift, limits */
static void sums(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *y,
                 const int8_t *end, const int *shape)
{
    for (; first != end; first++) {
        const int64_t a = ((int64_t)*first * params->multipliers[0]) >> 8;
        const int64_t b = ((int64_t)*second++ * params->multipliers[1]) >> 8;
        const int64_t value = (a + b + params->addend) >> shape[0];
        *y++ = (int8_t)(value < shape[1] ? shape[1] : value > shape[2] ? shape[2] : value);
    }
}
"""

_DOT_LOOP = re.compile(r"dot_loop_([12])x4(?:_(\d+)_(\d+))?(_unshifted)?")
_ENDS = r"(?:_(\d+)_(\d+))?(?:_above)?(?:_by_(\d+))?(_masked)?"
_DOT = re.compile(r"dot_([12])x(\d+)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)" + _ENDS)
_DEPTHWISE = re.compile(r"depthwise_(\d+)x(\d+)_(\d+)x(\d+)_([12])x" + r"(\d+)_" * 5 + r"(\d+)" + _ENDS)
_VECTOR = re.compile(r"vector_(\d+)_(\d+)" + _ENDS)
_SMALL_DEPTHWISE = re.compile(r"small_depthwise_(\d+)x(\d+)_([12])x([12])_(\d+)_(\d+)(?:_(\d+)_(\d+))?(_unshifted)?")


_ADD = re.compile(r"add_(\d+)(?:_(\d+)_(\d+))?")


def plain_inner_loops(names: Iterable[str]) -> str:
    """C source that defines the functions of these names."""
    # Whatever a program does not call must be used somehow, or the compiler complains.
    kinds = (
        "dot vector dot_loop depthwise small_depthwise_rows interleave pair widen_all widen_in_turn widen_pixels sums"
    )
    used = ", ".join(f"(void){name}" for name in kinds.split())
    unused = f"void use_all(void);\nvoid use_all(void)\n{{\n    {used};\n}}\n"
    return _SHARED + unused + "\n".join(map(_function, sorted(set(names))))


def _function(name: str) -> str:
    if found := _DOT_LOOP.fullmatch(name):
        pixels, lowest, highest, unshifted = found.groups()
        shape = [int(pixels), *_limits(lowest, highest), int(bool(unshifted))]
        arguments = "const struct small_dot_walk *walk"
        return _wrapper(name, "small_dot_function", arguments, "dot_loop(walk, shape);", shape)
    product = "const int16_t *x, const int32_t *block, int8_t *y, const void *end"
    rows = "const int32_t *const *lines, int8_t *y, const int32_t *records, const int32_t *end"
    for pattern, arguments, c_type, call in (
        (_DOT, product, "fast_dot_function", "dot(x, block, y, end, shape);"),
        (_VECTOR, product, "fast_dot_function", "vector(x, block, y, end, shape);"),
        (_DEPTHWISE, rows, "fast_depthwise_function", "depthwise(lines, y, records, end, shape);"),
    ):
        if found := pattern.fullmatch(name):
            *sizes, lowest, highest, right, masked = found.groups()
            shape = [*map(int, sizes), int(right or 0), int(bool(masked)), *_limits(lowest, highest)]
            return _wrapper(name, c_type, arguments, call, shape)
    if found := _ADD.fullmatch(name):
        right, lowest, highest = found.groups()
        arguments = (
            "const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *y, const int8_t *end"
        )
        call = "sums(params, first, second, y, end, shape);"
        return _wrapper(name, "fast_add_function", arguments, call, [int(right), *_limits(lowest, highest)])
    if name == "widen_by_four":
        arguments = "const int8_t *source, int16_t *wide, int32_t rounds"
        call = "widen_all(source, wide, rounds);\n    (void)shape;"
        return _wrapper(name, "fast_widen_function", arguments, call, [0])
    if name == "widen_in_order":
        arguments = "const int8_t *source, int16_t *wide, int32_t rounds"
        call = "widen_in_turn(source, wide, rounds);\n    (void)shape;"
        return _wrapper(name, "fast_widen_function", arguments, call, [0])
    if found := re.fullmatch(r"widen_pixels_(\d+)", name):
        arguments = "const int8_t *source, int16_t *wide, int32_t pixels"
        call = "widen_pixels(source, wide, pixels, shape);"
        return _wrapper(name, "fast_widen_function", arguments, call, [int(found[1])])
    if name == "pair_rows":
        arguments = "const int8_t *upper, const int8_t *lower, int32_t *line, const int32_t *end, const int32_t *steps"
        call = "pair(upper, lower, line, end, steps);\n    (void)shape;"
        return _wrapper(name, "fast_depthwise_pair", arguments, call, [0])
    if name == "depthwise_interleave":
        arguments = "const int8_t *upper, const int8_t *lower, int32_t *line, int32_t pitch_bytes, int32_t rounds"
        call = "interleave(upper, lower, line, pitch_bytes, rounds);\n    (void)shape;"
        return _wrapper(name, "small_depthwise_interleave", arguments, call, [0])
    found = _SMALL_DEPTHWISE.fullmatch(name)
    assert found, name
    *sizes, lowest, highest, unshifted = found.groups()
    arguments = "const int32_t *const *lines, int8_t *y, const struct small_depthwise_walk *walk"
    shape = [*map(int, sizes), *_limits(lowest, highest), int(bool(unshifted))]
    return _wrapper(name, "small_depthwise_function", arguments, "small_depthwise_rows(lines, y, walk, shape);", shape)


def _limits(lowest: str | None, highest: str | None) -> tuple[int, int]:
    return int(lowest or 0) - 128, int(highest or 255) - 128


def _wrapper(name: str, c_type: str, arguments: str, call: str, shape: list[int]) -> str:
    numbers = ", ".join(map(str, shape))
    body = f"    static const int shape[] = {{{numbers}}};\n    {call}\n"
    return f"{c_type} {name};\nvoid {name}({arguments})\n{{\n{body}}}\n"
