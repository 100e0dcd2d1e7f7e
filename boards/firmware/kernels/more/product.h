/* product.h: TRANSPOSE_CONV and BATCH_MATMUL. Inputs and output do not overlap. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include <stdint.h>

#include "kernels/inner/requantise.h"
#include "kernels/inner/window.h"

/* The window slides over the output, as if that were the input of a convolution. */
struct transpose_conv {
    const int8_t *weights;                     /* outputs, height, width, channels */
    const struct requantise_channel *channels; /* of each output; the bias holds no zero point */
    struct requantise_range range;
    struct window window; /* `input` is the map that is written, `output` the one that is read */
    uint16_t outputs;
    int32_t input_zero_point;
};

void transpose_conv(const struct transpose_conv *params, const int8_t *input, int8_t *output);

#define PRODUCT_BATCHES 3

struct batch_matmul {
    int32_t batches[PRODUCT_BATCHES]; /* sizes, of one element in front where there are fewer */
    int32_t steps[2][PRODUCT_BATCHES];
    int32_t rows;
    int32_t depth;
    int32_t columns;
    int32_t row_steps[2];    /* of the first operand: from row to row, along the depth */
    int32_t column_steps[2]; /* of the second: along the depth, from column to column */
    int32_t zero_points[2];
    int32_t multiplier;
    int32_t left;
    int32_t right;
    struct requantise_range range;
};

void batch_matmul(const struct batch_matmul *params, const int8_t *first, const int8_t *second, int8_t *output);

#endif
