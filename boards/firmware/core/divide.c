#include "divide.h"

uint32_t divide(uint64_t *value, uint32_t divisor)
{
    uint64_t quotient = 0;
    uint32_t remainder = 0;
    for (int shift = 48; shift >= 0; shift -= 16) {
        const uint32_t part = remainder << 16 | (uint16_t)(*value >> shift);
        quotient = quotient << 16 | part / divisor;
        remainder = part % divisor;
    }
    *value = quotient;
    return remainder;
}
