#include "kernels/fast_depthwise.h"

#include <string.h>

static int32_t word_of(int32_t upper, int32_t lower)
{
    return (int32_t)(((uint32_t)upper & 0xffffu) | (uint32_t)lower << 16);
}

/* A row of the image, or padding in its place. */
struct row {
    const int8_t *values;
    int32_t step;
};

static struct row row_at(const struct fast_depthwise *conv, const int8_t *input, const int8_t *padding, int32_t y)
{
    const struct window *window = &conv->window;
    if (y < 0 || y >= window->input_height) {
        return (struct row){padding, 0};
    }
    return (struct row){&input[y * window->input_width * window->channels], FAST_DEPTHWISE_PAIRED};
}

/* `count` neighbouring values of both rows, from value `at` on; the last round may repeat some of the one before. */
static void pair_values(const struct fast_depthwise *conv, const struct row *upper, const struct row *lower, int32_t at,
                        int32_t count, int32_t *line)
{
    const int32_t steps[2] = {upper->step, lower->step};
    const int8_t *above = upper->step != 0 ? &upper->values[at] : upper->values;
    const int8_t *below = lower->step != 0 ? &lower->values[at] : lower->values;
    const int32_t rest = count % FAST_DEPTHWISE_PAIRED;
    if (count >= FAST_DEPTHWISE_PAIRED) {
        conv->pair(above, below, line, &line[count - rest], steps);
    }
    if (rest != 0 && count >= FAST_DEPTHWISE_PAIRED) {
        const int32_t last = count - FAST_DEPTHWISE_PAIRED;
        above += upper->step != 0 ? last : 0;
        below += lower->step != 0 ? last : 0;
        conv->pair(above, below, &line[last], &line[count], steps);
    } else {
        for (int32_t index = 0; index < rest; index++) {
            line[index] = word_of(above[index], below[index]);
        }
    }
}

/* Line `index` of the padded image: its rows 2 * index and 2 * index + 1. `input` is the block's first channel. */
static void make_line(const struct fast_depthwise *conv, const int8_t *input, const int8_t *padding, int32_t index,
                      int32_t *line)
{
    const struct window *window = &conv->window;
    const struct row upper = row_at(conv, input, padding, 2 * index - window->padding_top);
    const struct row lower = row_at(conv, input, padding, 2 * index + 1 - window->padding_top);
    const int32_t room = conv->columns - window->padding_left;
    const int32_t seen = window->input_width < room ? window->input_width : room;
    line += window->padding_left * conv->block;
    if (conv->block == window->channels) {
        pair_values(conv, &upper, &lower, 0, seen * conv->block, line);
        return;
    }
    for (int32_t x = 0; x < seen; x++) {
        pair_values(conv, &upper, &lower, x * window->channels, conv->block, &line[x * conv->block]);
    }
}

/* The columns beside the image, in all lines: nobody else writes there. */
static void fill_beside(const struct fast_depthwise *conv, int32_t *buffer)
{
    const int32_t zero_points = word_of(conv->input_zero_point, conv->input_zero_point);
    const int32_t left = conv->window.padding_left * conv->block;
    const int32_t right = (conv->window.padding_left + conv->window.input_width) * conv->block;
    const int32_t end = conv->columns * conv->block;
    for (int32_t line = 0; line < conv->lines; line++) {
        for (int32_t index = 0; index < left; index++) {
            buffer[index] = zero_points;
        }
        for (int32_t index = right; index < end; index++) {
            buffer[index] = zero_points;
        }
        buffer += end;
    }
}

static void output_rows(const struct fast_depthwise *conv, int32_t rows, const int32_t *x, const int32_t *records,
                        int8_t *output)
{
    fast_depthwise_function *const function = rows == 2 ? conv->two_rows : conv->one_row;
    for (int32_t multiple = 0; multiple < conv->depth_multiplier; multiple++) {
        function(x, &output[multiple], records, &records[conv->block * conv->record_words]);
        records += conv->window.channels * conv->record_words;
    }
}

/* Lines that are still needed, to the front: in rounds of eight words, as memmove() goes word by word. */
static void move_lines(int32_t *to, const int32_t *from, int32_t count)
{
    int32_t index = 0;
    for (; index + 7 < count; index += 8) {
#pragma GCC unroll 8
        for (int32_t word = 0; word < 8; word++) {
            to[index + word] = from[index + word];
        }
    }
    for (; index < count; index++) {
        to[index] = from[index];
    }
}

/* Rows [y, end) of a block's outputs; `y` is even. */
static void outputs_of(const struct fast_depthwise *conv, int32_t channel, int32_t y, int32_t end, const int8_t *input,
                       int32_t *buffer, int8_t *output)
{
    const struct window *window = &conv->window;
    const int32_t words = conv->columns * conv->block;
    const int32_t row_bytes = window->output_width * window->channels * conv->depth_multiplier;
    int8_t padding[FAST_DEPTHWISE_PAIRED];
    int32_t first = 0, made = 0; /* lines [first, made) are in the buffer */
    memset(padding, conv->input_zero_point, sizeof padding);
    while (y < end) {
        const int32_t rows = end - y < 2 ? 1 : 2;
        const int32_t top = y * window->stride_y / 2;
        const int32_t bottom = top + ((rows - 1) * window->stride_y + window->height + 1) / 2;
        if (top >= made) {
            first = made = top;
        } else if (bottom > first + conv->lines) {
            move_lines(buffer, &buffer[(top - first) * words], (made - top) * words);
            first = top;
        }
        for (; made < bottom; made++) {
            make_line(conv, &input[channel], padding, made, &buffer[(made - first) * words]);
        }
        output_rows(conv, rows, &buffer[(top - first) * words], &conv->records[channel * conv->record_words],
                    &output[y * row_bytes + channel * conv->depth_multiplier]);
        y += rows;
    }
}

void fast_depthwise(const struct fast_depthwise *conv, const int8_t *input, int32_t *buffer, int8_t *output)
{
    const int32_t last = conv->window.channels - conv->block;
    const int32_t height = conv->window.output_height;
    fill_beside(conv, buffer);
    for (int32_t y = 0; y < height; y += conv->strip) {
        const int32_t end = height - y < conv->strip ? height : y + conv->strip;
        for (int32_t channel = 0; channel < conv->window.channels; channel += conv->block) {
            outputs_of(conv, channel < last ? channel : last, y, end, input, buffer, output);
        }
    }
}
