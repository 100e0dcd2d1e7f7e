/* lookup.h: any function of one int8 (RELU, RELU6, LOGISTIC, HARD_SWISH, QUANTIZE to another grid) from its 256 values.
 * The output may lie where the input lies.
 */
#ifndef LOOKUP_H
#define LOOKUP_H

#include <stdint.h>

/* `table` by the byte of the input, read as unsigned. */
void lookup(const int8_t *table, const int8_t *input, int32_t count, int8_t *output);

#endif
