/* fast_depthwise.h: DEPTHWISE_CONV_2D on assembly that is generated for a layer (stages/firmware/assembly/depthwise.py).
 * Two rows of the padded image become one line of words: an int16 of the upper row below, one of the lower row above. A
 * buffer of lines moves down the image. Channels that do not all fit go in blocks, a few rows of outputs at a time.
 */
#ifndef FAST_DEPTHWISE_H
#define FAST_DEPTHWISE_H

#include <stdint.h>

#include "kernels/inner/window.h"

/* One row of outputs, or two, of all channels whose records lie between `records` and `end`; `x` is the first column of
 * the first line that the window sees. */
typedef void fast_depthwise_function(const int32_t *x, int8_t *y, const int32_t *records, const int32_t *end);

#define FAST_DEPTHWISE_PAIRED 8 /* values of a round of the next one */

/* Values of a row and those below them as words, until one would lie at `end`; at least one round. `steps`: bytes from
 * one round of each row to the next, or 0 where it is repeated. */
typedef void fast_depthwise_pair(const int8_t *upper, const int8_t *lower, int32_t *line, const int32_t *end,
                                 const int32_t *steps);

struct fast_depthwise {
    const int32_t *records; /* of all channels' first outputs, then of their second ... */
    fast_depthwise_function *one_row;
    fast_depthwise_function *two_rows;
    fast_depthwise_pair *pair;
    struct window window; /* dilation 1 */
    uint16_t record_words;
    uint16_t depth_multiplier;
    uint16_t lines;   /* of the buffer */
    uint16_t columns; /* of a padded line */
    uint16_t block;   /* channels that go together; the last block may begin inside the one before */
    uint16_t strip;   /* rows of outputs, an even number, after which the next block has its turn */
    int8_t input_zero_point;
};

/* `buffer`: lines * columns * block words. */
void fast_depthwise(const struct fast_depthwise *conv, const int8_t *input, int32_t *buffer, int8_t *output);

#endif
