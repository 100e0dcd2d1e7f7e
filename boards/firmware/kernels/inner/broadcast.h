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

/* What an operator makes of two elements that meet. */
typedef int8_t broadcast_function(const void *params, int8_t first, int8_t second);

/* Every element of the output in turn. Inlined, so that `combine` becomes part of the loop of each kernel. */
__attribute__((always_inline)) static inline void broadcast_apply(const struct broadcast *broadcast,
                                                                  broadcast_function *combine, const void *params,
                                                                  const int8_t *first, const int8_t *second,
                                                                  int8_t *output)
{
    const int32_t count = broadcast->sizes[BROADCAST_AXES - 1];
    const int32_t first_step = broadcast->steps[0][BROADCAST_AXES - 1];
    const int32_t second_step = broadcast->steps[1][BROADCAST_AXES - 1];
    const int32_t rows = broadcast_rows(broadcast);
    for (int32_t row = 0; row < rows; row++) {
        const int8_t *x = &first[broadcast_row(broadcast, 0, row)];
        const int8_t *y = &second[broadcast_row(broadcast, 1, row)];
        for (int32_t index = 0; index < count; index++) {
            *output++ = combine(params, *x, *y);
            x += first_step;
            y += second_step;
        }
    }
}

#endif
