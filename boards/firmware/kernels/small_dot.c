#include "kernels/small_dot.h"

#include <string.h>

#define HEADER_WORDS 9
#define UNSHIFTED_HEADER_WORDS 20

/* The parts of the scratch. */
struct small_parts {
    int32_t *headers;
    int32_t *block;
    int32_t *x;
    int32_t has_headers;
    struct packed_reader reader;
};

static int32_t header_words(const struct small_dot *dot)
{
    return dot->has_unshifted != 0u ? UNSHIFTED_HEADER_WORDS : HEADER_WORDS;
}

/* Of a run's activations. */
static int32_t run_words(const struct small_dot *dot, int32_t run)
{
    return (run + dot->at_once - 1) / dot->at_once * (dot->taps * dot->at_once / 2);
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Where a block begins: the last one may begin inside the one before. */
static int32_t start_of(const struct small_dot *dot, int32_t next)
{
    const int32_t last = dot->outputs - SMALL_DOT_CHANNELS;
    return last < 0 ? 0 : smaller(next, last);
}

static void put_channel(const struct small_dot *dot, const struct packed_channel *channel, int32_t *header, int32_t own)
{
    const int32_t right = channel->right;
    header[own] = channel->bias;
    if (dot->has_unshifted != 0u) {
        int32_t *words = &header[SMALL_DOT_CHANNELS * (1 + own)];
        words[0] = channel->multiplier;
        words[1] = (dot->zero * (1 << right)) >> 1;
        words[2] = right;
        words[3] = right != 0 ? -1 : 0;
    } else {
        header[SMALL_DOT_CHANNELS + own] = channel->multiplier;
        ((uint8_t *)&header[2 * SMALL_DOT_CHANNELS])[own] = (uint8_t)(right - 1);
    }
}

static void put_header(const struct small_dot *dot, struct packed_reader *reader, int32_t first, int32_t *header)
{
    packed_reader_seek(reader, first);
    for (int32_t own = 0; own < SMALL_DOT_CHANNELS; own++) {
        if (own < dot->outputs) { /* of fewer than four outputs the last comes again */
            packed_reader_next(reader);
        }
        put_channel(dot, &reader->channel, header, own);
    }
}

/* The header of the block at channel `first`, `step` words behind the one before it, whose scaling it repeats in a layer
 * with one scale: the biases of such a layer are not packed. */
__attribute__((noinline)) static void fill_header(const struct small_dot *dot, struct packed_reader *reader,
                                                  int32_t first, int32_t *header, int32_t step)
{
    if (first == 0 || dot->channels.scale_bits != 0u) {
        put_header(dot, reader, first, header);
        return;
    }
    memcpy(header, &dot->channels.codes[first * (int32_t)sizeof *header], SMALL_DOT_CHANNELS * sizeof *header);
    for (int32_t word = SMALL_DOT_CHANNELS; word < header_words(dot); word++) {
        header[word] = header[word - step];
    }
}

/* Clears the activations of a run if pixels write fewer taps than they have. */
static struct small_parts begin(const struct small_dot *dot, int32_t written, int32_t run, int32_t *scratch)
{
    struct small_parts parts = {.headers = scratch, .reader = {.packed = &dot->channels}};
    const uint32_t blocks = run > 1 ? (dot->outputs + SMALL_DOT_CHANNELS - 1u) / SMALL_DOT_CHANNELS : 1u;
    scratch += (int32_t)blocks * header_words(dot);
    parts.block = scratch;
    parts.x = &scratch[dot->row_taps != 0u ? dot->taps : 0];
    if (written < dot->taps) {
        memset(parts.x, 0, (size_t)run_words(dot, run) * sizeof *parts.x);
    }
    return parts;
}

/* A block from four rows: a word of each in turn. What is read behind a row meets activations of 0. */
static void interleave_rows(const struct small_dot *dot, int32_t first, int32_t *block)
{
    for (int32_t own = 0; own < SMALL_DOT_CHANNELS; own++) {
        const int8_t *row = (const int8_t *)dot->weights + smaller(first + own, dot->outputs - 1) * dot->row_taps;
        int32_t *word = &block[own];
        for (int32_t tap = 0; tap < dot->taps; tap += 4) {
            memcpy(word, &row[tap], sizeof *word);
            word += SMALL_DOT_CHANNELS;
        }
    }
}

/* All outputs of the pixels whose activations lie in `x`. The first call fills the headers; of a pixel alone there is
 * room for one at a time. */
static void multiply(const struct small_dot *dot, struct small_parts *parts, int32_t pixels, int8_t *output)
{
    const int32_t groups = pixels / dot->at_once;
    const int32_t group_words = dot->taps * dot->at_once / 2;
    const int32_t header_step = pixels > 1 ? header_words(dot) : 0;
    int8_t few[SMALL_DOT_CHANNELS];
    struct small_dot_walk walk = {
        .outputs = pixels > 1 ? dot->outputs : 0, /* a pixel alone is both pixels of its group */
        .zero = dot->zero,
        .group_bytes = group_words * (int32_t)sizeof *parts->x,
    };
    int32_t *header = parts->headers;
    for (int32_t next = 0; next < dot->outputs; next += SMALL_DOT_CHANNELS) {
        const int32_t first = start_of(dot, next);
        if (header_step == 0 || parts->has_headers == 0) {
            fill_header(dot, &parts->reader, first, header, header_step);
        }
        walk.header = header;
        header += header_step;
        if (dot->row_taps != 0u) {
            interleave_rows(dot, first, parts->block);
            walk.weights = parts->block;
        } else {
            walk.weights = (const int32_t *)dot->weights + next / SMALL_DOT_CHANNELS * dot->taps;
        }
        walk.x = parts->x;
        walk.y = dot->outputs < SMALL_DOT_CHANNELS ? few : &output[first];
        if (groups > 0) {
            walk.count = groups;
            dot->loop(&walk);
        }
        if (pixels > groups * dot->at_once) { /* an odd last one goes with the one before it */
            walk.x = &parts->x[groups * group_words];
            walk.y += pixels > 1 ? (pixels - 2) * dot->outputs : 0;
            walk.count = 1;
            dot->loop(&walk);
        }
    }
    parts->has_headers = 1;
    if (dot->outputs < SMALL_DOT_CHANNELS) {
        memcpy(output, few, dot->outputs);
    }
}

/* Bytes 0 and 2 of four as two int16, less the zero point. */
static int32_t widened(uint32_t bytes, int32_t zero_point)
{
    const uint32_t addend = (uint32_t)-zero_point & 0xffffu;
#ifdef __ARM_FEATURE_DSP
    int32_t two;
    __asm("sxtab16 %0, %1, %2" : "=r"(two) : "r"(addend | addend << 16), "r"(bytes));
    return two;
#else
    const uint32_t low = (uint32_t)(int8_t)bytes + addend;
    const uint32_t high = (uint32_t)(int8_t)(bytes >> 16) + addend;
    return (int32_t)((low & 0xffffu) | high << 16);
#endif
}

/* Of each four values 0 and 2 as a word, then 1 and 3, `step` words from word to word. */
static void widen(const struct small_dot *dot, const int8_t *source, int32_t count, int32_t *words, int32_t step)
{
    const int32_t zero_point = dot->input_zero_point;
    for (; count >= 4; count -= 4) {
        uint32_t bytes;
        memcpy(&bytes, source, sizeof bytes);
        source += 4;
        words[0] = widened(bytes, zero_point);
        words[step] = widened(bytes >> 8, zero_point);
        words += 2 * step;
    }
    if (count > 0) { /* what is behind the last counts as 0 */
        uint32_t bytes = (uint8_t)zero_point * 0x01010101u;
        memcpy(&bytes, source, (size_t)count);
        words[0] = widened(bytes, zero_point);
        words[step] = widened(bytes >> 8, zero_point);
    }
}

void small_matrix(const struct small_matrix *matrix, const int8_t *input, int32_t *scratch, int8_t *output)
{
    const struct small_dot *dot = &matrix->dot;
    struct small_parts parts = begin(dot, (matrix->depth + 3) / 4 * 4, matrix->run, scratch);
    const int32_t at_once = dot->at_once;
    const int32_t depth = matrix->depth;
    for (int32_t done = 0; done < matrix->pixels; done += matrix->run) {
        const int32_t pixels = smaller(matrix->pixels - done, matrix->run);
        int32_t *words = parts.x;
        for (int32_t pixel = 0; pixel < pixels; pixel += at_once) {
            const int32_t first = pixels > 1 ? smaller(pixel, pixels - at_once) : 0;
            for (int32_t beside = 0; beside < at_once; beside++) {
                const int32_t own = smaller(first + beside, pixels - 1);
                widen(dot, &input[(done + own) * depth], depth, &words[beside], at_once);
            }
            words += dot->taps * at_once / 2;
        }
        multiply(dot, &parts, pixels, &output[done * dot->outputs]);
    }
}

/* One line of the padded image; outside of the image everything is the zero point. */
static void widen_line(const struct small_conv_2d *conv, const int8_t *input, int32_t padded_line, int16_t *wide)
{
    const struct window *window = &conv->window;
    const int32_t y = padded_line - window->padding_top;
    const int32_t before = window->padding_left * window->channels;
    const int32_t width = window->input_width * window->channels;
    memset(wide, 0, conv->line_elements * sizeof *wide);
    if (y < 0 || y >= window->input_height) {
        return;
    }
    const int32_t seen = smaller(width, conv->line_elements - before);
    if (conv->is_apart != 0u) {
        widen(&conv->dot, &input[y * width], seen, (int32_t *)(void *)&wide[before], 1);
    } else {
        const int32_t zero_point = conv->dot.input_zero_point;
        const int8_t *source = &input[y * width];
        wide += before;
        for (int32_t left = seen; left > 0; left--) {
            *wide++ = (int16_t)(*source++ - zero_point);
        }
    }
}

/* Of what a pixel sees of a line. */
static int32_t line_words(const struct window *window)
{
    return (window->width * window->channels + 1) / 2;
}

/* Two times so many words of int16, side by side. Not inlined, or there are too few registers for it. */
__attribute__((noinline)) static int32_t *side_by_side(const int16_t *first, const int16_t *second, int32_t *words,
                                                       int32_t count)
{
    int32_t *const end = &words[2 * count];
#pragma GCC unroll 2
    do {
        memcpy(&words[0], first, sizeof *words);
        memcpy(&words[1], second, sizeof *words);
        first += 2;
        second += 2;
        words += 2;
    } while (words != end);
    return end;
}

/* What two neighbouring pixels of a row see, side by side; or one alone, twice. */
static void gather(const struct small_conv_2d *conv, const int16_t *lines, const int32_t pixels[2], int32_t *words)
{
    const struct window *window = &conv->window;
    const int32_t pixel_elements = window->stride_x * window->channels;
    const int32_t words_a_line = line_words(window);
    for (int32_t line = 0; line < window->height; line++) {
        const int16_t *first = &lines[pixels[0] * pixel_elements];
        const int16_t *second = &lines[pixels[1] * pixel_elements];
        words = side_by_side(first, second, words, words_a_line);
        lines += conv->line_elements;
    }
}

static void row_of(const struct small_conv_2d *conv, struct small_parts *parts, const int16_t *lines, int8_t *output)
{
    const int32_t width = conv->window.output_width;
    for (int32_t done = 0; done < width; done += conv->run) {
        const int32_t count = smaller(width - done, conv->run);
        int32_t *words = parts->x;
        for (int32_t pixel = 0; pixel < count; pixel += 2) {
            const int32_t second = done + smaller(pixel + 1, count - 1);
            const int32_t both[2] = {count > 1 ? second - 1 : second, second};
            gather(conv, lines, both, words);
            words += conv->dot.taps;
        }
        multiply(&conv->dot, parts, count, &output[done * conv->dot.outputs]);
    }
}

void small_conv_2d(const struct small_conv_2d *conv, const int8_t *input, int32_t *scratch, int8_t *output)
{
    const struct window *window = &conv->window;
    struct small_parts parts = begin(&conv->dot, 2 * line_words(window) * window->height, conv->run, scratch);
    int16_t *const lines = (int16_t *)(void *)&parts.x[run_words(&conv->dot, conv->run) + 2];
    const int32_t elements = conv->line_elements;
    int32_t first = 0; /* padded line at the start of the buffer */
    int32_t end = 0;   /* padded lines up to here are in the buffer */
    for (int32_t y = 0; y < window->output_height; y++) {
        const int32_t top = y * window->stride_y;
        if (top >= end) {
            first = end = top;
        } else if (top + window->height > first + conv->lines) {
            memmove(lines, &lines[(top - first) * elements], (size_t)((end - top) * elements) * sizeof *lines);
            first = top;
        }
        for (; end < top + window->height; end++) {
            widen_line(conv, input, end, &lines[(end - first) * elements]);
        }
        row_of(conv, &parts, &lines[(top - first) * elements], output);
        output += window->output_width * conv->dot.outputs;
    }
}
