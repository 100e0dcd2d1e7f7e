#include "stream.h"

#include <string.h>

#include "bench.h"
#include "mfcc.h"
#include "placement.h"
#include "stream_settings.h"

#define KEPT_SAMPLES (FRONT_END_WINDOW_SAMPLES - FRONT_END_HOP_SAMPLES) /* of a window, in the next one too */
#define FRAME FRONT_END_COEFFICIENTS

static const uint8_t IS_WORD[MODEL_OUTPUT_BYTES] = STREAM_IS_WORD;

static int16_t window[FRONT_END_WINDOW_SAMPLES] PLACE_BULK;
static int8_t frames[FRONT_END_FRAMES][FRAME]; /* a ring: frame number n at n % FRONT_END_FRAMES */
static uint8_t scores[STREAM_SMOOTH_RUNS][MODEL_OUTPUT_BYTES];
static uint32_t sums[MODEL_OUTPUT_BYTES];
static uint32_t filled; /* samples in the window */
static uint32_t hops;
static uint32_t runs;
static uint32_t detections;
static uint32_t silent_until_hop;

void stream_start(void)
{
    memset(scores, 0, sizeof scores);
    memset(sums, 0, sizeof sums);
    filled = 0;
    hops = 0;
    runs = 0;
    detections = 0;
    silent_until_hop = 0;
}

/* The newest FRONT_END_FRAMES frames, the oldest of them first, become the network's input. */
static void frames_to_model(void)
{
    const uint32_t oldest = hops % FRONT_END_FRAMES;
    const uint32_t until_end = FRONT_END_FRAMES - oldest;
    int8_t *const input = model_input();
    memcpy(input, frames[oldest], until_end * FRAME);
    memcpy(&input[until_end * FRAME], frames[0], oldest * FRAME);
}

static void smooth(void)
{
    uint8_t *const replaced = scores[runs % STREAM_SMOOTH_RUNS];
    const int8_t *const output = bench_output();
    for (uint32_t index = 0; index < MODEL_OUTPUT_BYTES; index++) {
        const uint8_t score = (uint8_t)(output[index] + 128);
        sums[index] += score;
        sums[index] -= replaced[index];
        replaced[index] = score;
    }
    runs++;
}

static uint32_t largest_sum(void)
{
    uint32_t best = 0;
    for (uint32_t index = 1; index < MODEL_OUTPUT_BYTES; index++) {
        best = sums[index] > sums[best] ? index : best;
    }
    return best;
}

/* The network on the newest frames, and what its output leads to. */
static enum stream_event look(struct stream_detection *detection)
{
    frames_to_model();
    bench_invoke();
    smooth();
    const uint32_t best = largest_sum();
    if (!IS_WORD[best] || sums[best] < STREAM_THRESHOLD_SUM || hops < silent_until_hop) {
        return STREAM_RUN;
    }
    detections++;
    silent_until_hop = hops + STREAM_REFRACTORY_HOPS;
    *detection = (struct stream_detection){.hop = hops, .word = best, .sum = sums[best]};
    return STREAM_DETECTED;
}

enum stream_event stream_hear(const int16_t *samples, uint32_t count, uint32_t *taken,
                              struct stream_detection *detection)
{
    const uint32_t missing = FRONT_END_WINDOW_SAMPLES - filled;
    *taken = count < missing ? count : missing;
    memcpy(&window[filled], samples, *taken * sizeof window[0]);
    filled += *taken;
    if (filled < FRONT_END_WINDOW_SAMPLES) {
        return STREAM_WAITS;
    }
    mfcc_frame(window, frames[hops % FRONT_END_FRAMES]);
    memmove(window, &window[FRONT_END_HOP_SAMPLES], KEPT_SAMPLES * sizeof window[0]);
    filled = KEPT_SAMPLES;
    hops++;
    if (hops < FRONT_END_FRAMES || (hops - FRONT_END_FRAMES) % STREAM_RUN_HOPS != 0u) {
        return STREAM_FRAME;
    }
    return look(detection);
}

uint32_t stream_hops(void)
{
    return hops;
}

uint32_t stream_detections(void)
{
    return detections;
}

const int8_t *stream_newest_frame(void)
{
    return frames[(hops + FRONT_END_FRAMES - 1u) % FRONT_END_FRAMES];
}

const uint32_t *stream_sums(void)
{
    return sums;
}
