/* resize.h: RESIZE_BILINEAR in steps of 1/1024 between neighbours. Input and output do not overlap. */
#ifndef RESIZE_H
#define RESIZE_H

#include <stdint.h>

struct resize_axis {
    int32_t input;
    int32_t output;
    int32_t scale; /* input places for each of the output, times 1024 */
    int32_t start; /* of the first one, times 1024 */
};

struct resize_bilinear {
    struct resize_axis down;
    struct resize_axis across;
    int32_t channels;
};

void resize_bilinear(const struct resize_bilinear *params, const int8_t *input, int8_t *output);

#endif
