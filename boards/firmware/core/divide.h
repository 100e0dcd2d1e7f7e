/* divide.h: 64 bits by a few, in 60 bytes: the C library's own takes 0.7 KB. */
#ifndef DIVIDE_H
#define DIVIDE_H

#include <stdint.h>

/* Leaves the quotient in `value` and returns what remains; the divisor is below 2^16 and not 0. */
uint32_t divide(uint64_t *value, uint32_t divisor);

#endif
