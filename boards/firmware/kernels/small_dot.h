/* small_dot.h: CONV_2D, pointwise convolutions and FULLY_CONNECTED for flash that is short: int8 weights, packed bias
 * and scaling, and one generated loop for layers of any shape (stages/firmware/assembly/dot_loop.py).
 *
 * Two pixels run at a time. Their int16 activations lie side by side, pair of taps by pair of taps; those of a window
 * are gathered. The input's zero point is taken off on the way, so that biases stay as small as they were. A layer's
 * scratch holds, in words: the headers of all its blocks of four outputs (of one, if it has a single pixel), the
 * weights of one block if they are stored as rows, the activations of a run of pixels and two words that the loop reads
 * in vain; then, as int16, the widened lines of the image that a window sees.
 */
#ifndef SMALL_DOT_H
#define SMALL_DOT_H

#include <stdint.h>

#include "kernels/inner/packed_channels.h"
#include "kernels/inner/window.h"

#define SMALL_DOT_CHANNELS 4 /* of a block */

/* What the loop runs over; it knows this layout. */
struct small_dot_walk {
    const int32_t *x;
    const int32_t *header; /* biases, multipliers and right shifts of a block, as in assembly/dot.py */
    int8_t *y;
    int32_t outputs; /* from pixel to pixel of the output */
    int32_t zero;    /* 2 * zero point of the output + 1 */
    int32_t group_bytes;
    const int32_t *weights; /* of the block, a word of four taps for each output in turn */
    int32_t count;          /* of groups: one pixel or two */
};

typedef void small_dot_function(const struct small_dot_walk *walk);

struct small_dot {
    struct packed_channels channels;
    const void *weights; /* int32_t blocks, or int8_t rows, behind the last of which up to taps bytes are read */
    small_dot_function *loop;
    uint16_t outputs;  /* below 4 only with a single pixel, weights in rows and a loop of two pixels */
    uint16_t taps;     /* of a pixel, filled up to a whole number of rounds */
    uint16_t row_taps; /* of a row; 0: the weights lie in blocks */
    int16_t zero;
    int8_t input_zero_point;
    uint8_t at_once; /* pixels: 1 or 2 */
    uint8_t has_unshifted;
};

struct small_matrix {
    struct small_dot dot;
    int32_t pixels;
    uint16_t depth; /* input channels */
    uint16_t run;   /* pixels that the scratch holds; none has one pixel only, unless there is no other */
};

struct small_conv_2d {
    struct small_dot dot;
    struct window window;   /* dilation 1 */
    uint16_t line_elements; /* of a padded line, even */
    uint16_t lines;         /* that the scratch holds, at least the window's height */
    uint16_t run;           /* pixels of a row, as above */
    uint16_t is_apart; /* channels come in fours; of each four 0 and 2 stand first, then 1 and 3 */
};

void small_matrix(const struct small_matrix *matrix, const int8_t *input, int32_t *scratch, int8_t *output);
void small_conv_2d(const struct small_conv_2d *conv, const int8_t *input, int32_t *scratch, int8_t *output);

#endif
