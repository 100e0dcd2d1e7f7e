/* spectrum.c: a real transform of N points as a complex one of N / 2 (even samples real, odd ones imaginary).
 *
 * Decimation in time: the frame is written in bit-reversed order, then four neighbours at a time are combined (radix 4;
 * in bit-reversed order their remainders modulo 4 are 0, 2, 1, 3), after one radix-2 pass if log2(N / 2) is odd. The
 * two interleaved spectra are separated only for the bins that are wanted.
 */
#include "spectrum.h"

#include <string.h>

#include "placement.h"

#define POINTS (FRONT_END_FFT_POINTS / 2u)

static struct front_end_complex z[POINTS] PLACE_FAST;

static inline struct front_end_complex times(struct front_end_complex a, struct front_end_complex b)
{
    return (struct front_end_complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static void write_frame(const int16_t *samples)
{
    memset(z, 0, sizeof z);
    for (uint32_t pair = 0; pair < FRONT_END_WINDOW_SAMPLES / 2u; pair++) {
        struct front_end_complex *const place = &z[front_end_reversed[pair]];
        place->re = (float)samples[2u * pair] * front_end_window[2u * pair];
        place->im = (float)samples[2u * pair + 1u] * front_end_window[2u * pair + 1u];
    }
}

static void combine_pairs(void)
{
    for (uint32_t at = 0; at < POINTS; at += 2u) {
        const struct front_end_complex a = z[at];
        const struct front_end_complex b = z[at + 1u];
        z[at] = (struct front_end_complex){a.re + b.re, a.im + b.im};
        z[at + 1u] = (struct front_end_complex){a.re - b.re, a.im - b.im};
    }
}

/* The sum and difference tree of a radix-4 butterfly; b, c and d are turned already. */
static inline void butterfly(struct front_end_complex *first, uint32_t quarter, struct front_end_complex b,
                             struct front_end_complex c, struct front_end_complex d)
{
    const struct front_end_complex a = *first;
    const struct front_end_complex even = {a.re + b.re, a.im + b.im};
    const struct front_end_complex even_difference = {a.re - b.re, a.im - b.im};
    const struct front_end_complex odd = {c.re + d.re, c.im + d.im};
    const struct front_end_complex odd_difference = {c.re - d.re, c.im - d.im};
    first[0] = (struct front_end_complex){even.re + odd.re, even.im + odd.im};
    first[quarter] =
        (struct front_end_complex){even_difference.re + odd_difference.im, even_difference.im - odd_difference.re};
    first[2u * quarter] = (struct front_end_complex){even.re - odd.re, even.im - odd.im};
    first[3u * quarter] =
        (struct front_end_complex){even_difference.re - odd_difference.im, even_difference.im + odd_difference.re};
}

/* Four transforms of `quarter` points each become one. */
static void combine_quarters(uint32_t quarter)
{
    const uint32_t step = FRONT_END_FFT_POINTS / (4u * quarter);
    for (struct front_end_complex *first = z; first < z + POINTS; first += 4u * quarter) {
        butterfly(first, quarter, first[quarter], first[2u * quarter], first[3u * quarter]);
    }
    for (uint32_t k = 1; k < quarter; k++) {
        const struct front_end_complex w1 = front_end_roots[k * step];
        const struct front_end_complex w2 = front_end_roots[2u * k * step];
        const struct front_end_complex w3 = front_end_roots[3u * k * step];
        for (struct front_end_complex *first = z + k; first < z + POINTS; first += 4u * quarter) {
            butterfly(first, quarter, times(first[quarter], w2), times(first[2u * quarter], w1),
                      times(first[3u * quarter], w3));
        }
    }
}

void spectrum_power(const int16_t *samples, float *power)
{
    write_frame(samples);
    uint32_t done = 1;
    if (FRONT_END_FFT_LOG2 % 2 == 0) {
        combine_pairs();
        done = 2;
    }
    for (; done < POINTS; done *= 4u) {
        combine_quarters(done);
    }
    for (uint32_t index = 0; index < FRONT_END_BINS; index++) {
        const uint32_t bin = FRONT_END_FIRST_BIN + index;
        const struct front_end_complex here = z[bin % POINTS];
        const struct front_end_complex there = z[(POINTS - bin) % POINTS];
        const struct front_end_complex even = {here.re + there.re, here.im - there.im};
        const struct front_end_complex odd = {here.im + there.im, there.re - here.re};
        const struct front_end_complex turned = times(odd, front_end_roots[bin]);
        const float re = even.re + turned.re;
        const float im = even.im + turned.im;
        power[index] = re * re + im * im;
    }
}
