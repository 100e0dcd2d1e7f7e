/* softmax.c: the fixed-point softmax of TensorFlow Lite (gemmlowp's exponential and reciprocal), bit for bit.
 * Q5.26 means 5 integer and 26 fractional bits beside the sign.
 */
#include "kernels/softmax.h"

#include "kernels/inner/requantise.h"

#define QUARTER_Q5_26 (1 << 24)
#define EXP_MINUS_EIGHTH_Q31 1895147668
#define ONE_THIRD_Q31 715827883
#define SUM_INTEGER_BITS 12 /* the sum of exponentials is Q12.19: room for 4096 of them */

static int32_t saturating_shift_left(int32_t value, int32_t bits)
{
    const int64_t wide = (int64_t)value * (1 << bits);
    if (wide > INT32_MAX) {
        return INT32_MAX;
    }
    return wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
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
    if (value == 0) {
        return INT32_MAX;
    }
    const int32_t part = (value & (QUARTER_Q5_26 - 1)) - QUARTER_Q5_26;
    const int32_t rest = part - value;
    int32_t result = exp_near_minus_eighth(saturating_shift_left(part, 5));
    for (uint32_t bit = 0; bit < sizeof FACTORS / sizeof FACTORS[0]; bit++) {
        if ((rest & (QUARTER_Q5_26 << bit)) != 0) {
            result = high_multiply(result, FACTORS[bit]);
        }
    }
    return result;
}

/* 1 / (1 + value) for value in [0, 1), both Q31: three steps of Newton-Raphson in Q2.29. */
static int32_t one_over_one_plus(int32_t value)
{
    const int32_t half = (int32_t)(((int64_t)value + INT32_MAX + 1) / 2); /* (1 + value) / 2 */
    int32_t x = 1515870810 + high_multiply(half, -1010580540);            /* 48/17 - 32/17 * half */
    for (int step = 0; step < 3; step++) {
        const int32_t error = (1 << 29) - high_multiply(half, x);
        x += saturating_shift_left(high_multiply(x, error), 2);
    }
    return saturating_shift_left(x, 1);
}

static int32_t exp_of_difference(const struct softmax *params, int32_t difference)
{
    const int32_t shifted = (int32_t)((uint32_t)difference << params->left);
    return exp_of_negative(high_multiply(shifted, params->multiplier));
}

static void softmax_row(const struct softmax *params, const int8_t *input, int8_t *output)
{
    int32_t largest = INT8_MIN;
    for (int32_t index = 0; index < params->depth; index++) {
        largest = input[index] > largest ? input[index] : largest;
    }
    int32_t sum = 0;
    for (int32_t index = 0; index < params->depth; index++) {
        const int32_t difference = input[index] - largest;
        if (difference >= params->smallest_difference) {
            sum += rounding_shift_right(exp_of_difference(params, difference), SUM_INTEGER_BITS);
        }
    }
    const int32_t leading_zeros = __builtin_clz((uint32_t)sum); /* the maximum itself makes the sum positive */
    const int32_t scale = one_over_one_plus((int32_t)(((uint32_t)sum << leading_zeros) - (1u << 31)));
    const int32_t right = SUM_INTEGER_BITS - leading_zeros + 31 - 8;
    for (int32_t index = 0; index < params->depth; index++) {
        const int32_t difference = input[index] - largest;
        int32_t value = INT8_MIN;
        if (difference >= params->smallest_difference) {
            const int32_t share = high_multiply(exp_of_difference(params, difference), scale);
            value += right <= 31 ? rounding_shift_right(share, right) : 0; /* below a half of the last place */
        }
        output[index] = clamp(value, INT8_MIN, INT8_MAX);
    }
}

void softmax(const struct softmax *params, const int8_t *input, int8_t *output)
{
    for (int32_t row = 0; row < params->rows; row++) {
        softmax_row(params, &input[row * params->depth], &output[row * params->depth]);
    }
}
