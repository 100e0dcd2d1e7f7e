/* small_depthwise.h: DEPTHWISE_CONV_2D on generated assembly (stages/firmware/assembly/small_depthwise.py). Two rows of the
 * padded image become one line of words, channel by channel: an int16 of the upper row below, one of the lower row
 * above. Each row is widened once; as many lines are kept as the window sees.
 */
#ifndef SMALL_DEPTHWISE_H
#define SMALL_DEPTHWISE_H

#include <stdint.h>

#include "kernels/inner/packed_channels.h"
#include "kernels/inner/window.h"

#define SMALL_DEPTHWISE_LINES 4 /* at most */

/* How the assembly goes from channel to channel, and on along the row; it knows this layout. */
struct small_depthwise_walk {
    const int32_t *records; /* weights, bias and scaling of each channel */
    int32_t pitch_bytes;    /* from channel to channel of a line */
    int32_t outputs;        /* from pixel to pixel of the output: its channels */
    int32_t row_bytes;      /* from row to row of the output */
    int32_t zero;           /* 2 * zero point of the output + 1 */
    const int32_t *end;     /* of the records */
    int32_t next_column;    /* bytes from the last channel's end of a line to the next columns */
    int32_t next_output;    /* likewise of the output */
    int32_t count;          /* of columns, or of pairs of them */
};

/* One, two or four outputs of every channel, `count` times; `lines` are those that the window sees, from its first
 * column on. */
typedef void small_depthwise_function(const int32_t *const *lines, int8_t *y, const struct small_depthwise_walk *walk);

#define SMALL_DEPTHWISE_INTERLEAVED 8 /* channels of a round of the next one */

/* The channels of a pixel and of the one below it as words of a line, `pitch_bytes` apart; at least one round. */
typedef void small_depthwise_interleave(const int8_t *upper, const int8_t *lower, int32_t *line, int32_t pitch_bytes,
                                       int32_t rounds);

/* What the record of a channel is made of where flash is short; weights are int8, window height x width x channels. */
struct small_depthwise_packed {
    const int8_t *weights;
    struct packed_channels channels;
};

struct small_depthwise {
    const int32_t *records; /* of all channels' first outputs, then of their second ...; 0: made from `packed` */
    struct small_depthwise_packed packed;
    /* One column (0: an odd last one goes with the one before it), two columns (0: one by one). */
    small_depthwise_function *one_row[2];
    small_depthwise_function *two_rows[2];
    small_depthwise_interleave *interleave;
    struct window window; /* vertical stride 1 or 2, dilation 1 */
    uint16_t record_words;
    uint16_t depth_multiplier;
    uint16_t lines;   /* that are kept */
    uint16_t columns; /* of a padded line */
    uint16_t block;   /* channels that go down the image together */
    int16_t zero;     /* 2 * zero point of the output + 1 */
    int8_t input_zero_point;
};

/* Scratch of the caller: `buffer` for lines * columns * block words, `records` for block * record_words where they are
 * made (else 0), `padding` one byte per channel of a block. */
void small_depthwise(const struct small_depthwise *conv, const int8_t *input, int32_t *buffer, int32_t *records,
                    int8_t *padding, int8_t *output);

#endif
