/* window.h: a window that slides over an NHWC image. Positions outside the image are padding. */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdint.h>

struct window {
    uint16_t input_height;
    uint16_t input_width;
    uint16_t channels; /* of the input */
    uint16_t output_height;
    uint16_t output_width;
    uint16_t height; /* of the window, in taps */
    uint16_t width;
    uint16_t stride_y;
    uint16_t stride_x;
    uint16_t dilation_y;
    uint16_t dilation_x;
    int16_t padding_top; /* below 0: so many rows of the input lie above the window */
    uint16_t padding_left;
};

/* The taps [first, end) along one axis that lie inside the image. */
struct window_span {
    int32_t first;
    int32_t end;
};

/* `start` is the position of tap 0, `size` the image's extent along the axis. `end` is never below `first`. */
static inline struct window_span window_inside(int32_t start, int32_t taps, int32_t dilation, int32_t size)
{
    const int32_t first = start < 0 ? (dilation - 1 - start) / dilation : 0;
    const int32_t last = size > start ? (size - start + dilation - 1) / dilation : 0;
    const int32_t end = last < taps ? last : taps;
    return (struct window_span){first, end > first ? end : first};
}

#endif
