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

/* The same from tables, for operands of one shape: an operand takes only 256 values. */
#define FAST_ADD_ELEMENTS 4 /* of a round of the next one */

struct fast_add;

/* Generated assembly (stages/firmware/assembly/elementwise.py); `end` of the first operand, a whole number of rounds
 * on. */
typedef void fast_add_function(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output,
                               const int8_t *end);

struct fast_add {
    /* The assembly knows the places of these. */
    const int32_t *lifted[2]; /* by the operand's byte: its value on the common scale, twice */
    int32_t multiplier;
    int32_t addend; /* half of the last place and the zero point */

    fast_add_function *loop;
    int32_t right; /* at least 1 */
    int32_t lowest;
    int32_t highest;
    int32_t elements;
};

/* The same with tables that are filled first, where flash is short; `lifted` of the parameters counts for nothing. */
struct fast_add_filled {
    struct fast_add params;
    struct add_operand operands[2];
};

/* The same for an operand that is repeated: rows, which both have as they are, one by one. */
struct fast_add_rows {
    struct fast_add row;
    struct broadcast broadcast;
};

void add(const struct add *params, const int8_t *first, const int8_t *second, int8_t *output);
void fast_add(const struct fast_add *params, const int8_t *first, const int8_t *second, int8_t *output);
void fast_add_rows(const struct fast_add_rows *params, const int8_t *first, const int8_t *second, int8_t *output);
void fast_add_filled(const struct fast_add_filled *filled, const int8_t *first, const int8_t *second,
                     int32_t tables[2][256], int8_t *output);

#endif
