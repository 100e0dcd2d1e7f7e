/* depthwise_conv_2d.c: for each pixel, a list of where each tap of the window reads; a tap outside the image reads a
 * line of zero points, which cancel against the folded bias. Then four channels at a time run down that list.
 */
#include "kernels/depthwise_conv_2d.h"

#include <string.h>

static void find_taps(const struct window *window, const int8_t *input, int32_t pixel, const int8_t *padding,
                      const int8_t **taps)
{
    const int32_t start_y = pixel / window->output_width * window->stride_y - window->padding_top;
    const int32_t start_x = pixel % window->output_width * window->stride_x - window->padding_left;
    for (int32_t tap_y = 0; tap_y < window->height; tap_y++) {
        const int32_t y = start_y + tap_y * window->dilation_y;
        for (int32_t tap_x = 0; tap_x < window->width; tap_x++) {
            const int32_t x = start_x + tap_x * window->dilation_x;
            const int inside = y >= 0 && y < window->input_height && x >= 0 && x < window->input_width;
            *taps++ = inside ? &input[(y * window->input_width + x) * window->channels] : padding;
        }
    }
}

/* Outputs n .. n+3, each from the input channel of the same number. */
static inline void four_outputs(const struct depthwise_conv_2d *conv, const int8_t *const *taps, int32_t tap_count,
                                int32_t n, int8_t *output)
{
    const struct requantise_channel *channel = &conv->channels[n];
    const int32_t outputs = conv->window.channels;
    const int8_t *weights = &conv->weights[n];
    int32_t sum_0 = channel[0].bias;
    int32_t sum_1 = channel[1].bias;
    int32_t sum_2 = channel[2].bias;
    int32_t sum_3 = channel[3].bias;
    for (int32_t tap = 0; tap < tap_count; tap++) {
        const int8_t *x = &taps[tap][n];
        sum_0 += x[0] * weights[0];
        sum_1 += x[1] * weights[1];
        sum_2 += x[2] * weights[2];
        sum_3 += x[3] * weights[3];
        weights += outputs;
    }
    output[n] = requantise(sum_0, &channel[0], &conv->range);
    output[n + 1] = requantise(sum_1, &channel[1], &conv->range);
    output[n + 2] = requantise(sum_2, &channel[2], &conv->range);
    output[n + 3] = requantise(sum_3, &channel[3], &conv->range);
}

static int8_t one_output(const struct depthwise_conv_2d *conv, const int8_t *const *taps, int32_t tap_count, int32_t n)
{
    const int32_t outputs = conv->window.channels * conv->depth_multiplier;
    const int32_t channel = n / conv->depth_multiplier;
    int32_t sum = conv->channels[n].bias;
    for (int32_t tap = 0; tap < tap_count; tap++) {
        sum += taps[tap][channel] * conv->weights[tap * outputs + n];
    }
    return requantise(sum, &conv->channels[n], &conv->range);
}

void depthwise_conv_2d(const struct depthwise_conv_2d *conv, const int8_t *input, const int8_t **taps, int8_t *padding,
                       int8_t *output)
{
    const struct window *window = &conv->window;
    const int32_t pixels = window->output_height * window->output_width;
    const int32_t tap_count = window->height * window->width;
    const int32_t outputs = window->channels * conv->depth_multiplier;
    memset(padding, conv->input_zero_point, (size_t)window->channels);
    for (int32_t pixel = 0; pixel < pixels; pixel++) {
        int32_t n = 0;
        find_taps(window, input, pixel, padding, taps);
        if (conv->depth_multiplier == 1) {
            for (; n + 3 < outputs; n += 4) {
                four_outputs(conv, taps, tap_count, n, output);
            }
        }
        for (; n < outputs; n++) {
            output[n] = one_output(conv, taps, tap_count, n);
        }
        output += outputs;
    }
}
