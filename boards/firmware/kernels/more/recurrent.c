#include "kernels/more/recurrent.h"

#include <string.h>

static inline int16_t saturated(int32_t value)
{
    return (int16_t)(value > INT16_MAX ? INT16_MAX : value < INT16_MIN ? INT16_MIN : value);
}

static inline int32_t scaled(int32_t value, const struct recurrent_factor *factor)
{
    return rescale(value, factor->multiplier, factor->left, factor->right);
}

static int32_t dot(const int8_t *weights, const int8_t *values, int32_t count)
{
    int32_t sum = 0;
    for (int32_t index = 0; index < count; index++) {
        sum += weights[index] * values[index];
    }
    return sum;
}

void svdf(const struct svdf *params, const int8_t *input, int8_t *state, int8_t *output)
{
    int16_t *held = (int16_t *)(void *)state;
    const int32_t memory = params->memory;
    memmove(held, &held[1], sizeof *held * (size_t)(params->filters * memory - 1));
    for (int32_t filter = 0; filter < params->filters; filter++) {
        const int32_t sum = dot(&params->feature[filter * params->inputs], input, params->inputs);
        held[filter * memory + memory - 1] = saturated(scaled(sum + params->offsets[filter], &params->to_state));
    }
    for (int32_t unit = 0; unit < params->filters / params->rank; unit++) {
        uint32_t sum = (uint32_t)params->bias[unit]; /* runs over as the runtime's does */
        const int32_t first = unit * params->rank * memory;
        for (int32_t index = first; index < first + params->rank * memory; index++) {
            sum += (uint32_t)(params->time[index] * held[index]);
        }
        const int32_t value = scaled((int32_t)sum, &params->to_output) + params->range.zero_point;
        output[unit] = clamp(value, params->range.lowest, params->range.highest);
    }
}

static int32_t interpolated(const struct lstm *params, uint32_t size, uint32_t bits, int32_t saturates)
{
    const uint32_t place = size >> bits;
    if (place >= 255u) {
        return saturates;
    }
    const int32_t here = params->sigmoid[place];
    const int32_t next = params->sigmoid[place + 1u];
    return (here << bits) + (int32_t)(size & ((1u << bits) - 1u)) * (next - here);
}

/* Of 3.12 fixed point, as 0.15. */
static int16_t sigmoid(const struct lstm *params, int32_t value)
{
    const int32_t lifted = value * 3;
    const int32_t curve = interpolated(params, (uint32_t)(lifted < 0 ? -lifted : lifted), 9, 0x7FFF << 10);
    return (int16_t)((lifted >= 0 ? curve + (1 << 9) : (1 << 25) - curve + (1 << 9) - 1) >> 10);
}

/* 2 * sigmoid(2 * value) - 1. */
static int16_t tanh_of(const struct lstm *params, int32_t value, int32_t multiplier, int32_t shift)
{
    const int32_t lifted = (value * multiplier + ((1 << shift) >> 1)) >> shift;
    const int32_t curve = interpolated(params, (uint32_t)(lifted < 0 ? -lifted : lifted), 8, 0xFFFF << 8);
    return (int16_t)((lifted >= 0 ? curve - (1 << 23) + (1 << 7) : -curve + (1 << 23) + (1 << 7) - 1) >> 8);
}

static int16_t gate_sum(const struct lstm *params, const struct lstm_gate *gate, int32_t unit, const int8_t *input,
                        const int8_t *hidden)
{
    const int32_t from_input = dot(&gate->weights[unit * params->inputs], input, params->inputs) + gate->bias[unit];
    const int32_t from_last =
        dot(&gate->recurrent[unit * params->units], hidden, params->units) + gate->recurrent_bias[unit];
    return saturated(saturated(scaled(from_input, &gate->factor)) +
                     saturated(scaled(from_last, &gate->recurrent_factor)));
}

static void step(const struct lstm *params, const int8_t *input, int16_t *gates, int8_t *hidden, int16_t *cell)
{
    const int32_t units = params->units;
    for (int32_t gate = 0; gate < 4; gate++) {
        for (int32_t unit = 0; unit < units; unit++) {
            const int32_t sum = gate_sum(params, &params->gates[gate], unit, input, hidden);
            gates[gate * units + unit] = gate == 2 ? tanh_of(params, sum, 3, 0) : sigmoid(params, sum);
        }
    }
    for (int32_t unit = 0; unit < units; unit++) {
        const int32_t kept = saturated(scaled(gates[units + unit] * cell[unit], &params->forgotten));
        const int32_t added = saturated(scaled(gates[unit] * gates[2 * units + unit], &params->added));
        int32_t content = saturated(kept + added);
        if (params->clip > 0) {
            content = content > params->clip ? params->clip : content < -params->clip ? -params->clip : content;
        }
        cell[unit] = (int16_t)content;
        const int32_t shown = tanh_of(params, content, params->tanh_multiplier, params->tanh_shift);
        const int32_t value = scaled(gates[3 * units + unit] * shown, &params->shown) + params->zero_point;
        hidden[unit] = clamp(value, INT8_MIN, INT8_MAX);
    }
}

void lstm(const struct lstm *params, const int8_t *input, int16_t *gates, int8_t *hidden, int8_t *cell, int8_t *output)
{
    for (int32_t at = 0; at < params->steps; at++) {
        step(params, &input[at * params->inputs], gates, hidden, (int16_t *)(void *)cell);
        memcpy(&output[at * params->units], hidden, (size_t)params->units);
    }
}
