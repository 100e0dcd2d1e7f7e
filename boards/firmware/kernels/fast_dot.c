#include "kernels/fast_dot.h"

#include <string.h>

static void last_pixel(const struct fast_dot *dot, const int16_t *x, const int32_t *block, int8_t *y, int32_t pixel)
{
    if (dot->one_pixel != 0) {
        dot->one_pixel(&x[pixel * dot->pixel_elements], block, &y[pixel * dot->outputs], dot, 1);
    } else {
        const int32_t first = dot->is_side_by_side ? pixel : pixel - 1;
        dot->two_pixels(&x[first * dot->pixel_elements], block, &y[(pixel - 1) * dot->outputs], dot, 1);
    }
}

void fast_dot(const struct fast_dot *dot, const int16_t *x, int32_t pixels, int8_t *output)
{
    const int32_t outputs = dot->outputs;
    const int32_t pairs = pixels / 2;
    const int32_t *block = dot->blocks;
    for (int32_t next = 0; next < outputs; next += FAST_DOT_CHANNELS) {
        const int32_t last = outputs - FAST_DOT_CHANNELS;
        int8_t *y = &output[next < last ? next : last];
        if (pairs > 0) {
            dot->two_pixels(x, block, y, dot, pairs);
        }
        if (pixels % 2 != 0) {
            last_pixel(dot, x, block, y, pixels - 1);
        }
        block += dot->block_words;
    }
}

#ifdef __ARM_FEATURE_DSP
static inline void widen_four(const int8_t *source, int16_t *wide)
{
    uint32_t bytes, even, odd, pair;
    memcpy(&bytes, source, sizeof bytes);
    __asm("sxtb16 %0, %1" : "=r"(even) : "r"(bytes));
    __asm("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(bytes));
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(pair) : "r"(even), "r"(odd));
    memcpy(wide, &pair, sizeof pair);
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(pair) : "r"(odd), "r"(even));
    memcpy(wide + 2, &pair, sizeof pair);
}
#else
static inline void widen_four(const int8_t *source, int16_t *wide)
{
    for (int i = 0; i < 4; i++) {
        wide[i] = source[i];
    }
}
#endif

void fast_widen(const int8_t *source, int32_t count, int16_t *wide)
{
    const int8_t *const end = source + count;
    while (end - source >= 16) {
        widen_four(source, wide);
        widen_four(source + 4, wide + 4);
        widen_four(source + 8, wide + 8);
        widen_four(source + 12, wide + 12);
        source += 16;
        wide += 16;
    }
    while (end - source >= 4) {
        widen_four(source, wide);
        source += 4;
        wide += 4;
    }
    while (source != end) {
        *wide++ = *source++;
    }
}

/* The last one to three taps come from copies: behind them may be the end of memory. */
void fast_widen_two(const int8_t *first, const int8_t *second, int32_t count, int16_t *wide)
{
    int16_t four[2][4] = {{0}};
    for (int32_t tap = 0; tap < count; tap += 4) {
        if (count - tap >= 4) {
            widen_four(&first[tap], four[0]);
            widen_four(&second[tap], four[1]);
        } else {
            fast_widen(&first[tap], count - tap, four[0]);
            fast_widen(&second[tap], count - tap, four[1]);
        }
        for (int pair = 0; pair < 2; pair++) {
            memcpy(&wide[4 * pair], &four[0][2 * pair], 2 * sizeof *wide);
            memcpy(&wide[4 * pair + 2], &four[1][2 * pair], 2 * sizeof *wide);
        }
        wide += 8;
    }
}

void fast_fill(int16_t *wide, int32_t count, int16_t value)
{
    for (int32_t i = 0; i < count; i++) {
        wide[i] = value;
    }
}
