/* copy.h: PAD and CONCATENATION, which move bytes and compute nothing. Input and output do not overlap. */
#ifndef COPY_H
#define COPY_H

#include <stdint.h>

#define PAD_AXES 4

struct pad {
    int32_t sizes[PAD_AXES]; /* of the input, axes of one element in front where there are fewer */
    int32_t steps[PAD_AXES]; /* of the output, in elements */
    int32_t start;           /* where the input's first element goes */
    int32_t output_elements;
    int8_t value;
};

void pad(const struct pad *params, const int8_t *input, int8_t *output);

/* Rows of one part of a CONCATENATION to their places; `pitch` bytes lie between the rows of the output. */
void copy_rows(const int8_t *input, int32_t rows, int32_t row_bytes, int8_t *output, int32_t pitch);

#endif
