/* memory.c: copying in words and bytes, for flash that is short: newlib's functions take 0.7 KB.
 * The Cortex-M7 loads and stores words at any address of normal memory, which is all that anybody copies here.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* or the loops below would become calls of themselves */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

typedef uint32_t word __attribute__((aligned(1), may_alias));

void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    for (; count >= sizeof(word); count -= sizeof(word)) {
        *(word *)target = *(const word *)source;
        target += sizeof(word);
        source += sizeof(word);
    }
    while (count-- > 0u) {
        *target++ = *source++;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    if (target <= source) {
        return memcpy(to, from, count); /* goes forward and reads each word before it writes it */
    }
    while (count-- > 0u) {
        target[count] = source[count];
    }
    return to;
}

void *memset(void *to, int value, size_t count)
{
    uint8_t *target = to;
    const uint32_t four = (uint8_t)value * 0x01010101u;
    for (; count >= sizeof(word); count -= sizeof(word)) {
        *(word *)target = four;
        target += sizeof(word);
    }
    while (count-- > 0u) {
        *target++ = (uint8_t)value;
    }
    return to;
}
