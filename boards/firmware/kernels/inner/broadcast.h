/* broadcast.h: which elements of two operands meet, as TensorFlow broadcasts: up to four axes, the innermost last, axes
 * of one element in front where there are fewer. A step of 0 repeats the operand along that axis.
 */
#ifndef BROADCAST_H
#define BROADCAST_H

#include <stdint.h>

#define BROADCAST_AXES 4

struct broadcast {
    int32_t sizes[BROADCAST_AXES];    /* of the output */
    int32_t steps[2][BROADCAST_AXES]; /* of each operand, in elements; 0 or 1 on the last axis */
};

/* Where row `row` of the output begins in an operand; a row is the last axis. */
static inline int32_t broadcast_row(const struct broadcast *broadcast, int operand, int32_t row)
{
    int32_t offset = 0;
    for (int axis = BROADCAST_AXES - 2; axis >= 0; axis--) {
        offset += row % broadcast->sizes[axis] * broadcast->steps[operand][axis];
        row /= broadcast->sizes[axis];
    }
    return offset;
}

static inline int32_t broadcast_rows(const struct broadcast *broadcast)
{
    return broadcast->sizes[0] * broadcast->sizes[1] * broadcast->sizes[2];
}

#endif
