#include "kernels/wide/elementwise.h"

static int16_t limited(int32_t value, int32_t lowest, int32_t highest)
{
    return (int16_t)(value < lowest ? lowest : value > highest ? highest : value);
}

typedef int32_t wide_pair(const void *params, int32_t first, int32_t second);

__attribute__((always_inline)) static inline void apply(const struct broadcast *broadcast, wide_pair *combine,
                                                        const void *params, const int16_t *first,
                                                        const int16_t *second, int16_t *output)
{
    const int32_t count = broadcast->sizes[BROADCAST_AXES - 1];
    for (int32_t row = 0; row < broadcast_rows(broadcast); row++) {
        const int16_t *x = &first[broadcast_row(broadcast, 0, row)];
        const int16_t *y = &second[broadcast_row(broadcast, 1, row)];
        for (int32_t index = 0; index < count; index++) {
            *output++ = (int16_t)combine(params, *x, *y);
            x += broadcast->steps[0][BROADCAST_AXES - 1];
            y += broadcast->steps[1][BROADCAST_AXES - 1];
        }
    }
}

static int32_t lifted(const struct add_operand *operand, int32_t value)
{
    return rescale(value << WIDE_ADD_HEADROOM_BITS, operand->multiplier, 0, operand->right);
}

static int32_t onto(const struct add *params, int32_t value)
{
    const int32_t scaled = rescale(value, params->multiplier, params->left, params->right);
    return limited(scaled, params->range.lowest, params->range.highest);
}

static int32_t sum(const void *params, int32_t first, int32_t second)
{
    const struct add *add = params;
    return onto(add, lifted(&add->operands[0], first) + lifted(&add->operands[1], second));
}

static int32_t difference(const void *params, int32_t first, int32_t second)
{
    const struct add *add = params;
    return onto(add, lifted(&add->operands[0], first) - lifted(&add->operands[1], second));
}

static int32_t product(const void *params, int32_t first, int32_t second)
{
    const struct mul *mul = params;
    const int32_t scaled = rescale(first * second, mul->multiplier, mul->left, mul->right);
    return limited(scaled, mul->range.lowest, mul->range.highest);
}

static int32_t larger(const void *params, int32_t first, int32_t second)
{
    (void)params;
    return first > second ? first : second;
}

static int32_t smaller(const void *params, int32_t first, int32_t second)
{
    (void)params;
    return first < second ? first : second;
}

void wide_add(const struct add *params, const void *first, const void *second, void *output)
{
    apply(&params->broadcast, sum, params, first, second, output);
}

void wide_sub(const struct add *params, const void *first, const void *second, void *output)
{
    apply(&params->broadcast, difference, params, first, second, output);
}

void wide_mul(const struct mul *params, const void *first, const void *second, void *output)
{
    apply(&params->broadcast, product, params, first, second, output);
}

void wide_maximum(const struct extreme *params, const void *first, const void *second, void *output)
{
    apply(&params->broadcast, larger, params, first, second, output);
}

void wide_minimum(const struct extreme *params, const void *first, const void *second, void *output)
{
    apply(&params->broadcast, smaller, params, first, second, output);
}

void wide_slopes(const struct wide_slopes *params, const void *input, void *output)
{
    for (int32_t index = 0; index < params->elements; index++) {
        const int32_t stored = params->is_from_int8 ? ((const int8_t *)input)[index] : ((const int16_t *)input)[index];
        const int32_t value = stored - params->input_zero_point;
        const struct wide_slope *slope = value >= 0 ? &params->above : &params->below;
        const int32_t scaled = rescale(value, slope->multiplier, slope->left, slope->right);
        const int16_t result =
            limited(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
        if (params->is_to_int8) {
            ((int8_t *)output)[index] = (int8_t)result;
        } else {
            ((int16_t *)output)[index] = result;
        }
    }
}

/* The sigmoid at `size`, which counts 2^bits from one place of the table to the next. */
static int32_t between(const uint16_t *sigmoid, int32_t size, int32_t bits, int32_t saturates)
{
    const int32_t place = size >> bits;
    if (place >= 255) {
        return saturates;
    }
    const int32_t here = sigmoid[place];
    return (here << bits) + (size & ((1 << bits) - 1)) * (sigmoid[place + 1] - here);
}

void wide_curve(const struct wide_curve *params, const void *input, void *output)
{
    const int16_t *values = input;
    int16_t *results = output;
    const int32_t half = (1 << params->shift) >> 1;
    for (int32_t index = 0; index < params->elements; index++) {
        const int32_t value = (values[index] * params->multiplier + half) >> params->shift;
        const int32_t size = value < 0 ? -value : value;
        if (params->is_tanh) { /* 2 * sigmoid(2 * value) - 1 */
            const int32_t curve = between(params->sigmoid, size, 8, 0xFFFF << 8) - (1 << 23);
            results[index] = (int16_t)((value >= 0 ? curve + (1 << 7) : -curve + (1 << 7) - 1) >> 8);
        } else {
            const int32_t curve = between(params->sigmoid, size, 9, 0x7FFF << 10);
            results[index] = (int16_t)((value >= 0 ? curve + (1 << 9) : (1 << 25) - curve + (1 << 9) - 1) >> 10);
        }
    }
}

static int32_t looked_up(const int16_t *table, int32_t value)
{
    const int16_t *const base = &table[256 + (value >> 7)];
    return base[0] + (((base[1] - base[0]) * (value & 0x7f) + 64) >> 7);
}

static void softmax_row(const struct wide_softmax *params, const int16_t *input, int16_t *output)
{
    int32_t largest = INT16_MIN, total = 0;
    for (int32_t index = 0; index < params->depth; index++) {
        largest = input[index] > largest ? input[index] : largest;
    }
    for (int32_t index = 0; index < params->depth; index++) {
        const int32_t below = rescale(input[index] - largest, params->multiplier, params->left, params->right);
        output[index] = (int16_t)looked_up(params->powers, limited(below + INT16_MAX, INT16_MIN, INT16_MAX));
        total += output[index];
    }
    const int32_t headroom = __builtin_clz((uint32_t)total);
    const int32_t shifted = (int32_t)((((int64_t)total << (headroom - 1)) + (1 << 13)) >> 14);
    const int32_t place = limited(shifted - (1 << 15) - (1 << 16), INT16_MIN, INT16_MAX);
    const int32_t inverse = looked_up(params->reciprocals, place);
    const int32_t right = 31 - headroom;
    for (int32_t index = 0; index < params->depth; index++) {
        const int64_t scaled = ((int64_t)output[index] * inverse + (INT64_C(1) << (right - 1))) >> right;
        output[index] = limited((int32_t)scaled, 0, INT16_MAX);
    }
}

void wide_softmax(const struct wide_softmax *params, const void *input, void *output)
{
    for (int32_t row = 0; row < params->rows; row++) {
        const int32_t start = row * params->depth;
        softmax_row(params, &((const int16_t *)input)[start], &((int16_t *)output)[start]);
    }
}
