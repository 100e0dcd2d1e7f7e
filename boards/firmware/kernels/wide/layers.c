#include "kernels/wide/layers.h"

/* Where the window of a pixel begins, and which of its taps lie inside the image. */
struct view {
    int32_t y, x;
    struct window_span rows, columns;
};

static struct view view_of(const struct window *window, int32_t pixel)
{
    struct view view = {
        .y = pixel / window->output_width * window->stride_y - window->padding_top,
        .x = pixel % window->output_width * window->stride_x - window->padding_left,
    };
    view.rows = window_inside(view.y, window->height, window->dilation_y, window->input_height);
    view.columns = window_inside(view.x, window->width, window->dilation_x, window->input_width);
    return view;
}

static int16_t limited(int64_t value, int32_t lowest, int32_t highest)
{
    return (int16_t)(value < lowest ? lowest : value > highest ? highest : value);
}

static int64_t scaled(const struct wide_layer *layer, const struct wide_channel *channel, int64_t sum)
{
    if (layer->is_narrow) {
        const int32_t shift = channel->shift;
        return rescale((int32_t)sum, channel->multiplier, shift > 0 ? shift : 0, shift < 0 ? -shift : 0);
    }
    return (int32_t)((sum * channel->multiplier + (INT64_C(1) << (channel->shift - 1))) >> channel->shift);
}

static int64_t sum_of(const struct wide_layer *layer, const struct view *view, const int16_t *input, int32_t output)
{
    const struct window *window = &layer->window;
    const int32_t channels = window->channels;
    const int is_depthwise = layer->depth_multiplier != 0;
    const int32_t own = is_depthwise ? output / layer->depth_multiplier : 0; /* the channel that it sees */
    int64_t sum = layer->channels[output].bias;
    for (int32_t row = view->rows.first; row < view->rows.end; row++) {
        const int32_t y = view->y + row * window->dilation_y;
        for (int32_t column = view->columns.first; column < view->columns.end; column++) {
            const int16_t *x = &input[(y * window->input_width + view->x + column * window->dilation_x) * channels];
            const int32_t tap = row * window->width + column;
            if (is_depthwise) {
                sum += x[own] * layer->weights[tap * layer->outputs + output];
                continue;
            }
            const int8_t *weights = &layer->weights[(output * window->height * window->width + tap) * channels];
            for (int32_t channel = 0; channel < channels; channel++) {
                sum += x[channel] * weights[channel];
            }
        }
    }
    return sum;
}

void wide_layer(const struct wide_layer *layer, const void *input, void *output)
{
    const int32_t pixels = layer->window.output_height * layer->window.output_width;
    int16_t *result = output;
    for (int32_t pixel = 0; pixel < pixels; pixel++) {
        const struct view view = view_of(&layer->window, pixel);
        for (int32_t index = 0; index < layer->outputs; index++) {
            const int64_t sum = sum_of(layer, &view, input, index);
            *result++ = limited(scaled(layer, &layer->channels[index], sum), layer->lowest, layer->highest);
        }
    }
}

static void pool(const struct pool_2d *params, const int16_t *input, int is_average, int16_t *output)
{
    const struct window *window = &params->window;
    const int32_t channels = window->channels;
    for (int32_t pixel = 0; pixel < window->output_height * window->output_width; pixel++) {
        const struct view view = view_of(window, pixel);
        const int32_t count = (view.rows.end - view.rows.first) * (view.columns.end - view.columns.first);
        for (int32_t channel = 0; channel < channels; channel++) {
            int32_t sum = 0, largest = INT16_MIN;
            for (int32_t row = view.rows.first; row < view.rows.end; row++) {
                for (int32_t column = view.columns.first; column < view.columns.end; column++) {
                    const int32_t at = (view.y + row) * window->input_width + view.x + column;
                    const int32_t value = input[at * channels + channel];
                    sum += value;
                    largest = value > largest ? value : largest;
                }
            }
            const int32_t mean = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
            *output++ = limited(is_average ? mean : largest, params->lowest, params->highest);
        }
    }
}

void wide_average_pool(const struct pool_2d *params, const void *input, void *output)
{
    pool(params, input, 1, output);
}

void wide_max_pool(const struct pool_2d *params, const void *input, void *output)
{
    pool(params, input, 0, output);
}

void wide_mean(const struct mean *params, const void *input, void *output)
{
    const int16_t *values = input;
    int16_t *result = output;
    for (int32_t outer = 0; outer < params->kept[0].size; outer++) {
        for (int32_t inner = 0; inner < params->kept[1].size; inner++) {
            const int16_t *x = &values[outer * params->kept[0].step + inner * params->kept[1].step];
            int32_t sum = 0;
            for (int32_t line = 0; line < params->summed[0].size; line++) {
                for (int32_t index = 0; index < params->summed[1].size; index++) {
                    sum += x[line * params->summed[0].step + index * params->summed[1].step];
                }
            }
            const int32_t mean = rescale(sum, params->multiplier, params->left, params->right);
            *result++ = limited(mean, params->range.lowest, params->range.highest);
        }
    }
}
