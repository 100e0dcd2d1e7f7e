/* reduce.h: the largest or smallest value along some axes, and where it is. Input and output do not overlap. */
#ifndef REDUCE_H
#define REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/mean.h"

struct reduce {
    struct mean_axis kept[2]; /* as in mean.h */
    struct mean_axis gone[2];
    bool is_largest;
};

void reduce_extreme(const struct reduce *params, const int8_t *input, int8_t *output);

struct best_index {
    int32_t outer;
    int32_t size; /* of the axis that goes */
    int32_t inner;
    bool is_largest;
};

/* The first of equals. */
void best_index(const struct best_index *params, const int8_t *input, int32_t *output);

/* L2_NORMALIZATION of every row, onto a grid of 1/128. */
struct l2_normalise {
    int32_t rows;
    int32_t depth;
    int32_t zero_point;
};

void l2_normalise(const struct l2_normalise *params, const int8_t *input, int8_t *output);

#endif
