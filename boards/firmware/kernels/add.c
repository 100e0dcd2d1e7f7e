/* add.c: both operands are brought to one scale with 20 more bits, added, and brought to the output's scale. */
#include "kernels/add.h"

#define HEADROOM_BITS 20

static inline int32_t lifted(int8_t value, const struct add_operand *operand)
{
    const int32_t wide = (value - operand->zero_point) * (1 << HEADROOM_BITS);
    return rescale(wide, operand->multiplier, 0, operand->right);
}

void add(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    const struct broadcast *broadcast = &params->broadcast;
    const int32_t count = broadcast->sizes[BROADCAST_AXES - 1];
    const int32_t first_step = broadcast->steps[0][BROADCAST_AXES - 1];
    const int32_t second_step = broadcast->steps[1][BROADCAST_AXES - 1];
    const int32_t rows = broadcast_rows(broadcast);
    for (int32_t row = 0; row < rows; row++) {
        const int8_t *x = &first[broadcast_row(broadcast, 0, row)];
        const int8_t *y = &second[broadcast_row(broadcast, 1, row)];
        for (int32_t index = 0; index < count; index++) {
            const int32_t sum = lifted(*x, &params->operands[0]) + lifted(*y, &params->operands[1]);
            const int32_t scaled = rescale(sum, params->multiplier, params->left, params->right);
            *output++ = clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
            x += first_step;
            y += second_step;
        }
    }
}

static inline int8_t sum_of(const struct fast_add *params, int8_t first, int8_t second, int32_t lowest, int32_t highest)
{
    const int32_t doubled = params->lifted[0][(uint8_t)first] + params->lifted[1][(uint8_t)second];
    const int32_t product = high_product_rounded(doubled, params->multiplier, params->addend);
    return clamp((product + (doubled >> 31)) >> params->right, lowest, highest); /* the sign: ties away from zero */
}

static inline void add_all(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output,
                           int32_t lowest, int32_t highest)
{
    const struct fast_add local = *params; /* for all that the compiler knows, the output might overwrite it */
    int32_t index = 0;
    for (; index + 3 < local.elements; index += 4) {
        const int8_t sum_0 = sum_of(&local, first[index], second[index], lowest, highest);
        const int8_t sum_1 = sum_of(&local, first[index + 1], second[index + 1], lowest, highest);
        const int8_t sum_2 = sum_of(&local, first[index + 2], second[index + 2], lowest, highest);
        const int8_t sum_3 = sum_of(&local, first[index + 3], second[index + 3], lowest, highest);
        output[index] = sum_0;
        output[index + 1] = sum_1;
        output[index + 2] = sum_2;
        output[index + 3] = sum_3;
    }
    for (; index < local.elements; index++) {
        output[index] = sum_of(&local, first[index], second[index], lowest, highest);
    }
}

void fast_add(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    if (params->lowest == INT8_MIN && params->highest == INT8_MAX) { /* then clamping is one instruction */
        add_all(params, first, second, output, INT8_MIN, INT8_MAX);
    } else {
        add_all(params, first, second, output, params->lowest, params->highest);
    }
}
