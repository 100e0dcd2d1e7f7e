/* pool_2d.h: AVERAGE_POOL_2D and MAX_POOL_2D; padding takes no part. Input and output share scale and zero point. */
#ifndef POOL_2D_H
#define POOL_2D_H

#include <stdint.h>

#include "kernels/inner/window.h"

struct pool_2d {
    struct window window;
    int32_t lowest; /* of the output, after a fused activation */
    int32_t highest;
};

void average_pool_2d(const struct pool_2d *pool, const int8_t *input, int8_t *output);
void max_pool_2d(const struct pool_2d *pool, const int8_t *input, int8_t *output);

#endif
