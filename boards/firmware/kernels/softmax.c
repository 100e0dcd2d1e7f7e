/* softmax.c: the fixed-point softmax of TensorFlow Lite (gemmlowp's exponential and reciprocal), bit for bit.
 * Q5.26 means 5 integer and 26 fractional bits beside the sign.
 *
 * Nothing branches on a value, so that a call takes the same time for any input, which can be told before training.
 */
#include "kernels/softmax.h"

#include "kernels/inner/requantise.h"

#define QUARTER_Q5_26 (1 << 24)
#define EXP_MINUS_EIGHTH_Q31 1895147668
#define ONE_THIRD_Q31 715827883
#define SUM_INTEGER_BITS 12 /* the sum of exponentials is Q12.19: room for 4096 of them */
#define SHARE_BITS 8        /* of an output, a fraction of 1 */

/* `mask` is 0 or -1. Arithmetic, because compilers make branches of conditions. */
static inline int32_t chosen(int32_t mask, int32_t if_set, int32_t if_clear)
{
    return if_clear ^ ((if_clear ^ if_set) & mask);
}

/* exp(value) for value in [-1/4, 0), both Q31: Taylor's polynomial of degree 4 around -1/8. */
static int32_t exp_near_minus_eighth(int32_t value)
{
    const int32_t x = value + (1 << 28);
    const int32_t x2 = high_multiply(x, x);
    const int32_t x3 = high_multiply(x2, x);
    const int32_t x4 = high_multiply(x2, x2);
    const int32_t cubic = high_multiply(rounding_shift_right(x4, 2) + x3, ONE_THIRD_Q31);
    const int32_t tail = rounding_shift_right(cubic + x2, 1);
    return EXP_MINUS_EIGHTH_Q31 + high_multiply(EXP_MINUS_EIGHTH_Q31, x + tail);
}

/* exp(value) as Q31 for value <= 0 in Q5.26. */
static int32_t exp_of_negative(int32_t value)
{
    /* exp(-2^k) for k = -2 .. 4 as Q31: one factor for each bit of the value from 1/4 up. */
    static const int32_t FACTORS[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t part = (value & (QUARTER_Q5_26 - 1)) - QUARTER_Q5_26;
    const int32_t rest = part - value;
    int32_t result = exp_near_minus_eighth(part * 32);
    for (int32_t bit = 0; bit < (int32_t)(sizeof FACTORS / sizeof FACTORS[0]); bit++) {
        const int32_t is_set = (int32_t)((uint32_t)rest << (7 - bit)) >> 31; /* bit 24 of the rest is a quarter */
        result = chosen(is_set, high_multiply(result, FACTORS[bit]), result);
    }
    return chosen(value >> 31, result, INT32_MAX);
}

/* 1 / (1 + value) for value in [0, 1), both Q31: three steps of Newton-Raphson in Q2.29. */
static int32_t one_over_one_plus(int32_t value)
{
    const int32_t half = (int32_t)(((int64_t)value + INT32_MAX + 1) / 2); /* (1 + value) / 2 */
    int32_t x = 1515870810 + high_multiply(half, -1010580540);            /* 48/17 - 32/17 * half */
    for (int step = 0; step < 3; step++) {
        const int32_t error = (1 << 29) - high_multiply(half, x);
        x += high_multiply(x, error) * 4; /* small: the first x is within 1/17 of the quotient */
    }
    return chosen((x - (1 << 30)) >> 31, (int32_t)((uint32_t)x << 1), INT32_MAX);
}

/* As Q31; 0 of what lies too far below the row's maximum. Called, for it is 500 bytes long in each of two places. */
__attribute__((noinline)) static int32_t exp_of_difference(const struct softmax *params, int32_t difference)
{
    const int32_t shifted = (int32_t)((uint32_t)difference << params->left);
    const int32_t found = exp_of_negative(high_multiply(shifted, params->multiplier));
    return found & ~((difference - params->smallest_difference) >> 31);
}

static void softmax_row(const struct softmax *params, const int8_t *input, int8_t *output)
{
    int32_t largest = INT8_MIN;
    for (int32_t index = 0; index < params->depth; index++) {
        largest = chosen((largest - input[index]) >> 31, input[index], largest);
    }
    int32_t sum = 0;
    for (int32_t index = 0; index < params->depth; index++) {
        sum += rounding_shift_right(exp_of_difference(params, input[index] - largest), SUM_INTEGER_BITS);
    }
    const int32_t leading_zeros = __builtin_clz((uint32_t)sum); /* the maximum itself makes the sum positive */
    const int32_t scale = one_over_one_plus((int32_t)(((uint32_t)sum << leading_zeros) - (1u << 31)));
    for (int32_t index = 0; index < params->depth; index++) {
        const int32_t share = high_multiply(exp_of_difference(params, input[index] - largest), scale);
        /* Rounded at a bit that may lie beyond the word: in two shifts. */
        const int32_t doubled = (share >> (31 - SHARE_BITS - 1)) >> (SUM_INTEGER_BITS - leading_zeros);
        output[index] = clamp(((doubled + 1) >> 1) + INT8_MIN, INT8_MIN, INT8_MAX);
    }
}

void softmax(const struct softmax *params, const int8_t *input, int8_t *output)
{
    for (int32_t row = 0; row < params->rows; row++) {
        softmax_row(params, &input[row * params->depth], &output[row * params->depth]);
    }
}
