#include "kernels/more/pairs.h"

#define SUB_HEADROOM_BITS 20
#define SQUARE_HEADROOM_BITS 7
#define MOST_SATURATED (1 << 16) /* a quotient that every range clamps */

static inline int32_t lifted(int8_t value, const struct add_operand *operand, int bits)
{
    return rescale((value - operand->zero_point) * (1 << bits), operand->multiplier, 0, operand->right);
}

static inline int8_t within(int32_t value, const struct requantise_range *range)
{
    return clamp(value + range->zero_point, range->lowest, range->highest);
}

static inline int8_t difference(const void *given, int8_t first, int8_t second)
{
    const struct add *params = given;
    const int32_t apart = lifted(first, &params->operands[0], SUB_HEADROOM_BITS) -
                          lifted(second, &params->operands[1], SUB_HEADROOM_BITS);
    return within(rescale(apart, params->multiplier, params->left, params->right), &params->range);
}

void sub(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, difference, params, first, second, output);
}

static inline int8_t larger(const void *given, int8_t first, int8_t second)
{
    (void)given;
    return first > second ? first : second;
}

void maximum(const struct extreme *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, larger, params, first, second, output);
}

static inline int8_t smaller(const void *given, int8_t first, int8_t second)
{
    (void)given;
    return first < second ? first : second;
}

void minimum(const struct extreme *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, smaller, params, first, second, output);
}

static inline int8_t square_of_difference(const void *given, int8_t first, int8_t second)
{
    const struct add *params = given;
    const int32_t apart = lifted(first, &params->operands[0], SQUARE_HEADROOM_BITS) -
                          lifted(second, &params->operands[1], SQUARE_HEADROOM_BITS);
    return within(rescale(apart * apart, params->multiplier, params->left, params->right), &params->range);
}

void squared_difference(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, square_of_difference, params, first, second, output);
}

static inline int32_t saturated_left(int32_t value, int bits)
{
    const int64_t wide = (int64_t)value * (INT64_C(1) << bits);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

/* 1 / (1 + value) for a value in [0, 1), both 0.31: three Newton-Raphson steps in 2.29, as gemmlowp does it. */
static int32_t one_over_one_plus(int32_t value)
{
    const int32_t half = (int32_t)(((int64_t)value + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + high_multiply(half, -1010580540); /* 48/17 - 32/17 * half */
    for (int step = 0; step < 3; step++) {
        const int32_t error = (1 << 29) - high_multiply(half, x);
        x += saturated_left(high_multiply(x, error), 2);
    }
    return saturated_left(x, 1);
}

static inline int8_t rescaled_quotient(const void *given, int8_t first, int8_t second)
{
    const struct mul *params = given;
    int32_t numerator = first - params->zero_points[0];
    int32_t divisor = second - params->zero_points[1];
    if (divisor < 0) {
        numerator = -numerator;
        divisor = -divisor;
    }
    if (divisor == 0) { /* the reference forbids it; an end of the range here */
        return within(numerator >= 0 ? MOST_SATURATED : -MOST_SATURATED, &params->range);
    }
    const int32_t zeros = __builtin_clz((uint32_t)divisor);
    const int32_t inverse = one_over_one_plus((int32_t)(((uint32_t)divisor << zeros) - (1u << 31)));
    const int32_t headroom = __builtin_clrsb(numerator);
    const int32_t lifted_quotient = high_multiply((int32_t)((uint32_t)numerator << headroom), inverse);
    const int32_t shift = params->left - params->right - (31 - zeros) - headroom;
    if (shift < -31) { /* only of 0 and -1; the reference shifts by what is left of a division by 32, then rounds up */
        const int32_t value = high_multiply(lifted_quotient, params->multiplier);
        return within((value >> (-shift & 31)) + (value >= 0), &params->range);
    }
    return within(rescale(lifted_quotient, params->multiplier, shift > 0 ? shift : 0, shift < 0 ? -shift : 0),
                  &params->range);
}

void quotient(const struct mul *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, rescaled_quotient, params, first, second, output);
}

static inline int8_t sloped(const void *given, int8_t first, int8_t second)
{
    const struct prelu *params = given;
    const int32_t value = first - params->zero_points[0];
    if (value >= 0) {
        return within(rescale(value, params->multiplier, params->left, params->right), &params->range);
    }
    const int32_t product = value * (second - params->zero_points[1]);
    return within(rescale(product, params->slope_multiplier, params->slope_left, params->slope_right),
                  &params->range);
}

void prelu(const struct prelu *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, sloped, params, first, second, output);
}
