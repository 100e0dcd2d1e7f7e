#include "base64.h"

#include <string.h>

static int digit(char character)
{
    if (character >= 'A' && character <= 'Z') {
        return character - 'A';
    }
    if (character >= 'a' && character <= 'z') {
        return character - 'a' + 26;
    }
    if (character >= '0' && character <= '9') {
        return character - '0' + 52;
    }
    if (character == '+') {
        return 62;
    }
    return character == '/' ? 63 : -1;
}

bool base64_decode(const char *text, uint8_t *bytes, uint32_t room, uint32_t *count)
{
    const size_t length = strlen(text);
    if (length % 4u != 0u) {
        return false;
    }
    *count = 0;
    for (size_t start = 0; start < length; start += 4u) {
        const bool last = start + 4u == length;
        const uint32_t padding = !last || text[start + 3u] != '=' ? 0u : text[start + 2u] == '=' ? 2u : 1u;
        uint32_t group = 0;
        for (size_t place = 0; place < 4u; place++) {
            const int value = place >= 4u - padding ? 0 : digit(text[start + place]);
            if (value < 0) {
                return false;
            }
            group = group << 6 | (uint32_t)value;
        }
        const uint32_t whole = 3u - padding;
        const bool stray_bits = (group & ((1u << (8u * padding)) - 1u)) != 0u;
        if (stray_bits || whole > room - *count) {
            return false;
        }
        for (uint32_t place = 0; place < whole; place++) {
            bytes[(*count)++] = (uint8_t)(group >> (16u - 8u * place));
        }
    }
    return true;
}
