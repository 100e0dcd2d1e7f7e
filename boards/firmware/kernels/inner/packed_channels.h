/* packed_channels.h: bias and scaling of output channels in as few bits as they need, for flash that is short.
 * A multiplier follows from the scale of a channel's weights: it is the first 31 bits of input scale * weight scale /
 * output scale. So that scale, a float, is all that has to be stored, and of it how far it is above the layer's
 * smallest. TensorFlow Lite Micro rounds the quotient to a double first; where that makes a difference, nobody packs.
 */
#ifndef PACKED_CHANNELS_H
#define PACKED_CHANNELS_H

#include <stdint.h>

struct packed_channels {
    const uint8_t *codes;  /* of each channel bias_bits, then scale_bits, without a gap; 8 bytes more may be read */
    uint32_t lowest_scale; /* as the bits of a float, like the next two; a channel's code is added to them */
    uint32_t input_scale;
    uint32_t output_scale;
    uint8_t bias_bits;  /* 1 .. 32, signed */
    uint8_t scale_bits; /* 0 .. 31; 0: one scale for all, and bias_bits is 32 */
};

struct packed_channel {
    int32_t bias;
    int32_t multiplier;
    int32_t right; /* shift, 0 .. 31 */
};

/* On its way through the channels. */
struct packed_reader {
    const struct packed_channels *packed;
    uint32_t bit;   /* where the next channel begins */
    uint32_t scale; /* that the multiplier was computed from, as bits; at first 0 */
    struct packed_channel channel;
};

static inline void packed_reader_seek(struct packed_reader *reader, int32_t channel)
{
    reader->bit = (uint32_t)channel * (reader->packed->bias_bits + (uint32_t)reader->packed->scale_bits);
}

/* Puts the next channel into `channel`. */
void packed_reader_next(struct packed_reader *reader);

#endif
