/* float_end.h: a network whose host sends float32 and may want one number back: how far its output is from its input.
 *
 * MLPerf Tiny's anomaly detector is one: 640 floats come in, the mean squared difference between them and the output
 * goes back. Only images whose model.h has MODEL_INPUT_SCALE carry any of this.
 */
#ifndef FLOAT_END_H
#define FLOAT_END_H

#include <stdint.h>

#include "model.h"

#ifdef MODEL_INPUT_SCALE

/* MODEL_INPUT_BYTES values as the tensor holds them: to the nearest step, halves away from zero (as TensorFlow Lite
 * Micro's QUANTIZE), saturated; what is no number becomes the lowest one. */
void float_end_quantise(const uint8_t *floats, int8_t *tensor);

/* Mean of the squared differences in thousandths, rounded to the nearest, in double precision, so that every host comes
 * to the same digits; UINT64_MAX for what is no number or too large to print. */
uint64_t float_end_error_thousandths(const uint8_t *floats, const int8_t *output);

#endif
#endif
