#include "kernels/small_depthwise.h"

#include <string.h>

static inline int32_t pair(int32_t upper, int32_t lower)
{
    return (int32_t)(((uint32_t)upper & 0xffffu) | (uint32_t)lower << 16);
}

/* Some channels of the layer on their way down the image. */
struct block {
    const struct small_depthwise *conv;
    const int8_t *input; /* its first channel */
    int32_t channels;
    const int32_t *records; /* of its first channel's first output */
    const int8_t *padding;
};

static void interleave(const struct block *block, const int8_t *upper, const int8_t *lower, int32_t *line)
{
    const int32_t columns = block->conv->columns;
    const int32_t rounds = block->channels / SMALL_DEPTHWISE_INTERLEAVED;
    if (rounds > 0) {
        block->conv->interleave(upper, lower, line, columns * (int32_t)sizeof *line, rounds);
    }
    for (int32_t channel = rounds * SMALL_DEPTHWISE_INTERLEAVED; channel < block->channels; channel++) {
        line[channel * columns] = pair(upper[channel], lower[channel]);
    }
}

/* A row of the image, or the padding in place of all its pixels. */
struct row {
    const int8_t *pixel;
    int32_t step;
};

static struct row row_at(const struct block *block, int32_t y)
{
    const struct window *window = &block->conv->window;
    if (y < 0 || y >= window->input_height) {
        return (struct row){block->padding, 0};
    }
    return (struct row){&block->input[y * window->input_width * window->channels], window->channels};
}

/* Line `index` of the padded image: its rows 2 * index and 2 * index + 1. */
static void make_line(const struct block *block, int32_t index, int32_t *line)
{
    const struct window *window = &block->conv->window;
    struct row upper = row_at(block, 2 * index - window->padding_top);
    struct row lower = row_at(block, 2 * index + 1 - window->padding_top);
    const int32_t room = block->conv->columns - window->padding_left;
    const int32_t seen = window->input_width < room ? window->input_width : room;
    for (int32_t x = 0; x < seen; x++) {
        interleave(block, upper.pixel, lower.pixel, &line[window->padding_left + x]);
        upper.pixel += upper.step;
        lower.pixel += lower.step;
    }
}

/* The columns beside the image, in all lines: no line writes there. */
static void fill_beside(const struct block *block, int32_t *buffer)
{
    const struct small_depthwise *conv = block->conv;
    const int32_t zero_points = pair(conv->input_zero_point, conv->input_zero_point);
    const int32_t left = conv->window.padding_left;
    const int32_t end = left + conv->window.input_width;
    for (int32_t line = 0; line < conv->lines * block->channels; line++) {
        for (int32_t x = 0; x < left; x++) {
            buffer[x] = zero_points;
        }
        for (int32_t x = end; x < conv->columns; x++) {
            buffer[x] = zero_points;
        }
        buffer += conv->columns;
    }
}

/* `count` times `at_once` columns from `x` on. */
static void outputs_at(const struct block *block, small_depthwise_function *const *functions, int32_t at_once,
                       int32_t *const *lines, int32_t x, int32_t count, int8_t *output)
{
    const struct small_depthwise *conv = block->conv;
    const struct window *window = &conv->window;
    const int32_t outputs = window->channels * conv->depth_multiplier;
    const int32_t pitch = conv->columns * (int32_t)sizeof **lines;
    const int32_t *seen[SMALL_DEPTHWISE_LINES];
    struct small_depthwise_walk walk = {
        .records = block->records,
        .pitch_bytes = pitch,
        .outputs = outputs,
        .row_bytes = window->output_width * outputs,
        .zero = conv->zero,
        .next_column = at_once * window->stride_x * (int32_t)sizeof **lines - block->channels * pitch,
        .next_output = at_once * outputs - block->channels * conv->depth_multiplier,
        .count = count,
    };
    for (int32_t line = 0; line < conv->lines; line++) {
        seen[line] = &lines[line][x * window->stride_x];
    }
    for (int32_t multiple = 0; multiple < conv->depth_multiplier; multiple++) {
        walk.end = &walk.records[block->channels * conv->record_words];
        functions[at_once - 1](seen, &output[x * outputs + multiple], &walk);
        walk.records += window->channels * conv->record_words;
    }
}

