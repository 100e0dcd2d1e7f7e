#include "kernels/fast_depthwise.h"

#include <string.h>

static inline int32_t pair(int32_t upper, int32_t lower)
{
    return (int32_t)(((uint32_t)upper & 0xffffu) | (uint32_t)lower << 16);
}

static void interleave(const struct fast_depthwise *conv, const int8_t *upper, const int8_t *lower, int32_t *line)
{
    const int32_t channels = conv->window.channels;
    const int32_t rounds = channels / FAST_DEPTHWISE_INTERLEAVED;
    if (rounds > 0) {
        conv->interleave(upper, lower, line, conv->columns * (int32_t)sizeof *line, rounds);
    }
    for (int32_t channel = rounds * FAST_DEPTHWISE_INTERLEAVED; channel < channels; channel++) {
        line[channel * conv->columns] = pair(upper[channel], lower[channel]);
    }
}

/* A row of the image, or the padding in place of all its pixels. */
struct row {
    const int8_t *pixel;
    int32_t step;
};

static struct row row_at(const struct window *window, const int8_t *input, int32_t y, const int8_t *padding)
{
    if (y < 0 || y >= window->input_height) {
        return (struct row){padding, 0};
    }
    return (struct row){&input[y * window->input_width * window->channels], window->channels};
}

/* Line `index` of the padded image: its rows 2 * index and 2 * index + 1. */
static void make_line(const struct fast_depthwise *conv, const int8_t *input, int32_t index, const int8_t *padding,
                      int32_t *line)
{
    const struct window *window = &conv->window;
    struct row upper = row_at(window, input, 2 * index - window->padding_top, padding);
    struct row lower = row_at(window, input, 2 * index + 1 - window->padding_top, padding);
    const int32_t room = conv->columns - window->padding_left;
    const int32_t seen = window->input_width < room ? window->input_width : room;
    for (int32_t x = 0; x < seen; x++) {
        interleave(conv, upper.pixel, lower.pixel, &line[window->padding_left + x]);
        upper.pixel += upper.step;
        lower.pixel += lower.step;
    }
}

/* Column `x` and, with the second function, its right neighbour. */
static void outputs_at(const struct fast_depthwise *conv, fast_depthwise_function *function, int32_t *const *lines,
                       int32_t x, int8_t *output)
{
    const int32_t *seen[FAST_DEPTHWISE_LINES];
    for (int32_t line = 0; line < conv->lines; line++) {
        seen[line] = &lines[line][x * conv->window.stride_x];
    }
    for (int32_t multiple = 0; multiple < conv->depth_multiplier; multiple++) {
        function(seen, &output[x * conv->walks->outputs + multiple], &conv->walks[multiple]);
    }
}

static void output_row(const struct fast_depthwise *conv, fast_depthwise_function *const *functions,
                       int32_t *const *lines, int8_t *output)
{
    const int32_t width = conv->window.output_width;
    int32_t x = 0;
    for (; functions[1] != 0 && x + 1 < width; x += 2) {
        outputs_at(conv, functions[1], lines, x, output);
    }
    for (; x < width; x++) {
        outputs_at(conv, functions[0], lines, x, output);
    }
}

void fast_depthwise(const struct fast_depthwise *conv, const int8_t *input, int32_t *buffer, int8_t *padding,
                    int8_t *output)
{
    const struct window *window = &conv->window;
    const int32_t words = conv->columns * window->channels;
    const int32_t rows_a_step = window->stride_y == 1 ? 2 : 1;
    const int32_t last = conv->lines - 1;
    int32_t *lines[FAST_DEPTHWISE_LINES]; /* from the top of the window down */
    memset(padding, conv->input_zero_point, (size_t)window->channels);
    for (int32_t word = 0; word < conv->lines * words; word++) { /* the columns beside the image stay so */
        buffer[word] = pair(conv->input_zero_point, conv->input_zero_point);
    }
    for (int32_t line = 0; line <= last; line++) {
        lines[line] = &buffer[line * words];
        if (line < last) {
            make_line(conv, input, line, padding, lines[line]);
        }
    }
    for (int32_t y = 0; y < window->output_height; y += rows_a_step) {
        make_line(conv, input, y / rows_a_step + last, padding, lines[last]);
        const int32_t rows = window->output_height - y < rows_a_step ? 1 : rows_a_step;
        output_row(conv, rows == 2 ? conv->two_rows : conv->one_row, lines, output);
        output += rows * conv->walks->row_bytes;
        int32_t *const done = lines[0];
        for (int32_t line = 0; line < last; line++) {
            lines[line] = lines[line + 1];
        }
        lines[last] = done;
    }
}
