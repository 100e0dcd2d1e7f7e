/* add.c: both operands are brought to one scale with 20 more bits, added, and brought to the output's scale. */
#include "kernels/add.h"

#define HEADROOM_BITS 20

static inline int32_t lifted(int8_t value, const struct add_operand *operand)
{
    const int32_t wide = (value - operand->zero_point) * (1 << HEADROOM_BITS);
    return rescale(wide, operand->multiplier, 0, operand->right);
}

static inline int8_t rescaled_sum(const void *given, int8_t first, int8_t second)
{
    const struct add *params = given;
    const int32_t sum = lifted(first, &params->operands[0]) + lifted(second, &params->operands[1]);
    const int32_t scaled = rescale(sum, params->multiplier, params->left, params->right);
    return clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
}

void add(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, rescaled_sum, params, first, second, output);
}

static int32_t product(int8_t value, int32_t multiplier)
{
    return (int32_t)(((int64_t)value * multiplier) >> 8);
}

static int8_t sum_of(const struct fast_add *params, int8_t first, int8_t second)
{
    const int32_t both = product(first, params->multipliers[0]) + product(second, params->multipliers[1]);
    return clamp((both + params->addend) >> params->right, params->lowest, params->highest);
}

void fast_add(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    const int32_t whole = params->elements - params->elements % FAST_ADD_ELEMENTS;
    if (whole > 0) {
        params->loop(params, first, second, output, &first[whole]);
    }
    for (int32_t index = whole; index < params->elements; index++) {
        output[index] = sum_of(params, first[index], second[index]);
    }
}

void fast_add_rows(const struct fast_add_rows *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    const int32_t rows = broadcast_rows(&params->broadcast);
    for (int32_t row = 0; row < rows; row++) {
        const int8_t *const x = &first[broadcast_row(&params->broadcast, 0, row)];
        const int8_t *const y = &second[broadcast_row(&params->broadcast, 1, row)];
        fast_add(&params->row, x, y, &output[row * params->row.elements]);
    }
}
