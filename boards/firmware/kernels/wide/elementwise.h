/* elementwise.h: operators on int16 values, one at a time or two that meet; all zero points of int16 are 0. The output may
 * lie where an operand of its own size lies.
 */
#ifndef WIDE_ELEMENTWISE_H
#define WIDE_ELEMENTWISE_H

#include <stdint.h>

#include "kernels/add.h"
#include "kernels/inner/broadcast.h"
#include "kernels/more/pairs.h"
#include "kernels/mul.h"

#define WIDE_ADD_HEADROOM_BITS 15

void wide_add(const struct add *params, const void *first, const void *second, void *output);
void wide_sub(const struct add *params, const void *first, const void *second, void *output);
void wide_mul(const struct mul *params, const void *first, const void *second, void *output);
void wide_maximum(const struct extreme *params, const void *first, const void *second, void *output);
void wide_minimum(const struct extreme *params, const void *first, const void *second, void *output);

/* RELU, RELU6, LEAKY_RELU, QUANTIZE: one factor for values of 0 and above, one for those below. */
struct wide_slope {
    int32_t multiplier; /* below 0 for a falling line */
    int32_t left;
    int32_t right;
};

struct wide_slopes {
    struct wide_slope above;
    struct wide_slope below;
    int32_t input_zero_point;
    struct requantise_range range;
    int32_t elements;
    int32_t is_from_int8;
    int32_t is_to_int8;
};

void wide_slopes(const struct wide_slopes *params, const void *input, void *output);

/* LOGISTIC and TANH: straight lines between 256 places of a sigmoid. */
struct wide_curve {
    const uint16_t *sigmoid;
    int32_t multiplier;
    int32_t shift; /* to the right */
    int32_t is_tanh;
    int32_t elements;
};

void wide_curve(const struct wide_curve *params, const void *input, void *output);

/* SOFTMAX: both tables have 513 places, with straight lines between them. */
struct wide_softmax {
    const int16_t *powers;      /* exp(x), -10 to 0 */
    const int16_t *reciprocals; /* 1 / (1 + x), 0 to 1 */
    int32_t multiplier;
    int32_t left;
    int32_t right;
    int32_t rows;
    int32_t depth;
};

void wide_softmax(const struct wide_softmax *params, const void *input, void *output);

#endif
