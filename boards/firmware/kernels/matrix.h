/* matrix.h: rows of int8 times int8 weights. A FULLY_CONNECTED layer, a pointwise convolution (a row is a pixel) and,
 * row by row, every other convolution are this.
 */
#ifndef MATRIX_H
#define MATRIX_H

#include <stdint.h>

#include "kernels/inner/requantise.h"

struct matrix {
    const int8_t *weights;                     /* outputs x depth */
    const struct requantise_channel *channels; /* one per output */
    struct requantise_range range;
    int32_t depth;
    int32_t outputs;
};

/* `input` is rows x depth, `output` rows x outputs; they do not overlap. */
void matrix_multiply(const struct matrix *matrix, const int8_t *input, int32_t rows, int8_t *output);

#endif
