/* mfcc.h: int16 samples to the network's int8 input: windowed power spectrum, mel filters, logarithm, DCT, rounding;
 * log-mel features are the same without the DCT.
 *
 * The definition is that of data/sounds/mfcc.py; tables, standardisation and the input's scale and zero point come
 * from front_end.h, which is generated. Single precision throughout. Not reentrant: one work buffer.
 */
#ifndef MFCC_H
#define MFCC_H

#include <stdint.h>

#include "front_end.h"

/* FRONT_END_WINDOW_SAMPLES -> FRONT_END_COEFFICIENTS */
void mfcc_frame(const int16_t *samples, int8_t *features);

/* FRONT_END_CLIP_SAMPLES -> FRONT_END_FRAMES * FRONT_END_COEFFICIENTS */
void mfcc_clip(const int16_t *samples, int8_t *features);

#endif
