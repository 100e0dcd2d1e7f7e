/* conv_2d.c: the inputs under the window are gathered into a row (padding becomes the zero point, which cancels against
 * the folded bias), two pixels at a time, and multiplied with the filters: the inner loop knows nothing of borders.
 */
#include "kernels/conv_2d.h"

#include <string.h>

/* One line of taps; `line` is the image's line below them. */
static void gather_line(const struct conv_2d *conv, const int8_t *line, int32_t start_x, int8_t *patch)
{
    const struct window *window = &conv->window;
    const int32_t channels = window->channels;
    const struct window_span inside = window_inside(start_x, window->width, window->dilation_x, window->input_width);
    memset(patch, conv->input_zero_point, (size_t)(inside.first * channels));
    if (window->dilation_x == 1) {
        memcpy(&patch[inside.first * channels], &line[(start_x + inside.first) * channels],
               (size_t)((inside.end - inside.first) * channels));
    } else {
        for (int32_t tap = inside.first; tap < inside.end; tap++) {
            memcpy(&patch[tap * channels], &line[(start_x + tap * window->dilation_x) * channels], (size_t)channels);
        }
    }
    memset(&patch[inside.end * channels], conv->input_zero_point, (size_t)((window->width - inside.end) * channels));
}

static void gather(const struct conv_2d *conv, const int8_t *input, int32_t pixel, int8_t *patch)
{
    const struct window *window = &conv->window;
    const int32_t start_y = pixel / window->output_width * window->stride_y - window->padding_top;
    const int32_t start_x = pixel % window->output_width * window->stride_x - window->padding_left;
    const int32_t line_bytes = window->width * window->channels;
    for (int32_t tap = 0; tap < window->height; tap++) {
        const int32_t y = start_y + tap * window->dilation_y;
        if (y < 0 || y >= window->input_height) {
            memset(patch, conv->input_zero_point, (size_t)line_bytes);
        } else {
            gather_line(conv, &input[y * window->input_width * window->channels], start_x, patch);
        }
        patch += line_bytes;
    }
}

void conv_2d(const struct conv_2d *conv, const int8_t *input, int8_t *patches, int8_t *output)
{
    const int32_t pixels = conv->window.output_height * conv->window.output_width;
    for (int32_t pixel = 0; pixel < pixels; pixel += 2) {
        const int32_t rows = pixel + 1 < pixels ? 2 : 1;
        for (int32_t row = 0; row < rows; row++) {
            gather(conv, input, pixel + row, &patches[row * conv->matrix.depth]);
        }
        matrix_multiply(&conv->matrix, patches, rows, output);
        output += rows * conv->matrix.outputs;
    }
}
