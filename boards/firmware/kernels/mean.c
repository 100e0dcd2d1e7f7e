#include "kernels/mean.h"

static int32_t sum_of(const struct mean *params, const int8_t *input)
{
    const struct mean_axis outer = params->summed[0];
    const struct mean_axis inner = params->summed[1];
    int32_t sum = 0;
    for (int32_t line = 0; line < outer.size; line++) {
        const int8_t *x = &input[line * outer.step];
#pragma GCC unroll 4
        for (int32_t index = 0; index < inner.size; index++) {
            sum += *x;
            x += inner.step;
        }
    }
    return sum;
}

void mean(const struct mean *params, const int8_t *input, int8_t *output)
{
    for (int32_t outer = 0; outer < params->kept[0].size; outer++) {
        const int8_t *x = &input[outer * params->kept[0].step];
        for (int32_t inner = 0; inner < params->kept[1].size; inner++) {
            const int32_t sum = sum_of(params, x) + params->offset;
            const int32_t scaled = rescale(sum, params->multiplier, params->left, params->right);
            *output++ = clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
            x += params->kept[1].step;
        }
    }
}
