/* requantise.h: from 32-bit sums to int8, with TensorFlow Lite Micro's double rounding (gemmlowp's fixed point).
 * Signed arithmetic wraps here (the build uses -fwrapv), as it does in the reference.
 */
#ifndef REQUANTISE_H
#define REQUANTISE_H

#include <stdint.h>

/* One output channel: out = zero point + (sum + bias) * multiplier * 2^(left - right - 31). */
struct requantise_channel {
    int32_t bias;       /* holds -input_zero_point * (sum of the channel's weights) as well */
    int32_t multiplier; /* 2^30 .. 2^31-1, or 0 */
    int16_t left;       /* one of the two shifts is 0 */
    int16_t right;
};

struct requantise_range {
    int32_t zero_point;
    int32_t lowest; /* of the output, after a fused activation */
    int32_t highest;
};

/* Upper half of 2 * a * b, to nearest, ties upwards. Not both may be INT32_MIN. */
static inline int32_t high_multiply(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

/* value / 2^exponent, to nearest, ties away from zero; exponent 0 .. 31. Neither INT32_MIN nor INT32_MAX with exponent
 * 1 may come, nor do they: a product of high_multiply() with a multiplier below 2^31 stays inside. */
static inline int32_t rounding_shift_right(int32_t value, int32_t exponent)
{
    if (exponent == 0) {
        return value;
    }
    const int32_t nudged =
        value + (value >> 31); /* then a negative tie is none any more, and adding a half rounds it down */
    return ((nudged >> (exponent - 1)) + 1) >> 1;
}

static inline int32_t rescale(int32_t value, int32_t multiplier, int32_t left, int32_t right)
{
    return rounding_shift_right(high_multiply((int32_t)((uint32_t)value << left), multiplier), right);
}

static inline int8_t clamp(int32_t value, int32_t lowest, int32_t highest)
{
#ifdef __ARM_FEATURE_DSP
    if (__builtin_constant_p(lowest) && __builtin_constant_p(highest) && lowest == INT8_MIN && highest == INT8_MAX) {
        int32_t result;
        __asm("ssat %0, #8, %1" : "=r"(result) : "r"(value));
        return (int8_t)result;
    }
#endif
    const int32_t floored = value < lowest ? lowest : value;
    return (int8_t)(floored > highest ? highest : floored);
}

/* `sum` includes the bias already. */
static inline int8_t requantise(int32_t sum, const struct requantise_channel *channel,
                                const struct requantise_range *range)
{
    const int32_t scaled = rescale(sum, channel->multiplier, channel->left, channel->right);
    return clamp(scaled + range->zero_point, range->lowest, range->highest);
}

#endif
