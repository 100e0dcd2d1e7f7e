/* recurrent.h: SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM, which keep a state from one inference to the next. Input, state and
 * output do not overlap.
 */
#ifndef RECURRENT_H
#define RECURRENT_H

#include <stdint.h>

#include "kernels/inner/requantise.h"

struct recurrent_factor {
    int32_t multiplier;
    int32_t left;
    int32_t right;
};

struct svdf {
    const int8_t *feature;  /* filters, inputs */
    const int16_t *time;    /* filters, memory */
    const int32_t *bias;    /* units */
    const int32_t *offsets; /* filters: -input zero point * sum of the weights */
    int32_t inputs;
    int32_t filters;
    int32_t memory;
    int32_t rank;
    struct recurrent_factor to_state;
    struct recurrent_factor to_output;
    struct requantise_range range;
};

/* `state`: the last `memory` outputs of each filter. */
void svdf(const struct svdf *params, const int8_t *input, int8_t *state, int8_t *output);

struct lstm_gate {
    const int8_t *weights;   /* units, inputs */
    const int8_t *recurrent; /* units, units */
    const int32_t *bias;     /* of each product, units each; they hold the zero points */
    const int32_t *recurrent_bias;
    struct recurrent_factor factor;
    struct recurrent_factor recurrent_factor;
};

struct lstm {
    struct lstm_gate gates[4]; /* input, forget, cell, output */
    const uint16_t *sigmoid;   /* 65536 / (1 + exp(-i / 24)) for 256 i */
    int32_t steps;             /* of the sequence */
    int32_t inputs;
    int32_t units;
    struct recurrent_factor forgotten;
    struct recurrent_factor added;
    struct recurrent_factor shown;
    int32_t tanh_multiplier;
    int32_t tanh_shift;
    int32_t clip; /* of the cell, 0: none */
    int32_t zero_point;
};

/* `gates`: 4 * units of scratch memory; `hidden`: the last output; `cell`: units of int16. */
void lstm(const struct lstm *params, const int8_t *input, int16_t *gates, int8_t *hidden, int8_t *cell, int8_t *output);

#endif
