/* move.h: every operator that moves bytes and computes nothing (TRANSPOSE, SLICE, SPLIT, GATHER, MIRROR_PAD, ...). The
 * place from where a byte comes is a sum of one number for each axis of the output. Input and output do not overlap.
 */
#ifndef MOVE_H
#define MOVE_H

#include <stdint.h>

#define MOVE_AXES 5
#define MOVE_NOWHERE INT32_MIN /* in a table: nothing comes from anywhere, the output is filled */

struct move_axis {
    int32_t size;
    int32_t step;         /* bytes of the input, or */
    const int32_t *table; /* where it comes from, by the place along the axis */
};

struct move {
    struct move_axis axes[MOVE_AXES]; /* axes of one element in front where there are fewer */
    int32_t start;                    /* in the input, in bytes */
    int32_t run;                      /* bytes that lie together on both sides */
    int8_t fill;
};

void move(const struct move *params, const int8_t *input, int8_t *output);

#endif
