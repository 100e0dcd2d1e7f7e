#include "kernels/fast_depthwise.h"

#include <string.h>

#include "kernels/inner/fast_move.h"

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

static void fill(int32_t *line, int32_t count, int32_t word)
{
    for (int32_t index = 0; index < count; index++) {
        line[index] = word;
    }
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Line `index` of the padded image, its rows 2 * index and 2 * index + 1, from column `start` on. What lies beside the
 * image stays as it is, unless the line is new. */
static void make_line(const struct fast_depthwise *conv, const int8_t *input, const int8_t *padding, int32_t index,
                      int32_t start, int is_new, int32_t *line)
{
    const struct window *window = &conv->window;
    const int32_t channels = window->channels;
    const struct row upper = row_at(conv, input, padding, 2 * index - window->padding_top);
    const struct row lower = row_at(conv, input, padding, 2 * index + 1 - window->padding_top);
    const int32_t from = start - window->padding_left; /* column of the image */
    const int32_t left = from < 0 ? -from : 0;
    const int32_t first = from < 0 ? 0 : from;
    const int32_t end = least(window->input_width, from + conv->columns);
    const int32_t seen = end > first ? end - first : 0;
    if (is_new) {
        const int32_t zero_points = word_of(padding[0], padding[0]);
        fill(line, left * channels, zero_points);
        fill(&line[(left + seen) * channels], (conv->columns - left - seen) * channels, zero_points);
    }
    pair_values(conv, &upper, &lower, first * channels, seen * channels, &line[left * channels]);
}

/* Where line `index` lies, when the first of the buffer is `first`. */
static int32_t *place_of(const struct fast_depthwise *conv, int32_t *buffer, int32_t first, int32_t index)
{
    const int32_t number = conv->is_ring ? index % conv->lines : index - first;
    return &buffer[number * conv->columns * conv->window.channels];
}

/* `count` lines, which are moved on from part to part. */
static void output_rows(const struct fast_depthwise *conv, int32_t rows, const int32_t **lines, int32_t count,
                        int8_t *output)
{
    fast_depthwise_function *const function = rows == 2 ? conv->two_rows : conv->one_row;
    const int32_t channels = conv->window.channels;
    int32_t x = 0;
    for (;;) {
        const int32_t *records = conv->records;
        for (int32_t multiple = 0; multiple < conv->depth_multiplier; multiple++) {
            const int32_t *const end = &records[channels * conv->record_words];
            function(lines, &output[multiple], records, end);
            records = end;
        }
        const int32_t on = least(conv->part, conv->tile - conv->part - x);
        if (on == 0) {
            return;
        }
        for (int32_t line = 0; line < count; line++) {
            lines[line] += on * conv->window.stride_x * channels;
        }
        output += on * channels * conv->depth_multiplier;
        x += on;
    }
}

/* Rows [y, end) of a tile's outputs, whose first column is `x`; `y` is even. */
static void outputs_of(const struct fast_depthwise *conv, int32_t x, int32_t y, int32_t end, const int8_t *input,
                       int32_t *buffer, int8_t *output)
{
    const struct window *window = &conv->window;
    const int32_t words = conv->columns * window->channels;
    const int32_t outputs = window->channels * conv->depth_multiplier;
    const int32_t *seen[FAST_DEPTHWISE_LINES];
    int8_t padding[FAST_DEPTHWISE_PAIRED];
    int32_t first = 0, made = 0; /* lines [first, made) are in the buffer */
    int32_t filled = 0;          /* lines since the tile began */
    memset(padding, conv->input_zero_point, sizeof padding);
    while (y < end) {
        const int32_t rows = conv->two_rows == 0 || end - y < 2 ? 1 : 2;
        const int32_t top = y * window->stride_y / 2;
        const int32_t count = ((rows - 1) * window->stride_y + window->height + 1) / 2;
        if (top >= made) {
            first = made = top;
        } else if (!conv->is_ring && top + count > first + conv->lines) {
            fast_move(buffer, &buffer[(top - first) * words], (made - top) * words);
            first = top;
        }
        for (; made < top + count; made++) {
            const int is_new = !conv->is_ring || filled < conv->lines;
            make_line(conv, input, padding, made, x * window->stride_x, is_new, place_of(conv, buffer, first, made));
            filled++;
        }
        for (int32_t line = 0; line < count; line++) {
            seen[line] = place_of(conv, buffer, first, top + line);
        }
        output_rows(conv, rows, seen, count, &output[(y * window->output_width + x) * outputs]);
        y += rows;
    }
}

void fast_depthwise(const struct fast_depthwise *conv, const int8_t *input, int32_t *buffer, int8_t *output)
{
    const int32_t width = conv->window.output_width;
    const int32_t height = conv->window.output_height;
    for (int32_t y = 0; y < height; y += conv->strip) {
        const int32_t end = least(height, y + conv->strip);
        for (int32_t x = 0; x < width; x += conv->tile) {
            outputs_of(conv, least(x, width - conv->tile), y, end, input, buffer, output);
        }
    }
}
