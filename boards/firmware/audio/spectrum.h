/* spectrum.h: power spectrum of a windowed frame, zero-padded to FRONT_END_FFT_POINTS. */
#ifndef SPECTRUM_H
#define SPECTRUM_H

#include <stdint.h>

#include "front_end.h"

/* power[i] = 4 |X[FRONT_END_FIRST_BIN + i]|^2 for the FRONT_END_BINS bins that a filter looks at, full scale being 1.
 */
void spectrum_power(const int16_t *samples, float *power);

#endif
