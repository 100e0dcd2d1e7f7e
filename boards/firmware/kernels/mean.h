/* mean.h: MEAN over some axes of a tensor. Axes that stay and axes that go alternate; each kind has two at most, an
 * axis of one element where there are fewer.
 */
#ifndef MEAN_H
#define MEAN_H

#include <stdint.h>

#include "kernels/inner/requantise.h"

struct mean_axis {
    int32_t size;
    int32_t step; /* in elements of the input */
};

struct mean {
    struct mean_axis kept[2];
    struct mean_axis summed[2];
    int32_t offset;     /* -zero point of the input * number of elements summed */
    int32_t multiplier; /* of input scale / (output scale * number of elements summed) */
    int32_t left;
    int32_t right;
    struct requantise_range range;
};

void mean(const struct mean *params, const int8_t *input, int8_t *output);

#endif
