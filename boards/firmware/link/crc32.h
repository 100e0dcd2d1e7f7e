/* crc32.h: the CRC-32 of zlib and Ethernet (polynomial 0x04C11DB7, reflected), so that the host can use zlib.crc32. */
#ifndef CRC32_H
#define CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32(const uint8_t *bytes, size_t count);

/* The same, byte by byte: crc32_end(crc32_add(... crc32_add(CRC32_START, first) ..., last)). */
#define CRC32_START 0xFFFFFFFFu
uint32_t crc32_add(uint32_t state, uint8_t byte);

static inline uint32_t crc32_end(uint32_t state)
{
    return ~state;
}

#endif
