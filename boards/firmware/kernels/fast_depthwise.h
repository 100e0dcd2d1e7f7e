/* fast_depthwise.h: DEPTHWISE_CONV_2D on assembly that is generated for a layer (stages/firmware/assembly/depthwise.py).
 * Two rows of the padded image become one line of words: an int16 of the upper row below, one of the lower row above.
 * The lines that the window sees lie in a ring, or, if they are many, in a buffer that moves down the image. An image
 * too wide for it goes in tiles of some columns, a few rows of outputs at a time. The assembly makes some columns of
 * outputs at a time.
 */
#ifndef FAST_DEPTHWISE_H
#define FAST_DEPTHWISE_H

#include <stdint.h>

#include "kernels/inner/window.h"

#define FAST_DEPTHWISE_LINES 40 /* at most, that a window sees */

/* Some columns of one row of outputs, or of two, of all channels whose records lie between `records` and `end`; `lines` are those
 * that the window sees. */
typedef void fast_depthwise_function(const int32_t *const *lines, int8_t *y, const int32_t *records,
                                     const int32_t *end);

#define FAST_DEPTHWISE_PAIRED 8 /* values of a round of the next one */

/* Values of a row and those below them as words, until one would lie at `end`; at least one round. `steps`: bytes from
 * one round of each row to the next, or 0 where it is repeated. */
typedef void fast_depthwise_pair(const int8_t *upper, const int8_t *lower, int32_t *line, const int32_t *end,
                                 const int32_t *steps);

struct fast_depthwise {
    const int32_t *records; /* of all channels' first outputs, then of their second ... */
    fast_depthwise_function *one_row;
    fast_depthwise_function *two_rows; /* 0: one by one, with an even stride */
    fast_depthwise_pair *pair;
    struct window window; /* dilation 1 */
    uint16_t record_words;
    uint16_t depth_multiplier;
    uint16_t lines;   /* of the buffer */
    uint16_t is_ring; /* whether they are as many as the window sees, at most; else they lie in order */
    uint16_t columns; /* of a padded line of a tile */
    uint16_t tile;    /* columns of outputs; the last tile may begin inside the one before */
    uint16_t part;    /* columns of a tile that the assembly makes at a time; the last ones likewise */
    uint16_t strip;   /* rows of outputs, an even number, after which the next tile has its turn */
    int8_t input_zero_point;
};

/* `buffer`: lines * columns * channels words. */
void fast_depthwise(const struct fast_depthwise *conv, const int8_t *input, int32_t *buffer, int8_t *output);

#endif
