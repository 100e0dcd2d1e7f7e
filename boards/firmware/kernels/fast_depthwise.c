#include "kernels/fast_depthwise.h"

#include <string.h>

static inline int32_t pair(int32_t upper, int32_t lower)
{
    return (int32_t)(((uint32_t)upper & 0xffffu) | (uint32_t)lower << 16);
}

#ifdef __ARM_FEATURE_DSP
/* Four channels of one column; `pitch` words lie between the channels of a line. */
static inline void interleave_four(const int8_t *upper, const int8_t *lower, int32_t *line, int32_t pitch)
{
    uint32_t above, below, above_even, above_odd, below_even, below_odd;
    memcpy(&above, upper, sizeof above);
    memcpy(&below, lower, sizeof below);
    __asm("sxtb16 %0, %1" : "=r"(above_even) : "r"(above));
    __asm("sxtb16 %0, %1" : "=r"(below_even) : "r"(below));
    __asm("sxtb16 %0, %1, ror #8" : "=r"(above_odd) : "r"(above));
    __asm("sxtb16 %0, %1, ror #8" : "=r"(below_odd) : "r"(below));
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(line[0]) : "r"(above_even), "r"(below_even));
    __asm("pkhbt %0, %1, %2, lsl #16" : "=r"(line[pitch]) : "r"(above_odd), "r"(below_odd));
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(line[2 * pitch]) : "r"(below_even), "r"(above_even));
    __asm("pkhtb %0, %1, %2, asr #16" : "=r"(line[3 * pitch]) : "r"(below_odd), "r"(above_odd));
}
#else
static inline void interleave_four(const int8_t *upper, const int8_t *lower, int32_t *line, int32_t pitch)
{
    for (int32_t channel = 0; channel < 4; channel++) {
        line[channel * pitch] = pair(upper[channel], lower[channel]);
    }
}
#endif

static void interleave(const int8_t *upper, const int8_t *lower, int32_t channels, int32_t *line, int32_t pitch)
{
    int32_t channel = 0;
    for (; channel + 3 < channels; channel += 4) {
        interleave_four(&upper[channel], &lower[channel], line, pitch);
        line += 4 * pitch;
    }
    for (; channel < channels; channel++) {
        *line = pair(upper[channel], lower[channel]);
        line += pitch;
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
        interleave(upper.pixel, lower.pixel, window->channels, &line[window->padding_left + x], conv->columns);
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
    for (; x + 1 < width; x += 2) {
        outputs_at(conv, functions[1], lines, x, output);
    }
    if (x < width) {
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
