#include "float_end.h"

#include <string.h>

#ifdef MODEL_INPUT_SCALE

#define FAR_STEPS 1000.0f      /* beyond int8 from any zero point, and whole in an int32_t */
#define MOST_THOUSANDTHS 1e18  /* in a uint64_t */

static float value_at(const uint8_t *floats, uint32_t index)
{
    float value;
    memcpy(&value, &floats[index * sizeof value], sizeof value);
    return value;
}

static int32_t rounded(float steps)
{
    if (!(steps > -FAR_STEPS)) {
        return -(int32_t)FAR_STEPS;
    }
    if (steps > FAR_STEPS) {
        return (int32_t)FAR_STEPS;
    }
    const int32_t whole = (int32_t)steps;
    const float rest = steps - (float)whole; /* exact */
    return rest >= 0.5f ? whole + 1 : rest <= -0.5f ? whole - 1 : whole;
}

void float_end_quantise(const uint8_t *floats, int8_t *tensor)
{
    for (uint32_t index = 0; index < MODEL_INPUT_BYTES; index++) {
        const int32_t level = rounded(value_at(floats, index) / MODEL_INPUT_SCALE) + MODEL_INPUT_ZERO_POINT;
        tensor[index] = (int8_t)(level < INT8_MIN ? INT8_MIN : level > INT8_MAX ? INT8_MAX : level);
    }
}

uint64_t float_end_error_thousandths(const uint8_t *floats, const int8_t *output)
{
    double sum = 0.0;
    for (uint32_t index = 0; index < MODEL_OUTPUT_BYTES; index++) {
        const double output_value = (double)(output[index] - MODEL_OUTPUT_ZERO_POINT) * (double)MODEL_OUTPUT_SCALE;
        const double gap = (double)value_at(floats, index) - output_value;
        sum += gap * gap;
    }
    const double thousandths = sum * 1000.0 / (double)MODEL_OUTPUT_BYTES;
    if (!(thousandths < MOST_THOUSANDTHS)) {
        return UINT64_MAX;
    }
    const uint64_t whole = (uint64_t)thousandths;
    const double rest = thousandths - (double)whole;
    return rest > 0.5 || (!(rest < 0.5) && (whole & 1u) != 0u) ? whole + 1u : whole;
}

#endif
