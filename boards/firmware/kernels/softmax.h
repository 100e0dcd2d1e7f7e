/* softmax.h: SOFTMAX of int8 to int8 with scale 1/256 and zero point -128. The output may lie where the input lies. */
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include <stdint.h>

struct softmax {
    int32_t multiplier; /* of beta * input scale as 5.26 fixed point */
    int32_t left;
    int32_t smallest_difference; /* from the row's maximum; the exponential of anything below is taken as 0 */
    int32_t rows;
    int32_t depth;
};

void softmax(const struct softmax *params, const int8_t *input, int8_t *output);

#endif
