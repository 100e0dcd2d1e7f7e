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

/* int8 to int16, of each four 0 and 2, then 1 and 3; at least one round. */
typedef void fast_widen_function(const int8_t *source, int16_t *wide, int32_t rounds);

struct fast_dot {
    /* The assembly knows the places of these. */
    int32_t outputs; /* at least 4 */
    int32_t zero;    /* 2 * zero point of the output + 1 */

    fast_dot_function *two_pixels;
    fast_dot_function *one_pixel;
    const int32_t *blocks; /* one for each four outputs; the last may begin inside the one before */
    int32_t block_words;
    fast_widen_function *widen; /* 0: x keeps the order of the taps; else of each four 0, 2, 1, 3 */
    int32_t pixel_elements;     /* of x, from pixel to pixel */
};

void fast_dot(const struct fast_dot *dot, const int16_t *x, int32_t pixels, int8_t *output);

/* int8 to int16 in the order that `dot` wants, no alignment needed; where that is not the taps', `count` is a multiple
 * of four. */
void fast_widen(const struct fast_dot *dot, const int8_t *source, int32_t count, int16_t *wide);
void fast_fill(int16_t *wide, int32_t count, int16_t value);

#endif
