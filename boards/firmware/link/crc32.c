/* crc32.c: bit by bit. A table would be eight times as fast, but inputs are at most some 100 KB over a serial line. */
#include "crc32.h"

uint32_t crc32_add(uint32_t state, uint8_t byte)
{
    state ^= byte;
    for (int bit = 0; bit < 8; bit++) {
        state = (state >> 1) ^ ((state & 1u) != 0u ? 0xEDB88320u : 0u);
    }
    return state;
}

uint32_t crc32(const uint8_t *bytes, size_t count)
{
    uint32_t state = CRC32_START;
    for (size_t index = 0; index < count; index++) {
        state = crc32_add(state, bytes[index]);
    }
    return crc32_end(state);
}
