/* fast_dot.h: the matrix product at the heart of the fast kernels, on int16 activations and generated assembly
 * (stages/firmware/assembly/dot.py). Four output channels share a block of weights; all pixels of a run meet one block
 * before the next is read, so that the weights come from flash once a run.
 */
#ifndef FAST_DOT_H
#define FAST_DOT_H

#include <stdint.h>

#define FAST_DOT_CHANNELS 4

struct fast_dot;

/* `count` groups of one or two pixels from `x` on, four outputs each; the outputs of two pixels lie `outputs` apart. */
typedef void fast_dot_function(const int16_t *x, const int32_t *block, int8_t *y, const struct fast_dot *dot,
                               int32_t count);

#define FAST_WIDENED 16 /* values of a round of the next one */

/* int8 to int16, of each four 0 and 2, then 1 and 3; at least one round. `second` is another pixel where two lie side
 * by side, else it counts for nothing. */
typedef void fast_widen_function(const int8_t *source, const int8_t *second, int16_t *wide, int32_t rounds);

struct fast_dot {
    /* The assembly knows the places of these. */
    int32_t outputs; /* at least 4 */
    int32_t zero;    /* 2 * zero point of the output + 1 */
    /* Only loops need the next four: */
    int32_t lines;
    int32_t line_bytes;  /* of x that a pixel takes from a line */
    int32_t line_step;   /* from there to the next line */
    int32_t group_bytes; /* of x, from one or two pixels to the next */

    fast_dot_function *two_pixels;
    fast_dot_function *one_pixel;
    const int32_t *blocks; /* one for each four outputs; the last may begin inside the one before */
    int32_t block_words;
    fast_widen_function *widen; /* 0: x keeps the order of the taps; else of each four 0, 2, 1, 3 */
    int32_t pixel_elements;     /* of x, from pixel to pixel; of half a group where two lie side by side */
    int32_t is_side_by_side;    /* two pixels, pair of taps by pair of taps */
};

/* Without a function for one pixel, the last of an odd number is computed once more with the one before it; side by
 * side, the two are one more group. */
void fast_dot(const struct fast_dot *dot, const int16_t *x, int32_t pixels, int8_t *output);

/* int8 to int16 in the order that `dot` wants, no alignment needed; where that is not the taps', `count` is a multiple
 * of four. */
void fast_widen(const struct fast_dot *dot, const int8_t *source, int32_t count, int16_t *wide);
/* Two pixels side by side, pair by pair. */
void fast_widen_two(const struct fast_dot *dot, const int8_t *first, const int8_t *second, int32_t count,
                    int16_t *wide);
void fast_fill(int16_t *wide, int32_t count, int16_t value);

#endif
