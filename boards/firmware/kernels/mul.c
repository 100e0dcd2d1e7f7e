#include "kernels/mul.h"

static inline int8_t rescaled_product(const void *given, int8_t first, int8_t second)
{
    const struct mul *params = given;
    const int32_t product = (first - params->zero_points[0]) * (second - params->zero_points[1]);
    const int32_t scaled = rescale(product, params->multiplier, params->left, params->right);
    return clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
}

void mul(const struct mul *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    broadcast_apply(&params->broadcast, rescaled_product, params, first, second, output);
}
