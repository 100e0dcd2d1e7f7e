/* fast_depthwise.h: DEPTHWISE_CONV_2D with a 3x3 window on generated assembly (stages/firmware/assembly/depthwise.py).
 * Two rows of the padded image become one line of words, channel by channel: an int16 of the upper row below, one of
 * the lower row above. Each row is widened once; two lines are kept.
 */
#ifndef FAST_DEPTHWISE_H
#define FAST_DEPTHWISE_H

#include <stdint.h>

#include "kernels/window.h"

/* How the assembly goes from channel to channel; it knows this layout. */
struct fast_depthwise_walk {
    const int32_t *records; /* weights, bias and scaling of each channel */
    int32_t pitch_bytes;    /* from channel to channel of a line */
    int32_t outputs;        /* from pixel to pixel of the output: its channels */
    int32_t row_bytes;      /* from row to row of the output */
    const int32_t *end;     /* of the records */
};

/* One, two or four outputs of every channel. */
typedef void fast_depthwise_function(const int32_t *upper, const int32_t *lower, int8_t *y,
                                     const struct fast_depthwise_walk *walk);

struct fast_depthwise {
    struct fast_depthwise_walk walk;
    fast_depthwise_function *one_row[2]; /* one column, two columns */
    fast_depthwise_function *two_rows[2];
    struct window window; /* 3x3, vertical stride 1 or 2, dilation 1 */
    int32_t columns;      /* of a padded line */
    int8_t input_zero_point;
};

/* Scratch of the caller: `lines` two of columns * channels words, `padding` one byte per channel. */
void fast_depthwise(const struct fast_depthwise *conv, const int8_t *input, int32_t *lines, int8_t *padding,
                    int8_t *output);

#endif
