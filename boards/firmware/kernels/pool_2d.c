#include "kernels/pool_2d.h"

#include <string.h>

#include "kernels/inner/requantise.h"

/* The part of the image that one window sees. */
struct view {
    const int8_t *first; /* channel 0 of its first pixel */
    int32_t height;
    int32_t width;
    int32_t line_bytes; /* from one line of the image to the next */
};

static struct view view_at(const struct window *window, const int8_t *input, int32_t pixel)
{
    const int32_t start_y = pixel / window->output_width * window->stride_y - window->padding_top;
    const int32_t start_x = pixel % window->output_width * window->stride_x - window->padding_left;
    const struct window_span lines = window_inside(start_y, window->height, 1, window->input_height);
    const struct window_span columns = window_inside(start_x, window->width, 1, window->input_width);
    const int32_t line_bytes = window->input_width * window->channels;
    return (struct view){
        .first = &input[(start_y + lines.first) * line_bytes + (start_x + columns.first) * window->channels],
        .height = lines.end - lines.first,
        .width = columns.end - columns.first,
        .line_bytes = line_bytes,
    };
}

/* To nearest, ties away from zero. */
static int32_t mean(int32_t sum, int32_t count)
{
    return sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count;
}

#ifdef __ARM_FEATURE_DSP
#define MOST_IN_16_BITS 255 /* times -128 stays within an int16 */

/* Sums of channels 0 and 2, and of 1 and 3, of all pixels in view: two at once in each register. */
static inline void add_four(const int8_t *x, uint32_t *even, uint32_t *odd)
{
    uint32_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    __asm("sxtab16 %0, %0, %1" : "+r"(*even) : "r"(bytes));
    __asm("sxtab16 %0, %0, %1, ror #8" : "+r"(*odd) : "r"(bytes));
}

static int32_t average_by_four(const struct pool_2d *pool, const struct view *view, int8_t *output)
{
    const int32_t channels = pool->window.channels;
    const int32_t count = view->height * view->width;
    int32_t channel = 0;
    for (; channel + 3 < channels && count <= MOST_IN_16_BITS; channel += 4) {
        uint32_t even = 0;
        uint32_t odd = 0;
        for (int32_t y = 0; y < view->height; y++) {
            const int8_t *x = &view->first[y * view->line_bytes + channel];
#pragma GCC unroll 4
            for (int32_t column = 0; column < view->width; column++) {
                add_four(x, &even, &odd);
                x += channels;
            }
        }
        output[channel] = clamp(mean((int16_t)even, count), pool->lowest, pool->highest);
        output[channel + 1] = clamp(mean((int16_t)odd, count), pool->lowest, pool->highest);
        output[channel + 2] = clamp(mean((int16_t)(even >> 16), count), pool->lowest, pool->highest);
        output[channel + 3] = clamp(mean((int16_t)(odd >> 16), count), pool->lowest, pool->highest);
    }
    return channel;
}

/* The larger of each of four int8. */
static inline uint32_t larger(uint32_t a, uint32_t b)
{
    uint32_t chosen;
    __asm("ssub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(chosen) : "r"(a), "r"(b) : "cc");
    return chosen;
}

static inline uint32_t smaller(uint32_t a, uint32_t b)
{
    uint32_t chosen;
    __asm("ssub8 %0, %1, %2\n\tsel %0, %2, %1" : "=&r"(chosen) : "r"(a), "r"(b) : "cc");
    return chosen;
}

static inline uint32_t four_of(int32_t value)
{
    return (uint32_t)(uint8_t)value * 0x01010101u;
}

static int32_t largest_by_four(const struct pool_2d *pool, const struct view *view, int8_t *output)
{
    const int32_t channels = pool->window.channels;
    const uint32_t lowest = four_of(pool->lowest);
    const uint32_t highest = four_of(pool->highest);
    int32_t channel = 0;
    for (; channel + 3 < channels; channel += 4) {
        uint32_t largest = lowest;
        for (int32_t y = 0; y < view->height; y++) {
            const int8_t *x = &view->first[y * view->line_bytes + channel];
#pragma GCC unroll 4
            for (int32_t column = 0; column < view->width; column++) {
                uint32_t bytes;
                memcpy(&bytes, x, sizeof bytes);
                largest = larger(largest, bytes);
                x += channels;
            }
        }
        largest = smaller(largest, highest);
        memcpy(&output[channel], &largest, sizeof largest);
    }
    return channel;
}
#else
static int32_t largest_by_four(const struct pool_2d *pool, const struct view *view, int8_t *output)
{
    (void)pool;
    (void)view;
    (void)output;
    return 0;
}

static int32_t average_by_four(const struct pool_2d *pool, const struct view *view, int8_t *output)
{
    (void)pool;
    (void)view;
    (void)output;
    return 0;
}
#endif

void average_pool_2d(const struct pool_2d *pool, const int8_t *input, int8_t *output)
{
    const int32_t channels = pool->window.channels;
    const int32_t pixels = pool->window.output_height * pool->window.output_width;
    for (int32_t pixel = 0; pixel < pixels; pixel++) {
        const struct view view = view_at(&pool->window, input, pixel);
        for (int32_t channel = average_by_four(pool, &view, output); channel < channels; channel++) {
            int32_t sum = 0;
            for (int32_t y = 0; y < view.height; y++) {
                const int8_t *x = &view.first[y * view.line_bytes + channel];
                for (int32_t column = 0; column < view.width; column++) {
                    sum += *x;
                    x += channels;
                }
            }
            output[channel] = clamp(mean(sum, view.height * view.width), pool->lowest, pool->highest);
        }
        output += channels;
    }
}

void max_pool_2d(const struct pool_2d *pool, const int8_t *input, int8_t *output)
{
    const int32_t channels = pool->window.channels;
    const int32_t pixels = pool->window.output_height * pool->window.output_width;
    for (int32_t pixel = 0; pixel < pixels; pixel++) {
        const struct view view = view_at(&pool->window, input, pixel);
        for (int32_t channel = largest_by_four(pool, &view, output); channel < channels; channel++) {
            int32_t largest = INT8_MIN;
            for (int32_t y = 0; y < view.height; y++) {
                const int8_t *x = &view.first[y * view.line_bytes + channel];
                for (int32_t column = 0; column < view.width; column++) {
                    largest = *x > largest ? *x : largest;
                    x += channels;
                }
            }
            output[channel] = clamp(largest, pool->lowest, pool->highest);
        }
        output += channels;
    }
}
