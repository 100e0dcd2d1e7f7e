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
    for (int32_t index = 0; index < params->elements; index++) {
        const int32_t sum = lifted(first[index], &params->operands[0]) + lifted(second[index], &params->operands[1]);
        const int32_t scaled = rescale(sum, params->multiplier, params->left, params->right);
        output[index] = clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
    }
}
