#include "kernels/more/resize.h"

#define ONE 1024

/* A place of the output lies between two of the input, so far from the first. */
struct between {
    int32_t lower;
    int32_t upper;
    int32_t apart;
};

static struct between between(const struct resize_axis *axis, int32_t place)
{
    const int32_t at = place * axis->scale + axis->start;
    const int32_t lower = at / ONE > 0 ? at / ONE : 0;
    const int32_t upper = (at + ONE - 1) / ONE;
    const int32_t last = axis->input - 1;
    return (struct between){lower, upper < last ? upper : last, at - lower * ONE};
}

void resize_bilinear(const struct resize_bilinear *params, const int8_t *input, int8_t *output)
{
    const int32_t channels = params->channels;
    const int32_t line = params->across.input * channels;
    for (int32_t row = 0; row < params->down.output; row++) {
        const struct between y = between(&params->down, row);
        for (int32_t column = 0; column < params->across.output; column++) {
            const struct between x = between(&params->across, column);
            const int8_t *upper_left = &input[y.lower * line + x.lower * channels];
            const int8_t *lower_left = &input[y.upper * line + x.lower * channels];
            const int8_t *upper_right = &input[y.lower * line + x.upper * channels];
            const int8_t *lower_right = &input[y.upper * line + x.upper * channels];
            for (int32_t channel = 0; channel < channels; channel++) {
                const int32_t sum = upper_left[channel] * (ONE - y.apart) * (ONE - x.apart) +
                                    lower_left[channel] * y.apart * (ONE - x.apart) +
                                    upper_right[channel] * (ONE - y.apart) * x.apart +
                                    lower_right[channel] * y.apart * x.apart;
                *output++ = (int8_t)((sum + (sum > 0 ? ONE * ONE / 2 : -ONE * ONE / 2)) / (ONE * ONE));
            }
        }
    }
}
