#include "kernels/fast_conv_2d.h"

#include "kernels/inner/fast_move.h"

/* One line of the padded image; outside of the image everything is the zero point, which cancels against the bias. */
static void widen_line(const struct fast_conv_2d *conv, const int8_t *input, int32_t padded_line, int16_t *wide)
{
    const struct window *window = &conv->window;
    const int32_t y = padded_line - window->padding_top;
    if (y < 0 || y >= window->input_height) {
        fast_fill(wide, conv->line_elements, conv->input_zero_point);
        return;
    }
    const int32_t before = window->padding_left * window->channels;
    const int32_t width = window->input_width * window->channels;
    const int32_t room = conv->line_elements - before;
    const int32_t seen = width < room ? width : room;
    fast_fill(wide, before, conv->input_zero_point);
    fast_widen(&conv->dot, &input[y * width], seen, &wide[before]);
    fast_fill(&wide[before + seen], room - seen, conv->input_zero_point);
}

/* Pixels side by side, two at a time where there is a function for that. */
static void fast_row(const struct fast_dot *dot, const int16_t *x, int32_t pixels, int8_t *output)
{
    const int32_t together = dot->two_pixels != 0 ? pixels - pixels % 2 : 0;
    fast_dot(dot, x, together, pixels - together, output);
}

void fast_conv_2d(const struct fast_conv_2d *conv, const int8_t *input, int16_t *buffer, int8_t *output)
{
    const struct window *window = &conv->window;
    int32_t first = 0; /* padded line at the start of the buffer */
    int32_t end = 0;   /* padded lines up to here are in the buffer */
    int32_t y = 0;
    while (y < window->output_height) {
        const int32_t rows = window->output_height - y < conv->rows ? 1 : conv->rows;
        const int32_t top = y * window->stride_y;
        const int32_t bottom = top + (rows - 1) * window->stride_y + window->height;
        if (top >= end) {
            first = end = top;
        } else if (bottom > first + conv->lines) {
            fast_move(buffer, &buffer[(top - first) * conv->line_elements],
                      (end - top) * conv->line_elements / 2);
            first = top;
        }
        for (; end < bottom; end++) {
            widen_line(conv, input, end, &buffer[(end - first) * conv->line_elements]);
        }
        const int16_t *x = &buffer[(top - first) * conv->line_elements];
        const int32_t width = window->output_width;
        if (conv->rows == 1) {
            fast_row(&conv->dot, x, width, output);
        } else {
            fast_dot(&conv->dot, x, rows == 2 ? width : 0, rows == 2 ? 0 : width, output);
        }
        output += rows * width * conv->dot.outputs;
        y += rows;
    }
}

static void widen_pixels(const struct fast_matrix *matrix, const int8_t *input, int32_t pixels, int16_t *buffer)
{
    const int32_t depth = matrix->depth;
    const int32_t elements = matrix->dot.pixel_elements;
    if (matrix->is_by_pixel) {
        matrix->dot.widen(input, buffer, pixels);
    } else if (elements == depth && (depth % 4 == 0 || !matrix->dot.is_apart)) {
        fast_widen(&matrix->dot, input, pixels * depth, buffer);
    } else { /* what is behind the last of a pixel has weight 0, whatever it is */
        for (int32_t pixel = 0; pixel < pixels; pixel++) {
            fast_widen(&matrix->dot, &input[pixel * depth], depth, &buffer[pixel * elements]);
        }
    }
}

void fast_matrix(const struct fast_matrix *matrix, const int8_t *input, int16_t *buffer, int8_t *output)
{
    int32_t done = 0;
    while (done < matrix->pixels) {
        const int32_t left = matrix->pixels - done;
        const int32_t pixels = left < matrix->run ? left : matrix->run;
        widen_pixels(matrix, &input[done * matrix->depth], pixels, buffer);
        fast_row(&matrix->dot, buffer, pixels, &output[done * matrix->dot.outputs]);
        done += pixels;
    }
}

void fast_vector(const struct fast_vector *vector, const int8_t *input, int16_t *buffer, int8_t *output)
{
    const struct fast_dot *dot = &vector->dot;
    const int32_t whole = dot->outputs < FAST_DOT_CHANNELS ? 1 : dot->outputs / FAST_DOT_CHANNELS;
    const int32_t *const end = &dot->blocks[whole * dot->block_words];
    const int32_t covered = whole * FAST_DOT_CHANNELS;
    fast_widen(dot, input, vector->depth, buffer);
    dot->one_pixel(buffer, dot->blocks, output, end);
    if (covered < dot->outputs) {
        dot->one_pixel(buffer, end, &output[dot->outputs - FAST_DOT_CHANNELS], &end[dot->block_words]);
    }
}
