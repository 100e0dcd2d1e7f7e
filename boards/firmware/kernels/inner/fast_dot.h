/* fast_dot.h: the matrix product at the heart of the fast kernels, on int16 activations and generated assembly
 * (stages/firmware/assembly/dot.py). Four output channels share a block of weights; all pixels of a run meet one block
 * before the next is read, so that the weights come from flash once a run.
 */
#ifndef FAST_DOT_H
#define FAST_DOT_H

#include <stdint.h>

#define FAST_DOT_CHANNELS 4

/* Four outputs of each pixel from `x` on until one begins at `end`, one or two pixels at a time; or, for one pixel, four
 * outputs of each block from `block` to `end`. */
typedef void fast_dot_function(const int16_t *x, const int32_t *block, int8_t *y, const void *end);

#define FAST_WIDENED 16 /* values of a round of the next one */

/* int8 to int16, in their order, or of each four 0 and 2, then 1 and 3; at least one round. Or a pixel a round. */
typedef void fast_widen_function(const int8_t *source, int16_t *wide, int32_t rounds);

struct fast_dot {
    fast_dot_function *two_pixels;
    fast_dot_function *one_pixel;
    const int32_t *blocks;      /* one for each four outputs; the last may begin inside the one before */
    fast_widen_function *widen;
    int32_t outputs;
    int32_t block_words;
    int32_t pixel_elements; /* of x, from pixel to pixel */
    int32_t is_apart;       /* of each four values x has 0, 2, 1, 3; else it keeps the order of the taps */
};

/* Outputs of pixels that lie side by side: `together` of them for two_pixels(), in groups of two or each with the one
 * below it, as that function was made; then `alone` for one_pixel(). */
void fast_dot(const struct fast_dot *dot, const int16_t *x, int32_t together, int32_t alone, int8_t *output);

/* int8 to int16 in the order that `dot` wants, no alignment needed; what is behind the last four keeps its order. */
void fast_widen(const struct fast_dot *dot, const int8_t *source, int32_t count, int16_t *wide);
void fast_fill(int16_t *wide, int32_t count, int16_t value);

#endif
