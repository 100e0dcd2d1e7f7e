#include "kernels/inner/packed_channels.h"

#include <string.h>

#define FRACTION_BITS 23 /* of a float */
#define EXPONENT_BIAS 127
#define QUOTIENT_BYTES 5 /* 31 bits, the one behind them, and two that the operands may take off */

/* `count` bits from `bit` on, in the upper part of a word, so that the caller's shift down may extend the sign. */
static uint32_t bits_at(const uint8_t *codes, uint32_t bit, uint32_t count)
{
    uint32_t low, high;
    memcpy(&low, &codes[bit / 8u], sizeof low);
    memcpy(&high, &codes[bit / 8u + sizeof low], sizeof high);
    const uint32_t from = bit % 8u;
    const uint32_t whole = low >> from | high << 1 << (31u - from);
    return whole << (32u - count);
}

static uint32_t significand(uint32_t bits)
{
    return (bits & ((1u << FRACTION_BITS) - 1u)) | 1u << FRACTION_BITS;
}

/* input * weight / output = multiplier * 2^(-right - 31), the multiplier to nearest; all three as bits of a float. */
static void set_factor(struct packed_channel *channel, uint32_t input, uint32_t weight, uint32_t output)
{
    const uint64_t product = (uint64_t)significand(input) * significand(weight);
    const uint32_t divisor = significand(output);
    uint32_t part = (uint32_t)(product >> (FRACTION_BITS + 1));
    uint32_t rest = (uint32_t)product << 8;
    uint64_t quotient = part / divisor;
    for (int step = 0; step < QUOTIENT_BYTES; step++) { /* a remainder has 24 bits: room for a byte more */
        part = part % divisor << 8 | rest >> 24;
        rest <<= 8;
        quotient = quotient << 8 | part / divisor;
    }
    const int32_t bits = 64 - __builtin_clzll(quotient);
    const uint32_t rounded = ((uint32_t)(quotient >> (bits - 32)) >> 1) + ((uint32_t)(quotient >> (bits - 32)) & 1u);
    const uint32_t carried = rounded >> 31;
    const uint32_t exponent = (input >> FRACTION_BITS) + (weight >> FRACTION_BITS) - (output >> FRACTION_BITS);
    channel->multiplier = (int32_t)(rounded >> carried);
    channel->right = EXPONENT_BIAS + FRACTION_BITS + 8 * (QUOTIENT_BYTES - 3) - bits - (int32_t)(exponent + carried);
}

void packed_reader_next(struct packed_reader *reader)
{
    const struct packed_channels *packed = reader->packed;
    const uint32_t bias_bits = packed->bias_bits;
    const uint32_t scale_bits = packed->scale_bits;
    reader->channel.bias = (int32_t)bits_at(packed->codes, reader->bit, bias_bits) >> (32u - bias_bits);
    reader->bit += bias_bits;
    uint32_t scale = packed->lowest_scale;
    if (scale_bits != 0u) {
        scale += bits_at(packed->codes, reader->bit, scale_bits) >> (32u - scale_bits);
        reader->bit += scale_bits;
    }
    if (scale != reader->scale) {
        set_factor(&reader->channel, packed->input_scale, scale, packed->output_scale);
        reader->scale = scale;
    }
}
