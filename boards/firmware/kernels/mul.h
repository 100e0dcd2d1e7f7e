/* mul.h: MUL of two tensors, one of which may be repeated to the other's shape. The output may lie where an operand of
 * its own size lies.
 */
#ifndef MUL_H
#define MUL_H

#include <stdint.h>

#include "kernels/inner/broadcast.h"
#include "kernels/inner/requantise.h"

struct mul {
    int32_t zero_points[2];
    int32_t multiplier; /* of the product of the operands' scales over the output's */
    int32_t left;
    int32_t right;
    struct requantise_range range;
    struct broadcast broadcast;
};

void mul(const struct mul *params, const int8_t *first, const int8_t *second, int8_t *output);

#endif
