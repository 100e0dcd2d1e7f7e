/* layers.h: convolutions, dense layers, pooling and means of int16 activations; weights are int8, all zero points 0. Input
 * and output do not overlap.
 */
#ifndef WIDE_LAYERS_H
#define WIDE_LAYERS_H

#include <stdint.h>

#include "kernels/inner/window.h"
#include "kernels/mean.h"
#include "kernels/pool_2d.h"

/* One output channel. Sums of 64 bits: (sum * multiplier + half) >> shift with a multiplier of 15 bits. Sums of 32 bits:
 * the multiplier is of 31 bits, and the shift, to the left or below 0 to the right, that of rescale(). */
struct wide_channel {
    int64_t bias;
    int32_t multiplier;
    int32_t shift;
};

struct wide_layer {
    const int8_t *weights;
    const struct wide_channel *channels;
    struct window window; /* a dense layer is a window of one tap over lines of one pixel */
    int32_t outputs;
    int32_t depth_multiplier; /* 0: every output sees all channels */
    int32_t is_narrow;        /* sums of 32 bits */
    int32_t lowest;
    int32_t highest;
};

void wide_layer(const struct wide_layer *layer, const void *input, void *output);
void wide_average_pool(const struct pool_2d *pool, const void *input, void *output);
void wide_max_pool(const struct pool_2d *pool, const void *input, void *output);
void wide_mean(const struct mean *params, const void *input, void *output);

#endif
