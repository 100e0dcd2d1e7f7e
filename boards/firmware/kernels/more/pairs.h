/* pairs.h: operators on two tensors, one of which may be repeated to the other's shape. The output may lie where an
 * operand of its own size lies.
 */
#ifndef PAIRS_H
#define PAIRS_H

#include <stdint.h>

#include "kernels/add.h"
#include "kernels/inner/broadcast.h"
#include "kernels/inner/requantise.h"
#include "kernels/mul.h"

/* SUB has the parameters of ADD. */
void sub(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output);

/* The larger or the smaller byte, whatever their grids. */
struct extreme {
    struct broadcast broadcast;
};

void maximum(const struct extreme *params, const int8_t *first, const int8_t *second, int8_t *output);
void minimum(const struct extreme *params, const int8_t *first, const int8_t *second, int8_t *output);

/* Like ADD, with 7 more bits; `multiplier` is of (2 * larger scale)^2 / (2^14 * output scale). */
void squared_difference(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output);

/* Like MUL; `multiplier` is of the first scale over the second and the output's. */
void quotient(const struct mul *params, const int8_t *first, const int8_t *second, int8_t *output);

/* PRELU: values below zero are multiplied by the second operand. */
struct prelu {
    int32_t zero_points[2];
    int32_t multiplier; /* of input scale / output scale */
    int32_t left;
    int32_t right;
    int32_t slope_multiplier; /* of the product of the operands' scales over the output's */
    int32_t slope_left;
    int32_t slope_right;
    struct requantise_range range;
    struct broadcast broadcast;
};

void prelu(const struct prelu *params, const int8_t *first, const int8_t *second, int8_t *output);

#endif
