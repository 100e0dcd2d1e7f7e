#include "kernels/more/move.h"

#include <stdbool.h>
#include <string.h>

/* Where place `index` of an axis begins; false: nowhere. */
static inline bool place(const struct move_axis *axis, int32_t index, int32_t *offset)
{
    const int32_t found = axis->table != NULL ? axis->table[index] : index * axis->step;
    *offset += found != MOVE_NOWHERE ? found : 0;
    return found != MOVE_NOWHERE;
}

/* All of the last axis, for one place along each of the others. */
static int8_t *move_row(const struct move *params, const int8_t *input, bool is_inside, int8_t *output)
{
    const struct move_axis *axis = &params->axes[MOVE_AXES - 1];
    const int32_t run = params->run;
    if (is_inside && axis->table == NULL && run == 1) {
        for (int32_t index = 0; index < axis->size; index++) {
            *output++ = *input;
            input += axis->step;
        }
        return output;
    }
    for (int32_t index = 0; index < axis->size; index++) {
        int32_t offset = 0;
        if (place(axis, index, &offset) && is_inside) {
            memcpy(output, &input[offset], (size_t)run);
        } else {
            memset(output, params->fill, (size_t)run);
        }
        output += run;
    }
    return output;
}

void move(const struct move *params, const int8_t *input, int8_t *output)
{
    const struct move_axis *axes = params->axes;
    int32_t at[MOVE_AXES - 1] = {0};
    while (at[0] < axes[0].size) {
        int32_t offset = params->start;
        bool is_inside = true;
        for (int axis = 0; axis < MOVE_AXES - 1; axis++) {
            is_inside = place(&axes[axis], at[axis], &offset) && is_inside;
        }
        output = move_row(params, &input[is_inside ? offset : 0], is_inside, output);
        int axis = MOVE_AXES - 2;
        at[axis]++;
        while (axis > 0 && at[axis] == axes[axis].size) {
            at[axis--] = 0;
            at[axis]++;
        }
    }
}
