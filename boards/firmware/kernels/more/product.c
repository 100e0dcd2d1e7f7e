#include "kernels/more/product.h"

/* Place `at` of the output, `tap` of the window: the place of the input that it comes from, or -1. */
static inline int32_t source(int32_t at, int32_t tap, int32_t padding, int32_t stride, int32_t size)
{
    const int32_t place = at + padding - tap;
    if (place < 0 || place % stride != 0 || place / stride >= size) {
        return -1;
    }
    return place / stride;
}

static int32_t sum_at(const struct transpose_conv *params, const int8_t *input, const int8_t *weights, int32_t row,
                      int32_t column)
{
    const struct window *window = &params->window;
    const int32_t channels = window->channels;
    int32_t sum = 0;
    for (int32_t tap_y = 0; tap_y < window->height; tap_y++) {
        const int32_t y = source(row, tap_y, window->padding_top, window->stride_y, window->output_height);
        for (int32_t tap_x = 0; tap_x < window->width && y >= 0; tap_x++) {
            const int32_t x = source(column, tap_x, window->padding_left, window->stride_x, window->output_width);
            if (x < 0) {
                continue;
            }
            const int8_t *pixel = &input[(y * window->output_width + x) * channels];
            const int8_t *taps = &weights[(tap_y * window->width + tap_x) * channels];
            for (int32_t channel = 0; channel < channels; channel++) {
                sum += (pixel[channel] - params->input_zero_point) * taps[channel];
            }
        }
    }
    return sum;
}

void transpose_conv(const struct transpose_conv *params, const int8_t *input, int8_t *output)
{
    const struct window *window = &params->window;
    const int32_t filter = window->height * window->width * window->channels;
    for (int32_t row = 0; row < window->input_height; row++) {
        for (int32_t column = 0; column < window->input_width; column++) {
            for (int32_t number = 0; number < params->outputs; number++) {
                const struct requantise_channel *channel = &params->channels[number];
                const int32_t sum = sum_at(params, input, &params->weights[number * filter], row, column);
                *output++ = requantise(sum + channel->bias, channel, &params->range);
            }
        }
    }
}

static int8_t *multiply(const struct batch_matmul *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    for (int32_t row = 0; row < params->rows; row++) {
        for (int32_t column = 0; column < params->columns; column++) {
            const int8_t *x = &first[row * params->row_steps[0]];
            const int8_t *y = &second[column * params->column_steps[1]];
            int32_t sum = 0;
            for (int32_t index = 0; index < params->depth; index++) {
                sum += (*x - params->zero_points[0]) * (*y - params->zero_points[1]);
                x += params->row_steps[1];
                y += params->column_steps[0];
            }
            const int32_t scaled = rescale(sum, params->multiplier, params->left, params->right);
            *output++ = clamp(scaled + params->range.zero_point, params->range.lowest, params->range.highest);
        }
    }
    return output;
}

void batch_matmul(const struct batch_matmul *params, const int8_t *first, const int8_t *second, int8_t *output)
{
    for (int32_t a = 0; a < params->batches[0]; a++) {
        for (int32_t b = 0; b < params->batches[1]; b++) {
            for (int32_t c = 0; c < params->batches[2]; c++) {
                const int32_t *one = params->steps[0];
                const int32_t *two = params->steps[1];
                output = multiply(params, &first[a * one[0] + b * one[1] + c * one[2]],
                                  &second[a * two[0] + b * two[1] + c * two[2]], output);
            }
        }
    }
}
