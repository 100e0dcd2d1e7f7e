/* fast_conv_2d.h: CONV_2D, pointwise convolutions and FULLY_CONNECTED on fast_dot(), without gathering patches: the
 * lines of the image that a row of the output sees are widened to int16 once each, with their padding, into a buffer
 * that moves down the image.
 */
#ifndef FAST_CONV_2D_H
#define FAST_CONV_2D_H

#include <stdint.h>

#include "kernels/inner/fast_dot.h"
#include "kernels/inner/window.h"

struct fast_conv_2d {
    struct fast_dot dot;
    struct window window;  /* dilation 1 */
    int32_t line_elements; /* of the buffer: a padded line, and up to a word more */
    int32_t lines;         /* of the buffer, at least those that the window sees */
    int32_t rows;          /* that run together: 1, or 2 whose pixels go in pairs, one above the other */
    int16_t input_zero_point;
};

struct fast_matrix {
    struct fast_dot dot;
    int32_t depth; /* input channels */
    int32_t pixels;
    int32_t run;         /* pixels that the buffer holds */
    int32_t is_by_pixel; /* a round of dot.widen() is a pixel */
};

/* One pixel; its weights are int8, as they are read but once. */
struct fast_vector {
    struct fast_dot dot;
    int32_t depth;
};

/* `buffer`: lines * line_elements. */
void fast_conv_2d(const struct fast_conv_2d *conv, const int8_t *input, int16_t *buffer, int8_t *output);

/* `buffer`: run * dot.pixel_elements. */
void fast_matrix(const struct fast_matrix *matrix, const int8_t *input, int16_t *buffer, int8_t *output);

/* `buffer`: dot.pixel_elements. */
void fast_vector(const struct fast_vector *vector, const int8_t *input, int16_t *buffer, int8_t *output);

#endif
