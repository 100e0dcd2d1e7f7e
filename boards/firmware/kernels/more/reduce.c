#include "kernels/more/reduce.h"

#include "kernels/inner/requantise.h"

#define L2_BITS 7

static int8_t extreme_of(const struct reduce *params, const int8_t *input)
{
    int8_t best = *input;
    for (int32_t line = 0; line < params->gone[0].size; line++) {
        const int8_t *x = &input[line * params->gone[0].step];
        for (int32_t index = 0; index < params->gone[1].size; index++) {
            best = (params->is_largest ? *x > best : *x < best) ? *x : best;
            x += params->gone[1].step;
        }
    }
    return best;
}

void reduce_extreme(const struct reduce *params, const int8_t *input, int8_t *output)
{
    for (int32_t outer = 0; outer < params->kept[0].size; outer++) {
        for (int32_t inner = 0; inner < params->kept[1].size; inner++) {
            *output++ = extreme_of(params, &input[outer * params->kept[0].step + inner * params->kept[1].step]);
        }
    }
}

void best_index(const struct best_index *params, const int8_t *input, int32_t *output)
{
    for (int32_t outer = 0; outer < params->outer; outer++) {
        for (int32_t inner = 0; inner < params->inner; inner++) {
            const int8_t *x = &input[outer * params->size * params->inner + inner];
            int32_t best = 0;
            for (int32_t index = 1; index < params->size; index++) {
                const int8_t value = x[index * params->inner];
                const int8_t held = x[best * params->inner];
                best = (params->is_largest ? value > held : value < held) ? index : best;
            }
            *output++ = best;
        }
    }
}

static inline int32_t saturated_left(int32_t value, int bits)
{
    const int64_t wide = (int64_t)value * (INT64_C(1) << bits);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

/* 1 / sqrt(value) as a multiplier and a shift to the left: five Newton-Raphson steps in 3.28, as gemmlowp does it. */
static int32_t inverse_root(int32_t value, int32_t *shift)
{
    if (value <= 1) {
        *shift = 0;
        return INT32_MAX;
    }
    int32_t right = 11;
    while (value >= 1 << 29) {
        value /= 4;
        right++;
    }
    const int32_t pairs = (__builtin_clz((uint32_t)value) - 1) / 2 - 1;
    right -= pairs;
    const int32_t half = rounding_shift_right((int32_t)((uint32_t)value << (2 * pairs)) >> 1, 1);
    int32_t x = 1 << 28;
    for (int step = 0; step < 5; step++) {
        const int32_t cube = saturated_left(high_multiply(high_multiply(x, x), x), 6);
        x = saturated_left(high_multiply(x, 3 << 27) - high_multiply(half, cube), 3);
    }
    int32_t multiplier = high_multiply(x, 1518500250); /* sqrt(1/2) */
    if (right < 0) {
        multiplier = (int32_t)((uint32_t)multiplier << -right);
        right = 0;
    }
    *shift = -right;
    return multiplier;
}

void l2_normalise(const struct l2_normalise *params, const int8_t *input, int8_t *output)
{
    for (int32_t row = 0; row < params->rows; row++) {
        int32_t sum = 0;
        for (int32_t index = 0; index < params->depth; index++) {
            const int32_t value = input[index] - params->zero_point;
            sum += value * value;
        }
        int32_t shift;
        const int32_t multiplier = inverse_root(sum, &shift);
        shift += L2_BITS;
        for (int32_t index = 0; index < params->depth; index++) {
            const int32_t value = input[index] - params->zero_point;
            const int32_t scaled = rescale(value, multiplier, shift > 0 ? shift : 0, shift < 0 ? -shift : 0);
            output[index] = clamp(scaled, INT8_MIN, INT8_MAX);
        }
        input += params->depth;
        output += params->depth;
    }
}
