#include "mfcc.h"

#include <string.h>

#include "placement.h"
#include "spectrum.h"

static float power[FRONT_END_BINS] PLACE_FAST;
static float mel[FRONT_END_MEL_BINS] PLACE_FAST;

/* Natural logarithm of a positive normal number: x = m 2^e with m within sqrt(1/2) .. sqrt(2), and
 * log m = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1); |s| < 0.172, so that s^11 lies below rounding. */
static float natural_log(float x)
{
    const float ln_2 = 0.693147180559945f;
    const uint32_t sqrt_half = 0x3F3504F3u;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t above = bits - sqrt_half;
    const int32_t exponent = (int32_t)above >> 23;
    bits = (above & 0x7FFFFFu) + sqrt_half;
    float m;
    memcpy(&m, &bits, sizeof m);
    const float s = (m - 1.0f) / (m + 1.0f);
    const float square = s * s;
    const float series = 2.0f + square * (2.0f / 3 + square * (2.0f / 5 + square * (2.0f / 7 + square * (2.0f / 9))));
    return (float)exponent * ln_2 + s * series;
}

/* To the nearest integer, halves to the even one as numpy does, within int8. */
static int8_t rounded(float value)
{
    const float lowest = value > -128.0f ? value : -128.0f;
    const float clipped = lowest < 127.0f ? lowest : 127.0f;
    const float integers_only = 12582912.0f; /* 1.5 * 2^23: at this size a float has no fraction */
    const float whole = (clipped + integers_only) - integers_only;
    return (int8_t)whole;
}

void mfcc_frame(const int16_t *samples, int8_t *features)
{
    spectrum_power(samples, power);
    const float *weight = front_end_weights;
    for (uint32_t filter = 0; filter < FRONT_END_MEL_BINS; filter++) {
        const float *bin = &power[front_end_filters[filter].first];
        float sum = 0.0f;
        for (uint32_t left = front_end_filters[filter].count; left > 0u; left--) {
            sum += *weight++ * *bin++;
        }
        mel[filter] = natural_log(sum + FRONT_END_LOG_FLOOR);
    }
    for (uint32_t row = 0; row < FRONT_END_COEFFICIENTS; row++) {
        const float *const own = &mel[FRONT_END_TERMS == 1u ? row : 0u]; /* without a DCT a feature is its own bin */
        float sum = front_end_offset[row];
        for (uint32_t term = 0; term < FRONT_END_TERMS; term++) {
            sum += front_end_dct[row][term] * own[term];
        }
        features[row] = rounded(sum);
    }
}

void mfcc_clip(const int16_t *samples, int8_t *features)
{
    for (uint32_t frame = 0; frame < FRONT_END_FRAMES; frame++) {
        mfcc_frame(&samples[frame * FRONT_END_HOP_SAMPLES], &features[frame * FRONT_END_COEFFICIENTS]);
    }
}
