/* strings.c: what commands are read with, short instead of fast: newlib's take 1 KB. */
#include <stddef.h>
#include <string.h>

/* or the loops below would become calls of themselves */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0') {
        length++;
    }
    return length;
}

int strcmp(const char *first, const char *second)
{
    while (*first != '\0' && *first == *second) {
        first++;
        second++;
    }
    return (unsigned char)*first - (unsigned char)*second;
}

int memcmp(const void *first, const void *second, size_t count)
{
    const unsigned char *a = first;
    const unsigned char *b = second;
    for (; count > 0u; count--) {
        if (*a != *b) {
            return *a - *b;
        }
        a++;
        b++;
    }
    return 0;
}
