#include "kernels/mul.h"

void mul(const struct mul *params, const int8_t *first, const int8_t *second, int8_t *output)
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
            const int32_t product = (*x - params->zero_points[0]) * (*y - params->zero_points[1]);
            const int32_t scaled = rescale(product, params->multiplier, params->left, params->right);
            *output++ = clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
            x += first_step;
            y += second_step;
        }
    }
}
