/* add.h: ADD of two tensors, one of which may be repeated to the other's shape. The output may lie where an operand of
 * its own size lies.
 */
#ifndef ADD_H
#define ADD_H

#include <stdint.h>

#include "kernels/inner/broadcast.h"
#include "kernels/inner/requantise.h"

struct add_operand {
    int32_t zero_point;
    int32_t multiplier; /* of scale / (2 * larger scale) */
    int32_t right;
};

struct add {
    struct add_operand operands[2];
    int32_t multiplier; /* of 2 * larger scale / (2^20 * output scale) */
    int32_t left;
    int32_t right;
    struct requantise_range range;
    struct broadcast broadcast;
};

/* The same, and SUB, for operands of one shape, as (p * a + q * b + addend) >> right (stages/firmware/fast/add.py). */
#define FAST_ADD_ELEMENTS 8 /* of a round of the next one */

struct fast_add;

/* Generated assembly (stages/firmware/assembly/elementwise.py); `end` of the first operand, a whole number of rounds
 * on. */
typedef void fast_add_function(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output,
                               const int8_t *end);

struct fast_add {
    /* The assembly knows the places of these. */
    int32_t multipliers[2]; /* 2^8 times p and q */
    int32_t addend;

    fast_add_function *loop;
    int32_t right;
    int32_t lowest;
    int32_t highest;
    int32_t elements;
};

/* The same for an operand that is repeated: rows, which both have as they are, one by one. */
struct fast_add_rows {
    struct fast_add row;
    struct broadcast broadcast;
};

void add(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output);
void fast_add(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output);
void fast_add_rows(const struct fast_add_rows *params, const int8_t *first, const int8_t *second, int8_t *output);

#endif
