#include "kernels/inner/fast_dot.h"

#include <string.h>

void fast_dot(const struct fast_dot *dot, const int16_t *x, int32_t together, int32_t alone, int8_t *output)
{
    const int32_t outputs = dot->outputs;
    const int16_t *const middle = &x[together * dot->pixel_elements];
    const int16_t *const end = &middle[alone * dot->pixel_elements];
    const int32_t *block = dot->blocks;
    for (int32_t next = 0; next < outputs; next += FAST_DOT_CHANNELS) {
        const int32_t last = outputs - FAST_DOT_CHANNELS;
        int8_t *y = &output[next < last ? next : last < 0 ? 0 : last];
        if (together > 0) {
            dot->two_pixels(x, block, y, middle);
        }
        if (alone > 0) {
            dot->one_pixel(middle, block, &y[together * outputs], end);
        }
        block += dot->block_words;
    }
}

/* As int16: values 0 and 2 of four, then 1 and 3. */
static inline void widen_four_apart(const int8_t *source, int16_t *even, int16_t *odd)
{
#ifdef __ARM_FEATURE_DSP
    uint32_t bytes, two;
    memcpy(&bytes, source, sizeof bytes);
    __asm("sxtb16 %0, %1" : "=r"(two) : "r"(bytes));
    memcpy(even, &two, sizeof two);
    __asm("sxtb16 %0, %1, ror #8" : "=r"(two) : "r"(bytes));
    memcpy(odd, &two, sizeof two);
#else
    even[0] = source[0];
    even[1] = source[2];
    odd[0] = source[1];
    odd[1] = source[3];
#endif
}

void fast_widen(const struct fast_dot *dot, const int8_t *source, int32_t count, int16_t *wide)
{
    const int32_t rounds = count / FAST_WIDENED;
    int32_t done = rounds * FAST_WIDENED;
    if (rounds > 0) {
        dot->widen(source, wide, rounds);
    }
    for (; dot->is_apart && done + 3 < count; done += 4) {
        widen_four_apart(&source[done], &wide[done], &wide[done + 2]);
    }
    for (; done < count; done++) {
        wide[done] = source[done];
    }
}

void fast_fill(int16_t *wide, int32_t count, int16_t value)
{
    for (int32_t i = 0; i < count; i++) {
        wide[i] = value;
    }
}
