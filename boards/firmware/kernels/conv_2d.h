/* conv_2d.h: CONV_2D of any window. A 1x1 window with stride 1 is matrix_multiply() on the image itself instead. */
#ifndef CONV_2D_H
#define CONV_2D_H

#include <stdint.h>

#include "kernels/matrix.h"
#include "kernels/inner/window.h"

struct conv_2d {
    struct matrix matrix; /* depth = window height * width * channels, weights in OHWI order */
    struct window window;
    int8_t input_zero_point;
};

/* `patches` has room for two rows of the matrix's depth. */
void conv_2d(const struct conv_2d *conv, const int8_t *input, int8_t *patches, int8_t *output);

#endif
