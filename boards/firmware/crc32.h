/* crc32.h: the CRC-32 of zlib and Ethernet (polynomial 0x04C11DB7, reflected), so that the host can use zlib.crc32. */
#ifndef CRC32_H
#define CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32(const uint8_t *bytes, size_t count);

#endif
