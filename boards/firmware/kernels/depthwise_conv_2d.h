/* depthwise_conv_2d.h: DEPTHWISE_CONV_2D of any window and depth multiplier. */
#ifndef DEPTHWISE_CONV_2D_H
#define DEPTHWISE_CONV_2D_H

#include <stdint.h>

#include "kernels/inner/requantise.h"
#include "kernels/inner/window.h"

struct depthwise_conv_2d {
    const int8_t *weights;                     /* window height x width x outputs */
    const struct requantise_channel *channels; /* one per output */
    struct requantise_range range;
    struct window window;
    int32_t depth_multiplier; /* outputs = input channels * depth_multiplier */
    int8_t input_zero_point;
};

/* Scratch of the caller: `taps` one per tap of the window, `padding` one byte per input channel. */
void depthwise_conv_2d(const struct depthwise_conv_2d *conv, const int8_t *input, const int8_t **taps, int8_t *padding,
                       int8_t *output);

#endif