static void output_row(const struct block *block, small_depthwise_function *const *functions, int32_t *const *lines,
                       int8_t *output)
{
    const int32_t width = block->conv->window.output_width;
    const int32_t pairs = functions[1] != 0 ? width / 2 : 0;
    if (pairs > 0) {
        outputs_at(block, functions, 2, lines, 0, pairs, output);
    }
    if (functions[0] != 0) {
        outputs_at(block, functions, 1, lines, 2 * pairs, width - 2 * pairs, output);
    } else if (width > 2 * pairs) { /* to save code, the last column is done once more with the one before it */
        outputs_at(block, functions, 2, lines, width - 2, 1, output);
    }
}

static void outputs_of(const struct block *block, int32_t *buffer, int8_t *output)
{
    const struct small_depthwise *conv = block->conv;
    const struct window *window = &conv->window;
    const int32_t row_bytes = window->output_width * window->channels * conv->depth_multiplier;
    const int32_t words = conv->columns * block->channels;
    const int32_t rows_a_step = window->stride_y == 1 ? 2 : 1;
    const int32_t last = conv->lines - 1;
    int32_t *lines[SMALL_DEPTHWISE_LINES]; /* from the top of the window down */
    fill_beside(block, buffer);
    for (int32_t line = 0; line <= last; line++) {
        lines[line] = &buffer[line * words];
        if (line < last) {
            make_line(block, line, lines[line]);
        }
    }
    for (int32_t y = 0; y < window->output_height; y += rows_a_step) {
        make_line(block, y / rows_a_step + last, lines[last]);
        const int32_t rows = window->output_height - y < rows_a_step ? 1 : rows_a_step;
        output_row(block, rows == 2 ? conv->two_rows : conv->one_row, lines, output);
        output += rows * row_bytes;
        int32_t *const done = lines[0];
        for (int32_t line = 0; line < last; line++) {
            lines[line] = lines[line + 1];
        }
        lines[last] = done;
    }
}

/* Each column's weights of rows 0 and 1, of rows 1 and 2 ..., then bias, multiplier and shift; all doubled. */
static void make_records(const struct small_depthwise *conv, int32_t first, int32_t channels, int32_t *record)
{
    const struct window *window = &conv->window;
    const int32_t row_step = window->width * window->channels;
    struct packed_reader reader = {.packed = &conv->packed.channels};
    packed_reader_seek(&reader, first);
    for (int32_t channel = first; channel < first + channels; channel++) {
        int32_t sum = 0;
        for (int32_t column = 0; column < window->width; column++) {
            const int8_t *weight = &conv->packed.weights[column * window->channels + channel];
            int32_t row = 0;
            sum += *weight;
            do {
                const int32_t below = row + 1 < window->height ? weight[row_step] : 0;
                *record++ = pair(2 * *weight, 2 * below);
                sum += below;
                weight += row_step;
                row++;
            } while (row + 1 < window->height);
        }
        packed_reader_next(&reader);
        *record++ = 2 * (reader.channel.bias - conv->input_zero_point * sum);
        *record++ = reader.channel.multiplier;
        *record++ = reader.channel.right - 1;
    }
}

void small_depthwise(const struct small_depthwise *conv, const int8_t *input, int32_t *buffer, int32_t *records,
                    int8_t *padding, int8_t *output)
{
    const int32_t channels = conv->window.channels;
    memset(padding, conv->input_zero_point, (size_t)conv->block);
    for (int32_t first = 0; first < channels; first += conv->block) {
        const int32_t left = channels - first;
        struct block block = {
            .conv = conv,
            .input = &input[first],
            .channels = left < conv->block ? left : conv->block,
            .padding = padding,
        };
        if (conv->records != 0) {
            block.records = &conv->records[first * conv->record_words];
        } else {
            make_records(conv, first, block.channels, records);
            block.records = records;
        }
        outputs_of(&block, buffer, &output[first * conv->depth_multiplier]);
    }
}
