#include "kernels/copy.h"

#include <string.h>

void pad(const struct pad *params, const int8_t *input, int8_t *output)
{
    const int32_t *sizes = params->sizes;
    const int32_t *steps = params->steps;
    memset(output, params->value, (size_t)params->output_elements);
    for (int32_t a = 0; a < sizes[0]; a++) {
        for (int32_t b = 0; b < sizes[1]; b++) {
            int8_t *plane = &output[params->start + a * steps[0] + b * steps[1]];
            copy_rows(input, sizes[2], sizes[3], plane, steps[2]);
            input += sizes[2] * sizes[3];
        }
    }
}

void copy_rows(const int8_t *input, int32_t rows, int32_t row_bytes, int8_t *output, int32_t pitch)
{
    for (int32_t row = 0; row < rows; row++) {
        memcpy(output, input, (size_t)row_bytes);
        input += row_bytes;
        output += pitch;
    }
}
